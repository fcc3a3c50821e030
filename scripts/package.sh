#!/usr/bin/env bash
# Makes target/package/pystachio-<version>-pg<major>-<architecture>.tar.xz: unpack it on a host with the same
# PostgreSQL major version and run its install.sh. No Rust is needed there.
#
# usage: scripts/package.sh [--stage STAGE MAJOR FOLDER]    what it packs, for which version, and where to; by default it builds
#        LEVEL=6 as in scripts/packages.sh
#
# The same commit and build give the same bytes. Names of functions stay in the binaries, for backtraces; lines don't.
source "$(dirname "$0")/environment.sh"

if [[ ${1:-} == --stage ]]; then
    [[ $# == 4 ]] || die "usage: package.sh --stage STAGE MAJOR FOLDER"
    stage=$2 major=$3 folder=$4
else
    config=$(find_pg_config) || die "no PostgreSQL server found: run scripts/setup.sh, or set PG_CONFIG"
    major=$(server_version "$config")
    stage=$("$project_root/scripts/build.sh")
    folder=$project_root/target/package
fi
epoch=${SOURCE_DATE_EPOCH:-$(git -C "$project_root" log -1 --format=%ct)}
name=pystachio-$(workspace_version)-pg$major-$(uname -m)
rm -rf "${folder:?}/$name"
mkdir -p "$folder/$name"
cp -r "$stage/lib" "$stage/extension" "$folder/$name/"
cp "$project_root"/{LICENSE,README.md,SECURITY.md} "$folder/$name/"
cp -r "$project_root/docs" "$folder/$name/"
strip --strip-debug "$folder/$name/lib/pystachio.so" "$folder/$name/lib/pystachio-engine"
cat > "$folder/$name/install.sh" <<'INSTALL'
#!/bin/sh
# usage: install.sh [pg_config]    installs into the PostgreSQL of that pg_config (default: the one in PATH)
set -eu
here=$(cd "$(dirname "$0")" && pwd)
config=${1:-pg_config}
major=@MAJOR@
version=$("$config" --version)
case $version in
    "PostgreSQL $major"[!0-9]*) ;;
    *) echo "error: $config is $version; this archive is for PostgreSQL $major" >&2; exit 1 ;;
esac
install -m 0644 "$here"/lib/pystachio.so "$("$config" --pkglibdir)"/
install -m 0755 "$here"/lib/pystachio-engine "$("$config" --pkglibdir)"/
install -m 0644 "$here"/extension/* "$("$config" --sharedir)"/extension/
echo "installed; add pystachio to shared_preload_libraries, restart, then CREATE EXTENSION pystachio"
INSTALL
sed -i "s/@MAJOR@/$major/" "$folder/$name/install.sh"
chmod -R u=rwX,go=rX "$folder/$name"
chmod 0755 "$folder/$name/install.sh"
# With one thread, xz gives the same on any number of processors.
LC_ALL=C tar -C "$folder" --sort=name --mtime="@$epoch" --owner=0 --group=0 --numeric-owner --format=gnu -cf - "$name" | xz -T1 "-${LEVEL:-6}" > "$folder/$name.tar.xz"
rm -rf "${folder:?}/$name"
say "made $folder/$name.tar.xz"
