#!/usr/bin/env bash
# Builds the tests of exchanges between GPUs and the benchmark of shuffles into a folder.
#
# usage: scripts/shuffle-build.sh FOLDER
source "$(dirname "$0")/environment.sh"

folder=$(realpath -m "${1:?usage: shuffle-build.sh FOLDER}")
mkdir -p "$folder"
say "building the tests of exchanges and the benchmark of shuffles"
cd "$project_root"
prepare_target
messages=$(
    cargo test --release --locked -p pystachio-cuda --test exchange --no-run --message-format=json-render-diagnostics
    cargo build --release --locked -p pystachio-cuda --example shuffle --message-format=json-render-diagnostics
)
python3 -c '
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("executable") and message["target"]["name"] in ("exchange", "shuffle"):
        print(message["target"]["name"], message["executable"])
' <<< "$messages" | while read -r name executable; do
    strip --strip-debug -o "$folder/$name" "$executable"
done
[[ -f $folder/exchange && -f $folder/shuffle ]] || die "cargo made no exchange or no shuffle"
