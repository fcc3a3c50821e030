#!/usr/bin/env bash
# Installs the built extension, its SQL and the engine executable into the PostgreSQL of PG_CONFIG.
source "$(dirname "$0")/environment.sh"

config=$(find_pg_config) || die "no PostgreSQL server found: set PG_CONFIG=/path/to/pg_config"
stage=$("$project_root/scripts/build.sh")
lib=$("$config" --pkglibdir)
share=$("$config" --sharedir)/extension
for folder in "$lib" "$share"; do
    [[ -w $folder ]] || die "$folder is not writable: run this as root, or as the owner of that PostgreSQL"
done
install -m 0644 "$stage"/lib/pystachio.so "$lib"/
install -m 0755 "$stage"/lib/pystachio-engine "$lib"/
install -m 0644 "$stage"/extension/* "$share"/
say "installed into $lib and $share"
say "next: shared_preload_libraries = 'pystachio' in postgresql.conf (recommended), restart, CREATE EXTENSION pystachio"
