#!/usr/bin/env bash
# Builds the extension and the engine in release mode and lays them out in a folder, whose path it prints.
#
#   <stage>/lib/pystachio.so  <stage>/lib/pystachio-engine  <stage>/extension/pystachio*
source "$(dirname "$0")/environment.sh"

config=$(find_pg_config) || die "no PostgreSQL server found: run scripts/setup.sh, or set PG_CONFIG"
version=$(server_version "$config")
stage=$CARGO_TARGET_DIR/stage-$version
packaged=$CARGO_TARGET_DIR/package-$version
# cargo-pgrx wants a home of its own. Its build script runs again whenever the file in it is missing or new.
export PGRX_HOME=${PGRX_HOME:-$cache_root/pgrx-$version}
mkdir -p "$PGRX_HOME"
wanted="[configs]
pg$version = \"$config\""
[[ -f $PGRX_HOME/config.toml && $(cat "$PGRX_HOME/config.toml") == "$wanted" ]] || printf '%s\n' "$wanted" > "$PGRX_HOME/config.toml"
cd "$project_root"

say "building the engine"
cargo build --release --locked --workspace --exclude pystachio >&2
say "building the extension for PostgreSQL $version"
PGRX_PG_CONFIG_PATH=$config cargo pgrx package --package pystachio --pg-config "$config" --out-dir "$packaged" \
    --no-default-features --features "pg$version" >&2

rm -rf "$stage.new"
mkdir -p "$stage.new/lib" "$stage.new/extension"
cp "$packaged$("$config" --pkglibdir)/pystachio.so" "$stage.new/lib/"
cp "$packaged$("$config" --sharedir)/extension/pystachio"* "$stage.new/extension/"
cp "$CARGO_TARGET_DIR/release/pystachio-engine" "$stage.new/lib/"
rm -rf "$stage"
mv "$stage.new" "$stage"
printf '%s\n' "$stage"
