#!/usr/bin/env bash
# Builds the extension and the engine and lays them out in a folder, whose path it prints.
#
#   <stage>/lib/pystachio.so  <stage>/lib/pystachio-engine  <stage>/extension/pystachio*
#
# PYSTACHIO_PROFILE=packages builds what `make packages` packs: with no path of this machine in it, so that another build can
# give the same bytes. It compiles everything anew; `release` is the default.
#
# The extension for another PostgreSQL than the one that is found by itself has a build folder of its own: cargo gives
# the library one name whatever it was built for, and would compile the extension anew at every change of the version.
source "$(dirname "$0")/environment.sh"

config=$(find_pg_config) || die "no PostgreSQL server found: run scripts/setup.sh, or set PG_CONFIG"
version=$(server_version "$config")
profile=${PYSTACHIO_PROFILE:-release}
own=$CARGO_TARGET_DIR
if [[ $config != "$(unset PG_CONFIG && find_pg_config || true)" ]]; then own=$CARGO_TARGET_DIR/pg$version; fi
stage=$own/stage-$version
if [[ $profile != release ]]; then stage=$own/stage-$profile-$version; fi
mapfile -t selection < <(workspace_selection "$version")
selection+=(--profile "$profile" --exclude pystachio-fuzz --exclude pystachio-cases)
cd "$project_root"
prepare_target

# Names that say what a path is instead of where it lies here, for the compilers of Rust and of C.
use_neutral_paths() {
    local home=${CARGO_HOME:-$HOME/.cargo} registry rust=() c=()
    rust+=("--remap-path-prefix=$home=/usr/src/cargo" "--remap-path-prefix=$CARGO_TARGET_DIR=/usr/src/target")
    rust+=("--remap-path-prefix=$project_root=/usr/src/pystachio")
    # A mirror has a folder of another name. Of the prefixes that fit, the last one counts.
    for registry in "$home"/registry/src/*/; do rust+=("--remap-path-prefix=${registry%/}=/usr/src/crates"); done
    for registry in "${rust[@]}"; do c+=("-ffile-prefix-map=${registry#--remap-path-prefix=}"); done
    export PYSTACHIO_CUDA_LINEINFO=0
    export RUSTFLAGS="${RUSTFLAGS:-} ${rust[*]}" CFLAGS="${CFLAGS:-} ${c[*]}" CXXFLAGS="${CXXFLAGS:-} ${c[*]}"
}

case $profile in
    release) ;;
    packages) use_neutral_paths ;;
    *) die "PYSTACHIO_PROFILE=$profile is no profile: release, packages" ;;
esac
export PGRX_PG_CONFIG_PATH=$config
if [[ $own == "$CARGO_TARGET_DIR" ]]; then
    say "building the engine and the extension for PostgreSQL $version"
    cargo build "${selection[@]}" >&2
else
    say "building the engine"
    cargo build "${selection[@]}" --bin pystachio-engine >&2
    say "building the extension for PostgreSQL $version"
    cargo build --profile "$profile" --locked --package pystachio --no-default-features --features "pg$version" --target-dir "$own" >&2
fi
python3 scripts/check_sql.py "$own/$profile/libpystachio.so" >&2

# Another run may build into the same folder, or be taking what is there (with the lock shared).
exec 9> "$stage.lock"
flock 9
rm -rf "$stage.new"
mkdir -p "$stage.new/lib" "$stage.new/extension"
cp "$own/$profile/libpystachio.so" "$stage.new/lib/pystachio.so"
cp "$CARGO_TARGET_DIR/$profile/pystachio-engine" "$stage.new/lib/"
cp pystachio.control sql/pystachio--*.sql "$stage.new/extension/"
rm -rf "$stage"
mv "$stage.new" "$stage"
printf '%s\n' "$stage"
