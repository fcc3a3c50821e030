#!/usr/bin/env bash
# Queries of sqlsmith over foreign tables, on a PostgreSQL 15 with assertions (regress/sqlsmith). The last line counts: 'N passed, N failed'.
#
# usage: scripts/sqlsmith.sh SECONDS [SEED [OPTION…]]     options of regress/sqlsmith/run.py
#
# Queries with findings go to target/sqlsmith-findings.sql. PG_CONFIG chooses another server.
source "$(dirname "$0")/environment.sh"

seconds=${1:-300} seed=${2:-$(test_seed 0)}
[[ $# -le 2 ]] && set -- || shift 2
found=$("$project_root/scripts/beside.sh" sqlsmith)
[[ $found == have* ]] || die "sqlsmith can't be had: ${found##*$'\t'}"
if [[ -n ${PG_CONFIG:-} ]]; then
    stage=$("$project_root/scripts/build.sh")
else
    PG_CONFIG=$("$project_root/scripts/cassert-server.sh")
    # The library for the PostgreSQL 15 that is installed, where there is one: it loads into both.
    stage=$(PG_CONFIG=$(server_config 15 || printf '%s' "$PG_CONFIG") "$project_root/scripts/build.sh")
fi
export PG_CONFIG
say "sqlsmith on $("$PG_CONFIG" --version) for $seconds s, seed $seed"
folder=$("$project_root/scripts/cluster.sh" create sqlsmith "$stage")
trap '"$project_root/scripts/cluster.sh" stop sqlsmith' EXIT
python3 "$project_root/regress/sqlsmith/run.py" "$("$project_root/scripts/cluster.sh" conninfo sqlsmith)" "$folder" --sqlsmith "${found##*$'\t'}" \
    --seconds "$seconds" --seed "$seed" --findings "$project_root/target/sqlsmith-findings.sql" "$@"
