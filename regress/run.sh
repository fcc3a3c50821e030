#!/usr/bin/env bash
# Runs the SQL tests by pg_regress in a running private cluster.
#
# usage: regress/run.sh PG_CONFIG CLUSTER_FOLDER COUNTS_FILE [TEST…]     default: all tests of the schedule
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
chmod -R a+rX "$PYSTACHIO_REGRESS_DATA"
psql -X -q -d postgres -c "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'regression'" > /dev/null
pgxs=$(dirname "$("$config" --pgxs)")
arguments=(--inputdir="$here" --outputdir="$output" --bindir="$("$config" --bindir)" --launcher="$here/launcher.sh"
    --host="$folder" --port=5432 --user=postgres --dbname=regression --load-extension=pystachio)
if [[ $# -gt 0 ]]; then arguments+=("$@"); else arguments+=(--schedule="$here/schedule"); fi
status=0
"$pgxs/../test/regress/pg_regress" "${arguments[@]}" | tee "$output/summary" || status=1
passed=$(grep -cE '^(test|     ) .*\.\.\. ok' "$output/summary" || true)
failed=$(grep -cE '^(test|     ) .*\.\.\. FAILED' "$output/summary" || true)
if [[ $status != 0 && $failed == 0 ]]; then failed=1; fi
if [[ -f $output/regression.diffs ]]; then head -n 200 "$output/regression.diffs"; fi
# Each failed test with the first lines that differ.
sed -nE 's/^(test|     ) *([a-z_]+) .*FAILED.*/\2/p' "$output/summary" | while read -r test; do
    diff "$here/expected/$test.out" "$output/results/$test.out" | grep -E '^[<>]' | head -n 3 | sed "s/^/$test: /"
done > "${counts%.json}.failures" || true
printf '{"passed": %d, "failed": %d}\n' "$passed" "$failed" > "$counts"
exit $status
