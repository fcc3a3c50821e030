#!/usr/bin/env bash
# Makes target/gpu: all that test-gpu.sh and the benchmarks need beside a checkout on a host with GPUs and with neither
# Rust, PostgreSQL nor a network.
#
# usage: [PARTS="pystachio postgres …"] scripts/gpu-archive.sh
#
# PARTS, by default "pystachio postgres tests writers duckdb", which test-gpu.sh and bench-gpu.sh need; bench-ranks.sh needs the first two,
# bench-shuffle.sh those and shuffle (for its steps checks and bench, shuffle alone). Each is one file, target/gpu/PART.tar.xz:
#   pystachio   what `make package` makes
#   postgres    PostgreSQL and its libraries; kept from an earlier run
#   tests       the executable tests of src/cuda
#   writers     files by other writers, for the differential suite of that name, from the seed of whole runs
#   duckdb      DuckDB for that host's Python, PYTHON_VERSION (3.12); kept from an earlier run
#   shuffle     the tests of exchanges between GPUs, and the benchmark of shuffles
# and target/gpu/build: commit, date and versions, for reports.
source "$(dirname "$0")/environment.sh"

read -ra parts <<< "${PARTS:-pystachio postgres tests writers duckdb}"
python_version=${PYTHON_VERSION:-3.12}
folder=$project_root/target/gpu
ARCHIVE_BYTES_MAX=$((60 << 20))
mkdir -p "$folder"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

find_nvcc > /dev/null || die "no nvcc found, and without it there are no CUDA kernels: run scripts/setup.sh, or set PYSTACHIO_NVCC"

# Packs the folder of a part that was made in the work folder: pack PART LEVEL.
pack() { tar -C "$work" --owner=0 --group=0 -cf - "$1" | xz -T0 "-$2" > "$folder/$1.tar.xz"; }

print_build() {
    local commit
    commit=$(git -C "$project_root" rev-parse --short=12 HEAD)
    git -C "$project_root" diff --quiet HEAD || commit+=" with changes"
    printf 'commit=%s\ndate=%s\n' "$commit" "$(date -u +%Y-%m-%dT%H:%MZ)"
}

make_pystachio() {
    "$project_root/scripts/package.sh"
    cp "$(ls -t "$project_root"/target/package/pystachio-*.tar.xz | sed -n 1p)" "$folder/pystachio.tar.xz"
}

make_postgres() { [[ -f $folder/postgres.tar.xz ]] || "$project_root/scripts/pack-postgres.sh" "$folder/postgres.tar.xz"; }

make_tests() {
    "$project_root/scripts/gpu-tests.sh" "$work/tests"
    # The tests have most of their code in common, which a window as large as they are finds.
    pack tests 9
}

make_writers() {
    python3 "$project_root/regress/differential/writers.py" "$work/writers" "$(test_seed 1)"
    pack writers 6
}

make_duckdb() {
    local wanted
    [[ ! -f $folder/duckdb.tar.xz ]] || return 0
    wanted=$(grep '^duckdb==' "$project_root/benches/requirements.txt")
    say "fetching $wanted for Python $python_version"
    mkdir "$work/wheel" "$work/duckdb"
    python3 -m venv "$work/venv"
    "$work/venv/bin/pip" download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --implementation cp \
        --python-version "$python_version" --platform manylinux_2_28_x86_64 --dest "$work/wheel" "$wanted" >&2
    # A wheel is a zip archive; xz makes it a third smaller.
    python3 -m zipfile -e "$work"/wheel/duckdb-*.whl "$work/duckdb"
    pack duckdb 6
}

make_shuffle() {
    "$project_root/scripts/shuffle-build.sh" "$work/shuffle"
    print_build > "$work/shuffle/build"
    pack shuffle 9
}

for part in "${parts[@]}"; do
    case $part in
        pystachio | postgres | tests | writers | duckdb | shuffle) ;;
        *) die "PARTS has $part: pystachio, postgres, tests, writers, duckdb, shuffle" ;;
    esac
done
for part in "${parts[@]}"; do "make_$part"; done
print_build > "$folder/build"
bytes=$(for part in "${parts[@]}"; do stat -c %s "$folder/$part.tar.xz"; done | awk '{ sum += $1 } END { print sum }')
say "made target/gpu (${parts[*]}): $bytes bytes"
[[ $bytes -le $ARCHIVE_BYTES_MAX ]] || die "the parts of target/gpu have $bytes bytes, more than $ARCHIVE_BYTES_MAX"
