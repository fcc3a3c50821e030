#!/usr/bin/env bash
# Benchmarks against the peers.
#
# usage: SF=1 QUERIES="1 6" RUNS=5 scripts/bench.sh           TPC-H
#        SF=1 RUNS=5 WORKLOAD=everyday scripts/bench.sh       everyday queries (QUERIES="page:": those whose name has that)
source "$(dirname "$0")/environment.sh"

python=$("$project_root/scripts/peers.sh")
stage=$("$project_root/scripts/build.sh")
folder=$("$project_root/scripts/cluster.sh" start bench "$stage")
conninfo=$("$project_root/scripts/cluster.sh" conninfo bench)
# shellcheck disable=SC2064
trap "'$project_root/scripts/cluster.sh' stop bench" EXIT
case ${WORKLOAD:-tpch} in
    tpch)
        "$python" "$project_root/benches/run.py" "$conninfo" "$folder" --scale "${SF:-1}" --runs "${RUNS:-5}" --queries "${QUERIES:-}"
        ;;
    everyday)
        "$python" "$project_root/benches/everyday.py" "$conninfo" "$folder" --scale "${SF:-1}" --runs "${RUNS:-5}" --only "${QUERIES:-}"
        ;;
    *) die "WORKLOAD=$WORKLOAD is no workload: tpch, everyday" ;;
esac
