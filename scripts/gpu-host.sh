# shellcheck shell=bash
# What bench-gpu.sh, bench-ranks.sh and test-gpu.sh run on: this clone's own build, or target/gpu unpacked where there is no cargo
# (or PYSTACHIO_FROM_ARCHIVE=1). Sourced by them, after environment.sh.
#
# Sets stage (the extension and the engine, as build.sh lays them out), test_folder (tests of src/cuda, or empty) and
# peer_python (a Python that has DuckDB, or where that part is not asked for pyarrow); exports PG_CONFIG and paths.

archive=$project_root/target/gpu

# Unpacks archives of target/gpu that are newer than what an earlier run unpacked: unpack_archive PART…
unpack_archive() {
    local name
    mkdir -p "$unpacked"
    chmod 0755 "$unpacked"
    for name in "$@"; do
        [[ -f $archive/$name.tar.xz ]] || die "$archive/$name.tar.xz is missing: run make gpu-archive where there is cargo"
        if ! cmp -s <(cksum < "$archive/$name.tar.xz") "$unpacked/$name.cksum"; then
            rm -rf "${unpacked:?}/$name" "$unpacked/$name.cksum"
            mkdir "$unpacked/$name"
            # The archive's one folder is named for the version.
            tar -C "$unpacked/$name" --strip-components=1 -xJf "$archive/$name.tar.xz"
            chmod -R a+rX "$unpacked/$name"
            cksum < "$archive/$name.tar.xz" > "$unpacked/$name.cksum"
        fi
    done
}

# What the host has of the server's libraries is left to the host: its own programs read LD_LIBRARY_PATH too.
use_postgres() {
    local root=$unpacked/postgres bin library known
    known=$(ldconfig -p)
    for library in "$root"/libraries/*; do
        if [[ $known == *[[:space:]]"$(basename "$library") "* ]]; then rm -f "$library"; fi
    done
    bin=$root$(< "$root/bindir")
    if [[ ! -e /usr/share/zoneinfo/UTC && $(id -u) == 0 ]]; then
        mkdir -p /usr/share/zoneinfo
        cp -r "$root/usr/share/zoneinfo/." /usr/share/zoneinfo/
    fi
    export PG_CONFIG=$bin/pg_config PATH=$bin:$PATH LD_LIBRARY_PATH=$root/libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
}

# prepare_host [PART…]: the parts of target/gpu that are needed; all by default.
prepare_host() {
    local config
    if [[ ${PYSTACHIO_FROM_ARCHIVE:-0} != 1 ]] && command -v cargo > /dev/null; then
        "$project_root/scripts/setup.sh"
        stage=$("$project_root/scripts/build.sh")
        test_folder=
        if [[ $# == 0 || " $* " == *" duckdb "* ]]; then
            peer_python=$("$project_root/scripts/peers.sh")
        else
            peer_python=$("$project_root/scripts/pyarrow.sh")
        fi
        config=$(find_pg_config)
        export PG_CONFIG=$config
        return
    fi
    make_server_user
    unpacked=$(state_root)/gpu-host
    if [[ $# == 0 ]]; then set -- pystachio postgres duckdb tests writers; fi
    unpack_archive "$@"
    use_postgres
    stage=$unpacked/pystachio
    test_folder=$unpacked/tests
    peer_python=${PYTHON:-python3}
    export PYTHONPATH=$unpacked/duckdb${PYTHONPATH:+:$PYTHONPATH}
}

# Prints what was built: commit and date, one NAME=VALUE a line.
build_facts() {
    if [[ -n ${unpacked:-} ]]; then
        cat "$archive/build"
    else
        printf 'commit=%s\ndate=%s\n' "$(git -C "$project_root" describe --always --dirty 2> /dev/null || echo unknown)" \
            "$(date -u +%Y-%m-%dT%H:%MZ)"
    fi
}
