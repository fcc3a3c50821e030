#!/bin/bash
# What a first user does, in a bare system: a server from nothing, the extension, Parquet files, a query. Runs within it as root.
#
# usage: try.sh BINDIR    prints a line for each answer; scripts/test-packages.sh compares them
set -euo pipefail

bin=$1
folder=/var/lib/pystachio-try
id postgres > /dev/null 2>&1 || useradd --system --no-create-home postgres
rm -rf "$folder"
install -d -o postgres "$folder"
cd "$folder"
as_postgres() { setpriv --reuid=postgres --regid=postgres --init-groups env HOME="$folder" "$@"; }
query() { as_postgres "$bin/psql" -X -q -A -t -v ON_ERROR_STOP=1 -h "$folder" -U postgres -d postgres "$@"; }

as_postgres "$bin/initdb" -D "$folder/data" -U postgres --auth=trust --encoding=UTF8 --locale=C.UTF-8 --no-sync > "$folder/initdb.log" 2>&1 ||
    { cat "$folder/initdb.log" >&2; exit 1; }
as_postgres "$bin/pg_ctl" -D "$folder/data" -l "$folder/log" -w -t 60 \
    -o "-c listen_addresses='' -c unix_socket_directories='$folder' -c shared_preload_libraries=pystachio" start > /dev/null || { cat "$folder/log" >&2; exit 1; }
query -c 'CREATE EXTENSION pystachio' || { cat "$folder/log" >&2; exit 1; }
printf 'version %s\n' "$(query -c 'SELECT pystachio.version()')"
query -c "SELECT * FROM pystachio.tpch_generate('$folder/tpch', 0.01)" > /dev/null
query -c "IMPORT FOREIGN SCHEMA \"$folder/tpch\" FROM SERVER pystachio INTO public"
printf 'rows %s\n' "$(query -c 'SELECT count(*) FROM lineitem JOIN orders ON l_orderkey = o_orderkey')"
printf 'scans %s\n' "$(query -c 'EXPLAIN (COSTS OFF) SELECT count(*) FROM lineitem' | grep -c '^Foreign Scan')"
printf 'engine %s\n' "$(query -c 'SELECT state FROM pystachio.engines')"
as_postgres "$bin/pg_ctl" -D "$folder/data" -m fast -w stop > /dev/null
