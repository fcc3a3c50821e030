#!/usr/bin/env bash
# The tests that depend on PostgreSQL's version, on several versions side by side. The last line counts: 'N passed, N failed'.
#
# usage: scripts/test-versions.sh [--whole] [VERSION]…    by default every major version that pystachio builds for
#
# PYSTACHIO_TEST_SHARE and PYSTACHIO_TEST_SEED are as in scripts/test.sh, the share a tenth unless set.
#
# On each: every SQL test and the 22 queries of TPC-H. On the newest also a slice of the differential tests, and the faults that
# PostgreSQL has a part in, and pg_upgrade to it from the oldest that servers.sh fetches. scripts/test.sh has both on the oldest, and all tests that know no PostgreSQL. The tests of rights run on
# 16.2 too, unless the same sources have passed them there. --whole runs everything on every version.
source "$(dirname "$0")/environment.sh"

is_whole=
if [[ ${1:-} == --whole ]]; then
    is_whole=yes
    shift
fi
share=${PYSTACHIO_TEST_SHARE:-0.1}
seed=$(test_seed "$share")
versions=("$@")
if [[ $# -eq 0 ]]; then read -ra versions <<< "$SERVER_VERSIONS"; fi
newest=$(printf '%s\n' "${versions[@]}" | sort -n | tail -n 1)
results=$project_root/target/results-versions
rm -rf "$results"
mkdir -p "$results"
areas=()
say "seed $seed, share $share of the long suites: PYSTACHIO_TEST_SEED=$seed PYSTACHIO_TEST_SHARE=$share repeats them"
EARLY_SERVER=16.2
# Where tests of rights on it that pass leave a mark: named by what they depend on.
rights=$cache_root/passed/rights-$EARLY_SERVER-$(
    cd "$project_root"
    find src/extension/pg/compat.rs src/extension/planner/security.rs src/extension/privileges.rs regress/faults/access.py regress/faults/views.py \
        -type f -print0 | xargs -0 sha256sum | sha256sum | cut -c1-32
)
servers=("${versions[@]}")
wants_early() { [[ " ${versions[*]} " == *' 16 '* && (-n $is_whole || ! -f $rights) ]]; }
if wants_early; then servers+=("$EARLY_SERVER"); fi
"$project_root/scripts/servers.sh" "${servers[@]}" > /dev/null

# Makes a cluster of the server of PG_CONFIG, which ends with the subshell that it is called in: use_cluster NAME STAGE. What it could
# not make has no counts, which the tally takes for a failure.
use_cluster() {
    name=$1
    folder=$("$project_root/scripts/cluster.sh" create "$name" "$2")
    # shellcheck disable=SC2064
    trap "'$project_root/scripts/cluster.sh' stop '$name'" EXIT
    conninfo=$("$project_root/scripts/cluster.sh" conninfo "$name")
}

# Runs some of the differential suites: differential SUITE….
differential() {
    psql "$conninfo dbname=postgres" -X -q -c 'CREATE DATABASE differential' -c '\c differential' -c 'CREATE EXTENSION pystachio'
    python3 "$project_root/regress/differential/run.py" "$conninfo dbname=differential" --data "$folder/edges" --tpch "$folder/tpch" \
        "${@/#/--suite=}" --seed "$seed" --share "$share" --counts "$results/$name-differential.json"
}

# Runs some modules of the faults: faults AREA MODULE….
faults() {
    local area=$1
    shift
    python3 "$project_root/regress/faults/run.py" "$conninfo" "$folder" "${@/#/--module=}" --counts "$results/$name-$area.json"
}

# Runs the tests on the server of PG_CONFIG: test_version VERSION STAGE.
test_version() {
    local outcome=0
    use_cluster "pg$1" "$2"
    "$project_root/regress/run.sh" "$PG_CONFIG" "$folder" "$results/$name-regress.json" || outcome=1
    if has_all "$1"; then
        differential "${suites[@]}" || outcome=1
        faults faults access views roles upgrade nesting planning processes || outcome=1
    else
        differential cases tpch data || outcome=1
    fi
    return "$outcome"
}

# Rights on a server of 16 that leaves more of their checks to us, with the build for 16.
test_rights() {
    use_cluster "pg$1" "$2"
    faults rights access views
    mkdir -p "$(dirname "$rights")"
    touch "$rights"
}

# Runs tests beside others, with their output in a log: beside NAME COMMAND….
beside() {
    local name=$1
    shift
    while [[ $(jobs -rp | wc -l) -ge $(nproc) ]]; do wait -n || true; done
    {
        begin=$SECONDS
        # Not as a condition, within which bash would go on after a command that fails.
        set +e
        (
            set -e
            "$@"
        ) > "$results/$name.log" 2>&1
        [[ $? == 0 ]] || touch "$results/failed"
        say "$name took $((SECONDS - begin)) s"
    } &
}

suites=(cases tpch data generated views edges literals letters arrays set_operations rewrites)
has_all() { [[ -n $is_whole || $1 == "$newest" ]]; }

logs=()
old_config='' old_stage=''
system_version=$(server_version "$(PG_CONFIG='' find_pg_config)" 2> /dev/null) || system_version=''
for version in "${versions[@]}"; do
    PG_CONFIG=$(server_config "$version")
    export PG_CONFIG
    say "PostgreSQL $version: $("$PG_CONFIG" --version)"
    areas+=("pg$version-regress" "pg$version-differential")
    if has_all "$version"; then areas+=("pg$version-faults"); fi
    logs+=("pg$version")
    if ! stage=$("$project_root/scripts/build.sh"); then
        touch "$results/failed"
        continue
    fi
    beside "pg$version" test_version "$version" "$stage"
    # A distribution's server may note in its catalogs what another build does not know, as Debian's 15.20 does (pg_attver): the two
    # of an upgrade are of those that servers.sh fetches.
    if [[ $version != "$system_version" && -z $old_config ]]; then
        old_config=$PG_CONFIG old_stage=$stage
    fi
    if [[ $version == "$newest" && $old_config != "$PG_CONFIG" ]]; then
        areas+=("pg$version-upgrade")
        logs+=("pg$version-upgrade")
        beside "pg$version-upgrade" "$project_root/scripts/test-upgrade.sh" "$old_config" "$old_stage" "$PG_CONFIG" "$stage" \
            "$results/pg$version-upgrade.json"
    fi
    if [[ $version == 16 ]] && wants_early; then
        areas+=("pg$EARLY_SERVER-rights")
        logs+=("pg$EARLY_SERVER")
        PG_CONFIG=$(server_config "$EARLY_SERVER") beside "pg$EARLY_SERVER" test_rights "$EARLY_SERVER" "$stage"
    fi
done
wait
for name in "${logs[@]}"; do
    if [[ -f $results/$name.log ]]; then
        printf '\n%s:\n' "$name"
        cat "$results/$name.log"
    fi
done
status=0
if [[ -e $results/failed ]]; then status=1; fi
python3 "$project_root/scripts/tally.py" "$results" "$status" "${areas[@]}"
