#!/usr/bin/env bash
# Installs the built extension, its SQL and the engine executable into the PostgreSQL of PG_CONFIG. Debug information stays in the build.
source "$(dirname "$0")/environment.sh"

config=$(find_pg_config) || die "no PostgreSQL server found: set PG_CONFIG=/path/to/pg_config"
lib=$("$config" --pkglibdir)
share=$("$config" --sharedir)/extension
# Before the build, which takes long.
for folder in "$lib" "$share"; do
    [[ -w $folder ]] || die "$folder is not writable: run this as root, or as the owner of that PostgreSQL"
done
stage=$("$project_root/scripts/build.sh")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
strip --strip-debug -o "$work/pystachio.so" "$stage/lib/pystachio.so"
strip --strip-debug -o "$work/pystachio-engine" "$stage/lib/pystachio-engine"
install -m 0644 "$work/pystachio.so" "$lib"/
install -m 0755 "$work/pystachio-engine" "$lib"/
install -m 0644 "$stage"/extension/* "$share"/
say "installed into $lib and $share"
say "next: add pystachio to shared_preload_libraries in postgresql.conf (recommended), restart, CREATE EXTENSION pystachio"
