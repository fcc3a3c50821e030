# shellcheck shell=bash
# What all packages are made of: versions and names, the binaries without their debug information, that information, licences, documents.
# Sourced by scripts/packages.sh, which sets `versions`, `work` and `out`.
#
#   $work/binaries/pystachio-engine      $work/binaries/<major>/pystachio.so     stripped
#   $work/debug/engine/.build-id/…       $work/debug/<major>/.build-id/…         what was stripped, under names that debuggers look for
#   $work/materials/                     lists of what is in the binaries (CycloneDX), THIRD-PARTY: the texts of licences

SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$project_root" log -1 --format=%ct)}
export SOURCE_DATE_EPOCH LC_ALL=C.UTF-8 TZ=UTC
package_version=$(workspace_version)
packager=${PYSTACHIO_PACKAGER:-pystachio maintainers <pystachio@users.noreply.github.com>}
summary="SQL over Parquet files in a columnar engine, on processors and GPUs"
description="pystachio is a PostgreSQL extension whose foreign tables are Parquet files. Scans,
joins, aggregates and sorts run as one plan in an engine outside the server, on
processors or on NVIDIA GPUs, with PostgreSQL's own results."

# Prints the folder with the build for a version, and builds it where STAGES names none.
stage_of() {
    local config
    if [[ -n ${STAGES:-} ]]; then
        [[ -x $STAGES/$1/lib/pystachio-engine ]] || die "STAGES=$STAGES has no build for PostgreSQL $1: $STAGES/$1/lib/pystachio-engine"
        realpath "$STAGES/$1"
        return
    fi
    config=$("$project_root/scripts/servers.sh" "$1" | cut -d' ' -f2)
    PG_CONFIG=$config "$project_root/scripts/build.sh"
}

# Copies a binary to where nothing is left of the folder that it was built in: optimising over all crates names the symbols that it makes
# global by a digest of paths (*.llvm.*), which no debugger needs, and the build id is of all bytes. without_folder SOURCE TARGET.
without_folder() {
    local source=$1 target=$2 note=$2.note
    objcopy --wildcard --strip-symbol='*.llvm.*' "$source" "$target"
    # Sizes of name and id, the kind, the name; the id is of the bytes without it.
    { printf '\4\0\0\0\24\0\0\0\3\0\0\0GNU\0'; head -c 20 /dev/zero; } > "$note"
    objcopy --update-section ".note.gnu.build-id=$note" "$target"
    { head -c 16 "$note"; sha1sum "$target" | cut -c1-40 | sed 's/../\\x&/g' | xargs -0 printf '%b' | head -c 20; } > "$note.new"
    objcopy --update-section ".note.gnu.build-id=$note.new" "$target"
    rm "$note" "$note.new"
}

# Copies a binary without its debug information, and that apart: split_debug SOURCE TARGET DEBUG_FOLDER.
split_debug() {
    local source target=$2 folder=$3 id name
    grep -q 'Build ID: [0-9a-f]\{40\}$' <<< "$(LC_ALL=C readelf -n "$1")" ||
        die "$1 has no build id of 20 bytes, by which debuggers find what is stripped: link with --build-id"
    source=$2.neutral
    mkdir -p "$(dirname "$target")"
    without_folder "$1" "$source"
    id=$(LC_ALL=C readelf -n "$source" | sed -n 's/^ *Build ID: //p')
    name=$folder/.build-id/${id:0:2}/${id:2}.debug
    mkdir -p "$(dirname "$name")"
    objcopy --only-keep-debug --compress-debug-sections=zlib "$source" "$name"
    strip --strip-unneeded --remove-section=.comment -o "$target" "$source"
    chmod 0644 "$name"
    rm "$source"
}

# Fails where a binary names a folder of the machine that built it; what `release` builds does.
check_paths() {
    local file=$1 path
    [[ $PYSTACHIO_PROFILE == packages && -z ${STAGES:-} ]] || return 0
    for path in "$project_root" "${CARGO_HOME:-$HOME/.cargo}" "$CARGO_TARGET_DIR"; do
        ! grep -aqF "$path/" "$file" || die "$file names $path: what is packed has to be the same wherever it was built"
    done
}

prepare_binaries() {
    local major stage engine=
    for major in "${versions[@]}"; do
        stage=$(stage_of "$major")
        check_paths "$stage/lib/pystachio.so"
        split_debug "$stage/lib/pystachio.so" "$work/binaries/$major/pystachio.so" "$work/debug/$major"
        mkdir -p "$work/extension"
        cp "$stage"/extension/* "$work/extension/"
        if [[ -z $engine ]]; then
            engine=$stage/lib/pystachio-engine
            check_paths "$engine"
            split_debug "$engine" "$work/binaries/pystachio-engine" "$work/debug/engine"
        fi
        cmp -s "$engine" "$stage/lib/pystachio-engine" ||
            die "the engines in $stage/lib and $(dirname "$engine") differ: build all versions from one commit, with one compiler"
    done
    mkdir -p "$work/materials"
    python3 "$project_root/scripts/packages/materials.py" "$work/materials" "${versions[0]}"
}

# Puts the extension for a version below a root, with its link to the engine: lay_extension ROOT MAJOR LIBRARIES SHARE ENGINE.
lay_extension() {
    local root=$1 major=$2 libraries=$3 share=$4 engine=$5
    install -D -m 0644 "$work/binaries/$major/pystachio.so" "$root$libraries/pystachio.so"
    # A link that holds below any root.
    ln -sr "$root$engine" "$root$libraries/pystachio-engine"
    install -D -m 0644 -t "$root$share/extension" "$work"/extension/*
}

# Puts the engine and the documents below a root: lay_engine ROOT ENGINE DOCUMENTS.
lay_engine() {
    local root=$1 engine=$2 documents=$3
    install -D -m 0755 "$work/binaries/pystachio-engine" "$root$engine"
    install -D -m 0644 -t "$root$documents" "$project_root"/{README,SECURITY}.md "$work/materials/THIRD-PARTY"
    install -D -m 0644 -t "$root$documents/docs" "$project_root"/docs/*.md
    install -D -m 0644 -t "$root$documents/docs/images" "$project_root"/docs/images/*
    gzip -9n "$root$documents/THIRD-PARTY"
}

# One mode for all files and one time, whatever the packer's umask.
settle() {
    chmod -R u=rwX,go=rX "$1"
    find "$1" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
}
