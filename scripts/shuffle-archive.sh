#!/usr/bin/env bash
# Makes target/gpu/shuffle.tar.xz: the two programs that bench-shuffle.sh needs beside a checkout on a host with GPUs and without Rust: the
# tests of exchanges between GPUs, and the benchmark of shuffles.
source "$(dirname "$0")/environment.sh"

folder=$project_root/target/gpu
ARCHIVE_BYTES_MAX=$((30 << 20))
find_nvcc > /dev/null || die "no nvcc found, and without it there are no CUDA kernels: run scripts/setup.sh, or set PYSTACHIO_NVCC"
mkdir -p "$folder"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/shuffle"
"$project_root/scripts/shuffle-build.sh" "$work/shuffle"
{
    commit=$(git -C "$project_root" rev-parse --short=12 HEAD)
    git -C "$project_root" diff --quiet HEAD || commit+=" with changes"
    printf 'commit=%s\ndate=%s\n' "$commit" "$(date -u +%Y-%m-%dT%H:%MZ)"
} > "$work/shuffle/build"
# The programs have most of their code in common, which a window as large as they are finds.
tar -C "$work" --owner=0 --group=0 -cf - shuffle | xz -T0 -9 > "$folder/shuffle.tar.xz"
bytes=$(stat -c %s "$folder/shuffle.tar.xz")
say "made target/gpu/shuffle.tar.xz: $bytes bytes"
[[ $bytes -le $ARCHIVE_BYTES_MAX ]] || die "shuffle.tar.xz has $bytes bytes, more than $ARCHIVE_BYTES_MAX"
