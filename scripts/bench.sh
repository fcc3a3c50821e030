#!/usr/bin/env bash
# TPC-H against the peers. usage: SF=1 QUERIES="1 6" RUNS=5 scripts/bench.sh
source "$(dirname "$0")/environment.sh"

venv=$cache_root/bench-venv
requirements=$project_root/benches/requirements.txt
if [[ ! -f $venv/installed ]] || ! cmp -s "$requirements" "$venv/installed"; then
    say "making the peers' private environment in $venv"
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$requirements" >&2
    cp "$requirements" "$venv/installed"
fi
stage=$("$project_root/scripts/build.sh")
folder=$("$project_root/scripts/cluster.sh" start bench "$stage")
conninfo=$("$project_root/scripts/cluster.sh" conninfo bench)
# shellcheck disable=SC2064
trap "'$project_root/scripts/cluster.sh' stop bench" EXIT
"$venv/bin/python" "$project_root/benches/run.py" "$conninfo" "$folder" --scale "${SF:-1}" --runs "${RUNS:-5}" \
    --queries "${QUERIES:-}"
