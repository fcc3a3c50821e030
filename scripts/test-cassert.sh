#!/usr/bin/env bash
# A slice of the tests on a PostgreSQL 15 with assertions, which find memory that is used after it was freed and plans that the
# planner would never make itself. The last line counts: 'N passed, N failed'. `make test-cassert` runs all that can run there.
#
# usage: scripts/test-cassert.sh
#
#   1. the SQL tests of the planner
#   2. TPC-H and the rewrites over heap tables and foreign ones, with the genetic join search for any two tables: it frees what
#      was made for one join order before it tries the next
#
# The library is the one for the PostgreSQL 15 that is installed, where there is one: it loads into both.
source "$(dirname "$0")/environment.sh"

cassert=$("$project_root/scripts/cassert-server.sh")
results=$project_root/target/results-cassert
rm -rf "$results"
mkdir -p "$results"
seed=$(test_seed 0.1)
status=0
installed=$(server_config 15 || printf '%s' "$cassert")
stage=$(PG_CONFIG=$installed "$project_root/scripts/build.sh")
export PG_CONFIG=$cassert
folder=$("$project_root/scripts/cluster.sh" create cassert "$stage")
trap '"$project_root/scripts/cluster.sh" stop cassert' EXIT
conninfo=$("$project_root/scripts/cluster.sh" conninfo cassert)
export PYSTACHIO_TEST_FOLDER=$folder

mapfile -t tests < <(sed -nE 's/^test: *((planner|pushdown|tpch|explain|write)_.*)/\1/p' "$project_root/regress/schedule")
begin=$SECONDS
"$project_root/regress/run.sh" "$cassert" "$folder" "$results/cassert-regress.json" "${tests[@]}" || status=1
printf '%d' $((SECONDS - begin)) > "$results/cassert-regress.seconds"

begin=$SECONDS
psql "$conninfo dbname=postgres" -X -q -c 'CREATE DATABASE differential' -c 'ALTER DATABASE differential SET geqo_threshold = 2' \
    -c '\c differential' -c 'CREATE EXTENSION pystachio'
python3 "$project_root/regress/differential/run.py" "$conninfo dbname=differential" --data "$folder/edges" --tpch "$folder/tpch" \
    --suite tpch --suite rewrites --suite views --seed "$seed" --share 0.1 --counts "$results/cassert-geqo.json" || status=1
printf '%d' $((SECONDS - begin)) > "$results/cassert-geqo.seconds"
python3 "$project_root/scripts/tally.py" "$results" "$status" cassert-regress cassert-geqo
