#!/usr/bin/env bash
# Builds the executable tests of src/cuda and puts them into a folder, which then runs on any host with a GPU.
#
# usage: scripts/gpu-tests.sh FOLDER
source "$(dirname "$0")/environment.sh"

folder=$(realpath -m "${1:?usage: gpu-tests.sh FOLDER}")
mkdir -p "$folder"
say "building the tests of src/cuda"
cd "$project_root"
prepare_target
tests=()
for source in src/cuda/tests/*.rs; do tests+=(--test "$(basename "$source" .rs)"); done
# The whole workspace is selected, as in build.sh, so that one build of the crates below serves both.
select_workspace
messages=$(cargo test --release "${selection[@]}" "${tests[@]}" --no-run --message-format=json-render-diagnostics)
python3 -c '
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("profile", {}).get("test") and message.get("executable"):
        print(message["target"]["name"], message["executable"])
' <<< "$messages" | while read -r name executable; do
    strip --strip-debug -o "$folder/$name" "$executable"
done
[[ -n $(ls "$folder") ]] || die "src/cuda has no tests"
