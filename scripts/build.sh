#!/usr/bin/env bash
# Builds the extension and the engine in release mode and lays them out in a folder, whose path it prints.
#
#   <stage>/lib/pystachio.so  <stage>/lib/pystachio-engine  <stage>/extension/pystachio*
#
# Each version of PostgreSQL has a build of the extension of its own; they share the build folder without taking
# each other's place, because cargo keeps apart what is built with other features.
source "$(dirname "$0")/environment.sh"

config=$(find_pg_config) || die "no PostgreSQL server found: run scripts/setup.sh, or set PG_CONFIG"
version=$(server_version "$config")
stage=$CARGO_TARGET_DIR/stage-$version
cd "$project_root"

say "building the engine"
cargo build --release --locked --workspace --exclude pystachio >&2
say "building the extension for PostgreSQL $version"
PGRX_PG_CONFIG_PATH=$config cargo build --release --locked --package pystachio --no-default-features --features "pg$version" >&2
python3 scripts/check_sql.py "$CARGO_TARGET_DIR/release/libpystachio.so" >&2

rm -rf "$stage.new"
mkdir -p "$stage.new/lib" "$stage.new/extension"
cp "$CARGO_TARGET_DIR/release/libpystachio.so" "$stage.new/lib/pystachio.so"
cp "$CARGO_TARGET_DIR/release/pystachio-engine" "$stage.new/lib/"
cp pystachio.control sql/pystachio--*.sql "$stage.new/extension/"
rm -rf "$stage"
mv "$stage.new" "$stage"
printf '%s\n' "$stage"
