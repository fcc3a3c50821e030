#!/usr/bin/env bash
# Builds the extension and the engine in release mode and lays them out in a folder, whose path it prints.
#
#   <stage>/lib/pystachio.so  <stage>/lib/pystachio-engine  <stage>/extension/pystachio*
#
# The extension for another PostgreSQL than the one that is found by itself has a build folder of its own: cargo gives
# the library one name whatever it was built for, and would compile the extension anew at every change of the version.
source "$(dirname "$0")/environment.sh"

config=$(find_pg_config) || die "no PostgreSQL server found: run scripts/setup.sh, or set PG_CONFIG"
version=$(server_version "$config")
own=$CARGO_TARGET_DIR
if [[ $config != "$(unset PG_CONFIG && find_pg_config || true)" ]]; then own=$CARGO_TARGET_DIR/pg$version; fi
stage=$own/stage-$version
cd "$project_root"

say "building the engine"
cargo build --release --locked --workspace --exclude pystachio --exclude pystachio-fuzz --exclude pystachio-cases >&2
say "building the extension for PostgreSQL $version"
PGRX_PG_CONFIG_PATH=$config cargo build --release --locked --package pystachio --no-default-features --features "pg$version" \
    --target-dir "$own" >&2
python3 scripts/check_sql.py "$own/release/libpystachio.so" >&2

rm -rf "$stage.new"
mkdir -p "$stage.new/lib" "$stage.new/extension"
cp "$own/release/libpystachio.so" "$stage.new/lib/pystachio.so"
cp "$CARGO_TARGET_DIR/release/pystachio-engine" "$stage.new/lib/"
cp pystachio.control sql/pystachio--*.sql "$stage.new/extension/"
rm -rf "$stage"
mv "$stage.new" "$stage"
printf '%s\n' "$stage"
