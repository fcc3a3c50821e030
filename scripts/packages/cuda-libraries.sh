#!/usr/bin/env bash
# Puts the CUDA libraries that the engine opens at run time into a folder, with their licences: NCCL, cuFile, nvCOMP, in the versions of
# cuda-<architecture>.txt, from PyPI. The driver is the host's.
#
# usage: scripts/packages/cuda-libraries.sh FOLDER
source "$(dirname "$0")/../environment.sh"

folder=$(realpath -m "${1:?usage: cuda-libraries.sh FOLDER}")
versions=$project_root/scripts/packages/cuda-$(uname -m).txt
[[ -f $versions ]] || die "there are no CUDA libraries for $(uname -m): $versions is missing"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$folder/licenses"
python3 -m venv "$work/venv" || die "python3 -m venv failed; on Debian it is in python3-venv"
"$work/venv/bin/pip" download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes --requirement "$versions" \
    --dest "$work/wheels" >&2
for wheel in "$work"/wheels/*.whl; do
    rm -rf "$work/wheel"
    python3 -m zipfile -e "$wheel" "$work/wheel"
    # The parts for network cards and for compression on processors are not needed.
    find "$work/wheel/nvidia" -name 'lib*.so*' ! -name '*rdma*' ! -name '*_cpu.so*' -exec install -m 0644 -t "$folder" {} +
    name=$(basename "${wheel%%-*}")
    find "$work/wheel" -path '*dist-info/licenses/*' -iname '*license*' -type f -exec cp {} "$folder/licenses/$name.txt" \;
    [[ -f $folder/licenses/$name.txt ]] || die "$(basename "$wheel") has no licence, without which its library can't be passed on"
done
