#!/usr/bin/env bash
# TPC-H against the peers. usage: SF=1 QUERIES="1 6" RUNS=5 scripts/bench.sh
source "$(dirname "$0")/environment.sh"

python=$("$project_root/scripts/peers.sh")
stage=$("$project_root/scripts/build.sh")
folder=$("$project_root/scripts/cluster.sh" start bench "$stage")
conninfo=$("$project_root/scripts/cluster.sh" conninfo bench)
# shellcheck disable=SC2064
trap "'$project_root/scripts/cluster.sh' stop bench" EXIT
"$python" "$project_root/benches/run.py" "$conninfo" "$folder" --scale "${SF:-1}" --runs "${RUNS:-5}" \
    --queries "${QUERIES:-}"
