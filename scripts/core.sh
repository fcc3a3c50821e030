#!/usr/bin/env bash
# PostgreSQL's own regression queries over foreign tables, compared with heap tables: regress/core. On the server of PG_CONFIG.
#
# usage: scripts/core.sh COUNTS_FILE [OPTION…]     options: those of regress/core/run.py, such as --slice SECONDS, --file NAME
#
# The suite's SQL files come from Debian's source package and pyarrow from PyPI, into the cache folder.
source "$(dirname "$0")/environment.sh"

[[ $# -ge 1 ]] || die "usage: core.sh COUNTS_FILE [OPTION…]"
counts=$1
shift
config=$(find_pg_config) || die "no PostgreSQL server found: run scripts/setup.sh, or set PG_CONFIG"
version=$(server_version "$config")

python=$("$project_root/scripts/pyarrow.sh")
# The suite's files; where Debian has no source package of the version, those of the oldest serve.
sources=$cache_root/sources
suite=
for wanted in "$version" "${SERVER_VERSIONS%% *}"; do
    [[ -z $suite && ! -f $sources/$wanted.absent ]] || continue
    mkdir -p "$sources"
    if found=$("$project_root/scripts/postgres-source.sh" "$wanted" "$sources/$wanted"); then
        suite=$found/src/test/regress
    elif [[ $wanted != "${SERVER_VERSIONS%% *}" ]]; then
        touch "$sources/$wanted.absent"
    fi
done
[[ -n $suite ]] || die "the sources of PostgreSQL, which have its regression suite, can't be had"
for tests in test_statements test_queries test_compare test_forms; do
    "$python" "$project_root/regress/core/$tests.py" 2>&1 | tail -n 20 >&2
done

# A cluster for each version: some can run at once.
cluster=core$version
stage=$("$project_root/scripts/build.sh")
folder=$("$project_root/scripts/cluster.sh" create "$cluster" "$stage")
# shellcheck disable=SC2064
trap "'$project_root/scripts/cluster.sh' stop '$cluster'" EXIT
"$python" "$project_root/regress/core/run.py" "$("$project_root/scripts/cluster.sh" conninfo "$cluster")" --suite "$suite" \
    --data "$folder/core" --version "$version" --counts "$counts" "$@"
