#!/usr/bin/env bash
# pg_upgrade of a database with foreign tables: what the catalogs say of them, rights included, and what queries return is the same
# after it. The last line counts.
#
# usage: scripts/test-upgrade.sh OLD_CONFIG OLD_STAGE NEW_CONFIG NEW_STAGE COUNTS
#        two PostgreSQL servers, by their pg_config and the build of pystachio for each; COUNTS gets the counts as JSON
source "$(dirname "$0")/environment.sh"

[[ $# == 5 ]] || die "usage: test-upgrade.sh OLD_CONFIG OLD_STAGE NEW_CONFIG NEW_STAGE COUNTS"
old_config=$1 old_stage=$2 new_config=$3 new_stage=$4 counts=$5
failed=0
trap 'PG_CONFIG=$old_config "$project_root/scripts/cluster.sh" stop upold; PG_CONFIG=$new_config "$project_root/scripts/cluster.sh" stop upnew' EXIT

old=$(PG_CONFIG=$old_config "$project_root/scripts/cluster.sh" create upold "$old_stage")
new=$(PG_CONFIG=$new_config "$project_root/scripts/cluster.sh" create upnew "$new_stage")
old_bin=$old/server$("$old_config" --bindir) new_bin=$new/server$("$new_config" --bindir)
cp "$project_root"/regress/data/t1.parquet "$old/"
chmod a+r "$old/t1.parquet"

# Runs SQL of standard input in a database: run FOLDER DATABASE [OPTION]…
run() { psql "host=$1 port=5432 user=postgres dbname=$2" -X -q -v ON_ERROR_STOP=1 "${@:3}"; }

# What must be the same before and after, whatever the versions: describe FOLDER. Version 17 brought the right MAINTAIN, and row types
# as members of extensions; pg_dump sorts options.
describe() {
    run "$1" app --tuples-only --no-align <<'SQL'
SELECT 'extension', extversion FROM pg_extension WHERE extname = 'pystachio';
SELECT 'server', srvname, srvowner::regrole, ARRAY(SELECT option FROM unnest(srvoptions) option ORDER BY option), srvacl FROM pg_foreign_server ORDER BY srvname;
SELECT 'mapping', srvname, usename, umoptions FROM pg_user_mappings ORDER BY srvname, usename;
SELECT 'table', ftrelid::regclass, relowner::regrole, ftoptions, replace(relacl::text, 'tm/', 't/') FROM pg_foreign_table JOIN pg_class c ON c.oid = ftrelid ORDER BY 2;
SELECT 'column', attrelid::regclass, attname, format_type(atttypid, atttypmod), attfdwoptions, attacl FROM pg_attribute
  WHERE attnum > 0 AND attrelid IN (SELECT ftrelid FROM pg_foreign_table) ORDER BY 2, attnum;
SELECT 'member', pg_describe_object(classid, objid, objsubid) FROM pg_depend
  WHERE deptype = 'e' AND classid <> 'pg_type'::regclass AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'pystachio') ORDER BY 2;
SELECT 'view', relname, replace(relacl::text, 'tm/', 't/') FROM pg_class WHERE relkind = 'v' AND relnamespace IN ('pystachio'::regnamespace, 'public'::regnamespace) ORDER BY 2;
SELECT 'options', * FROM pystachio.server_options ORDER BY name;
SELECT 'comment', obj_description(oid, 'pg_foreign_server') FROM pg_foreign_server ORDER BY srvname;
SELECT 'rows', count(*), sum(n), min(c), max(d) FROM t1;
SELECT 'rows', count(*), sum(n) FROM through_own;
SELECT 'engines', server, memory_is_promised FROM watched ORDER BY server;
SQL
}

run "$old" postgres -c 'CREATE ROLE upgrade_reader' -c 'CREATE DATABASE app'
run "$old" app -v path="$old/t1.parquet" <<'SQL'
CREATE EXTENSION pystachio;
ALTER SERVER pystachio OPTIONS (ADD threads '1', ADD memory '256MB');
CREATE SERVER own FOREIGN DATA WRAPPER pystachio OPTIONS (device 'cpu', memory '256MB');
COMMENT ON SERVER own IS 'A server of one''s own';
CREATE USER MAPPING FOR upgrade_reader SERVER own;
GRANT USAGE ON FOREIGN SERVER own TO upgrade_reader;
REVOKE USAGE ON FOREIGN SERVER pystachio FROM PUBLIC;
GRANT USAGE ON FOREIGN SERVER pystachio TO upgrade_reader;
CREATE FOREIGN TABLE t1 (id integer NOT NULL, a integer, n numeric(15, 2), c text, d date) SERVER pystachio OPTIONS (path :'path');
CREATE FOREIGN TABLE through_own (other integer OPTIONS (column_name 'id'), n numeric(15, 2)) SERVER own OPTIONS (path :'path');
GRANT SELECT ON t1 TO upgrade_reader;
GRANT SELECT (n) ON through_own TO upgrade_reader;
CREATE VIEW watched AS SELECT server, memory_promised > 0 AS memory_is_promised FROM pystachio.engines;
GRANT SELECT ON watched TO upgrade_reader;
REVOKE SELECT ON pystachio.queries FROM PUBLIC;
GRANT SELECT ON pystachio.queries TO upgrade_reader;
SQL
describe "$old" > "$old/before"
PG_CONFIG=$old_config "$project_root/scripts/cluster.sh" stop upold
PG_CONFIG=$new_config "$project_root/scripts/cluster.sh" stop upnew

# A folder as pg_upgrade wants it: empty, and with checksums only if the old one has them.
rm -rf "$new/data"
initdb_options=(--username=postgres --auth=trust --encoding=UTF8 --locale=C.UTF-8 --no-sync)
if [[ $("$new_bin/initdb" --help) == *--no-data-checksums* ]]; then initdb_options+=(--no-data-checksums); fi
as_server_user "$new_bin/initdb" -D "$new/data" "${initdb_options[@]}" > "$new/initdb.log" 2>&1
echo "include_if_exists = '$new/pystachio.conf'" | as_server_user tee -a "$new/data/postgresql.conf" > /dev/null
as_server_user mkdir -p "$new/upgrade"
as_server_user env -C "$new/upgrade" "$new_bin/pg_upgrade" --old-bindir="$old_bin" --new-bindir="$new_bin" --old-datadir="$old/data" \
    --new-datadir="$new/data" --socketdir="$new" --username=postgres > "$new/upgrade.log" 2>&1 || {
    tail -n 40 "$new/upgrade.log" >&2
    find "$new" -name '*.txt' -path '*pg_upgrade*' -exec tail -n 20 {} + >&2
    die "pg_upgrade failed; its log is $new/upgrade.log"
}
PG_CONFIG=$new_config "$project_root/scripts/cluster.sh" start upnew "$new_stage" > /dev/null
describe "$new" > "$new/after"
if ! diff "$old/before" "$new/after" >&2; then
    failed=1
    say "pg_upgrade changed what is above"
fi
printf '{"passed": %d, "failed": %d}\n' $((1 - failed)) "$failed" > "$counts"
printf '%d passed, %d failed\n' $((1 - failed)) "$failed"
exit "$failed"
