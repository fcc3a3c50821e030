#!/usr/bin/env bash
# The tests that depend on PostgreSQL's version, on one version after the other. The last line counts: 'N passed, N failed'.
#
# usage: scripts/test-versions.sh [VERSION]…    by default every major version that pystachio builds for
#
# PYSTACHIO_TEST_SHARE and PYSTACHIO_TEST_SEED are as in scripts/test.sh, the share a tenth unless set.
#
# On each: every SQL test, TPC-H, a slice of the differential tests, and the faults that PostgreSQL has a part in. What knows
# no PostgreSQL (tests of Rust, damaged files, devices, the GPU engine) is not repeated: scripts/test.sh has it.
source "$(dirname "$0")/environment.sh"

share=${PYSTACHIO_TEST_SHARE:-0.1}
seed=$(test_seed "$share")
versions=("$@")
if [[ $# -eq 0 ]]; then read -ra versions <<< "$SERVER_VERSIONS"; fi
results=$project_root/target/results-versions
rm -rf "$results"
mkdir -p "$results"
status=0
areas=()
say "seed $seed, share $share of the long suites: PYSTACHIO_TEST_SEED=$seed PYSTACHIO_TEST_SHARE=$share repeats them"
started=
trap '[[ -z $started ]] || "$project_root/scripts/cluster.sh" stop "$started"' EXIT
EARLY_SERVER=16.2
servers=("${versions[@]}")
if [[ " ${versions[*]} " == *' 16 '* ]]; then servers+=("$EARLY_SERVER"); fi
"$project_root/scripts/servers.sh" "${servers[@]}" > /dev/null
# All versions read the same files of TPC-H.
tpch=$(state_root)/versions/tpch
mkdir -p "$(dirname "$tpch")"
if [[ $(id -u) == 0 ]]; then chown "$(server_user)" "$(dirname "$tpch")"; fi

# Makes a cluster of the server of PG_CONFIG: create_cluster NAME STAGE. What it could not make has no counts, which the tally
# takes for a failure.
create_cluster() {
    name=$1
    folder=$("$project_root/scripts/cluster.sh" create "$name" "$2") || return 1
    started=$name
    conninfo=$("$project_root/scripts/cluster.sh" conninfo "$name")
    export PYSTACHIO_TEST_FOLDER=$folder
}

stop_cluster() {
    "$project_root/scripts/cluster.sh" stop "$started"
    started=
}

# Runs the tests on the server of PG_CONFIG: test_version VERSION.
test_version() {
    local version=$1 suite suites=()
    stage=$("$project_root/scripts/build.sh") && create_cluster "pg$version" "$stage" || return 1
    "$project_root/regress/run.sh" "$PG_CONFIG" "$folder" "$results/$name-regress.json" || status=1

    psql "$conninfo dbname=postgres" -X -q -c 'CREATE DATABASE differential' -c '\c differential' -c 'CREATE EXTENSION pystachio'
    for suite in cases tpch data generated views edges literals letters arrays set_operations rewrites; do suites+=(--suite "$suite"); done
    python3 "$project_root/regress/differential/run.py" "$conninfo dbname=differential" --data "$folder/edges" --tpch "$tpch" \
        "${suites[@]}" --seed "$seed" --share "$share" --counts "$results/$name-differential.json" || status=1

    python3 "$project_root/regress/faults/run.py" "$conninfo" "$folder" --module access --module views --module roles --module upgrade --module nesting \
        --module processes --counts "$results/$name-faults.json" || status=1
    stop_cluster
}

# Rights on a server of 16 that leaves more of their checks to us, with the build for 16.
test_access() {
    create_cluster "pg$1" "$stage" || return 1
    python3 "$project_root/regress/faults/run.py" "$conninfo" "$folder" --module access --module views --counts "$results/$name-access.json" || status=1
    stop_cluster
}

for version in "${versions[@]}"; do
    PG_CONFIG=$(server_config "$version")
    export PG_CONFIG
    say "PostgreSQL $version: $("$PG_CONFIG" --version)"
    areas+=("pg$version-regress" "pg$version-differential" "pg$version-faults")
    begin=$SECONDS
    test_version "$version" || status=1
    if [[ $version == 16 ]]; then
        areas+=("pg$EARLY_SERVER-access")
        PG_CONFIG=$(server_config "$EARLY_SERVER")
        test_access "$EARLY_SERVER" || status=1
    fi
    say "PostgreSQL $version took $((SECONDS - begin)) s"
done
python3 "$project_root/scripts/tally.py" "$results" "$status" "${areas[@]}"
