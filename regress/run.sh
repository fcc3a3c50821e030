#!/usr/bin/env bash
# Runs the SQL tests by pg_regress in a running private cluster.
#
# usage: regress/run.sh PG_CONFIG CLUSTER_FOLDER COUNTS_FILE [TEST…]     default: all tests of the schedule
#
# With PYSTACHIO_TEST_ORDER=N in the environment, in the order that this number chooses.
# A test whose file begins with `-- Needs ICU.` or `-- Needs PostgreSQL 18.` is left out on a server that has not what it needs,
# and counted as skipped.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
config=$1 folder=$2 counts=$3
shift 3
output=$here/../target/regress/$(basename "$folder")
rm -rf "$output"
mkdir -p "$output/results"
# The server reads the first and writes the second.
export PYSTACHIO_REGRESS_DATA=$folder/regress-data PYSTACHIO_REGRESS_SCRATCH=$folder/regress-scratch
export PGUSER=postgres PGHOST=$folder PGPORT=5432
rm -rf "$PYSTACHIO_REGRESS_DATA"
mkdir -p "$PYSTACHIO_REGRESS_DATA"
cp "$here"/data/*.parquet "$PYSTACHIO_REGRESS_DATA/"
# Where imports of the folder do not see them.
mkdir -p "$PYSTACHIO_REGRESS_DATA/_encrypted"
cp "$here"/encrypted/*.parquet "$here/encrypted/keys.sql" "$PYSTACHIO_REGRESS_DATA/_encrypted/"
chmod -R a+rX "$PYSTACHIO_REGRESS_DATA"
# Tests make folders in it too.
mkdir -p "$PYSTACHIO_REGRESS_SCRATCH"
chmod a+rwx "$PYSTACHIO_REGRESS_SCRATCH"
psql -X -q -d postgres -c "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'regression'" > /dev/null

tests=("$@")
if [[ $# -eq 0 ]]; then mapfile -t tests < <(sed -nE 's/^test: *//p' "$here/schedule"); fi
skipped=0
major=$(psql -X -At -d postgres -c "SELECT current_setting('server_version_num')::integer / 10000")
has_icu=$(psql -X -At -d postgres -c "SELECT count(*) > 0 FROM pg_collation WHERE collname = 'en-x-icu'")
for place in "${!tests[@]}"; do
    needed=$(sed -nE '1s/^-- Needs (.*)\.$/\1/p' "$here/sql/${tests[place]}.sql")
    case $needed in
        '') continue ;;
        ICU) if [[ $has_icu == t ]]; then continue; fi ;;
        'PostgreSQL '*) if [[ $major -ge ${needed#PostgreSQL } ]]; then continue; fi ;;
    esac
    echo "skipped: ${tests[place]} needs $needed, which this server has not"
    unset "tests[place]"
    skipped=$((skipped + 1))
done

if [[ -n ${PYSTACHIO_TEST_ORDER:-} ]]; then
    mapfile -t tests < <(printf '%s\n' "${tests[@]}" | shuf --random-source=<(yes "$PYSTACHIO_TEST_ORDER"))
fi

pgxs=$(dirname "$("$config" --pgxs)")
arguments=(--inputdir="$here" --outputdir="$output" --bindir="$("$config" --bindir)" --launcher="$here/launcher.sh"
    --host="$folder" --port=5432 --user=postgres --dbname=regression --load-extension=pystachio)
status=0
"$pgxs/../test/regress/pg_regress" "${arguments[@]}" "${tests[@]}" | tee "$output/summary" || status=1
# PostgreSQL 15 prints 'test NAME ... ok', later versions what TAP prescribes: 'ok 1 - NAME'.
passed=$(grep -cE '^((test|     ) .*\.\.\. ok|ok [0-9]+ )' "$output/summary" || true)
# The same lines have milliseconds at their ends.
sed -nE -e 's/^(test|     ) *([a-z0-9_]+) .* ([0-9]+) ms$/\3\t\2/p' -e 's/^(not )?ok [0-9]+ +[-+] ([a-z0-9_]+) +([0-9]+) ms$/\3\t\2/p' "$output/summary" |
    awk -F'\t' '{ printf "%.3f\t%s\n", $1 / 1000, $2 }' > "${counts%.json}.times"
mapfile -t failed < <(sed -nE -e 's/^(test|     ) *([a-z0-9_]+) .*FAILED.*/\2/p' -e 's/^not ok [0-9]+ +[-+] ([a-z0-9_]+).*/\1/p' "$output/summary")
failures=${#failed[@]}
unfinished=
if [[ $status != 0 && $failures == 0 ]]; then
    failures=1
    unfinished="pg_regress ended early: $(tail -n 1 "$output/summary")"
fi
if [[ -f $output/regression.diffs ]]; then head -n 200 "$output/regression.diffs"; fi

# Prints the first lines in which a failed test differs from the expected file that is nearest, which pg_regress has chosen.
first_differences() {
    awk -v test="$1" '
        /^diff / { left = index($0, "/results/" test ".out") ? 5 : 0; next }
        left > 3 { left--; next }
        left > 0 && /^[-+]/ { print test ": " $0; left-- }' "$output/regression.diffs"
}
for test in "${failed[@]}"; do
    found=$(first_differences "$test" 2> /dev/null || true)
    printf '%s\n' "${found:-$test: failed without a difference; see $output/results/$test.out}"
done > "${counts%.json}.failures"
if [[ -n $unfinished ]]; then echo "$unfinished" >> "${counts%.json}.failures"; fi
printf '{"passed": %d, "failed": %d, "skipped": %d}\n' "$passed" "$failures" "$skipped" > "$counts"
exit $status
