#!/usr/bin/env bash
# Makes target/package/pystachio-<version>-pg<major>-<architecture>.tar.xz: unpack it on a host with the same
# PostgreSQL major version and run its install.sh. No Rust is needed there.
source "$(dirname "$0")/environment.sh"

config=$(find_pg_config) || die "no PostgreSQL server found: run scripts/setup.sh, or set PG_CONFIG"
major=$(server_version "$config")
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' "$project_root/Cargo.toml")
name=pystachio-$version-pg$major-$(uname -m)
stage=$("$project_root/scripts/build.sh")
folder=$project_root/target/package
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
"$config" --version | grep -q "^PostgreSQL $major[^0-9]" || { echo "error: $config is $("$config" --version); this archive is for PostgreSQL $major" >&2; exit 1; }
install -m 0644 "$here"/lib/pystachio.so "$("$config" --pkglibdir)"/
install -m 0755 "$here"/lib/pystachio-engine "$("$config" --pkglibdir)"/
install -m 0644 "$here"/extension/* "$("$config" --sharedir)"/extension/
echo "installed; add pystachio to shared_preload_libraries, restart, then CREATE EXTENSION pystachio"
INSTALL
sed -i "s/@MAJOR@/$major/" "$folder/$name/install.sh"
chmod 0755 "$folder/$name/install.sh"
tar -C "$folder" -cJf "$folder/$name.tar.xz" "$name"
rm -rf "${folder:?}/$name"
say "made target/package/$name.tar.xz"
