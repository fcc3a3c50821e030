#!/usr/bin/env bash
# Makes target/gpu: all that test-gpu.sh and bench-gpu.sh need beside a checkout on a host with a GPU and with neither
# Rust, PostgreSQL nor a network.
#
#   target/gpu/pystachio.tar.xz   what `make package` makes
#   target/gpu/postgres.tar.xz    PostgreSQL and its libraries; kept from an earlier run
#   target/gpu/tests.tar.xz       the executable tests of src/cuda
#   target/gpu/writers.tar.xz     files by other writers, for the differential suite of that name, from the seed of whole runs
#   target/gpu/duckdb.tar.xz      DuckDB for that host's Python, PYTHON_VERSION (3.12); kept from an earlier run
#   target/gpu/build              commit, date and versions, for reports
source "$(dirname "$0")/environment.sh"

python_version=${PYTHON_VERSION:-3.12}
folder=$project_root/target/gpu
ARCHIVE_BYTES_MAX=$((60 << 20))
mkdir -p "$folder"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

find_nvcc > /dev/null || die "no nvcc found, and without it there are no CUDA kernels: run scripts/setup.sh, or set PYSTACHIO_NVCC"
[[ -f $folder/postgres.tar.xz ]] || "$project_root/scripts/pack-postgres.sh" "$folder/postgres.tar.xz"

if [[ ! -f $folder/duckdb.tar.xz ]]; then
    wanted=$(grep '^duckdb==' "$project_root/benches/requirements.txt")
    say "fetching $wanted for Python $python_version"
    mkdir "$work/wheel" "$work/duckdb"
    python3 -m venv "$work/venv"
    "$work/venv/bin/pip" download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --implementation cp \
        --python-version "$python_version" --platform manylinux_2_28_x86_64 --dest "$work/wheel" "$wanted" >&2
    # A wheel is a zip archive; xz makes it a third smaller.
    python3 -m zipfile -e "$work"/wheel/duckdb-*.whl "$work/duckdb"
    tar -C "$work" --owner=0 --group=0 -cf - duckdb | xz -T0 -6 > "$folder/duckdb.tar.xz"
fi

"$project_root/scripts/package.sh"
cp "$(ls -t "$project_root"/target/package/pystachio-*.tar.xz | head -n 1)" "$folder/pystachio.tar.xz"

"$project_root/scripts/gpu-tests.sh" "$work/tests"
# The tests have most of their code in common, which a window as large as they are finds.
tar -C "$work" --owner=0 --group=0 -cf - tests | xz -T0 -9 > "$folder/tests.tar.xz"

python3 "$project_root/regress/differential/writers.py" "$work/writers" "$(test_seed 1)"
tar -C "$work" --owner=0 --group=0 -cf - writers | xz -T0 -6 > "$folder/writers.tar.xz"

{
    commit=$(git -C "$project_root" rev-parse --short=12 HEAD)
    git -C "$project_root" diff --quiet HEAD || commit+=" with changes"
    printf 'commit=%s\ndate=%s\n' "$commit" "$(date -u +%Y-%m-%dT%H:%MZ)"
} > "$folder/build"
bytes=$(du -cb "$folder"/*.tar.xz | awk 'END { print $1 }')
say "made target/gpu: $bytes bytes"
[[ $bytes -le $ARCHIVE_BYTES_MAX ]] || die "target/gpu has $bytes bytes, more than $ARCHIVE_BYTES_MAX"
