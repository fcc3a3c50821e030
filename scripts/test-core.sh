#!/usr/bin/env bash
# PostgreSQL's own regression queries, all of them in every mode, on one version after the other. The last line counts.
#
# usage: scripts/test-core.sh [VERSION]…    by default every major version that pystachio builds for; PG_CONFIG's alone where set
source "$(dirname "$0")/environment.sh"

results=$project_root/target/results-core
rm -rf "$results"
mkdir -p "$results"
status=0
areas=()

# Runs on the server of PG_CONFIG: run_on NAME.
run_on() {
    areas+=("$1")
    "$project_root/scripts/core.sh" "$results/$1.json" || status=1
}

versions=("$@")
if [[ $# -eq 0 && -n ${PG_CONFIG:-} ]]; then
    run_on "core-$(server_version "$PG_CONFIG")"
else
    if [[ $# -eq 0 ]]; then read -ra versions <<< "$SERVER_VERSIONS"; fi
    "$project_root/scripts/servers.sh" "${versions[@]}" > /dev/null
    for version in "${versions[@]}"; do
        PG_CONFIG=$(server_config "$version")
        export PG_CONFIG
        run_on "core-$version"
    done
fi
python3 "$project_root/scripts/tally.py" "$results" "$status" "${areas[@]}"
