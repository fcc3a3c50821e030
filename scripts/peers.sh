#!/usr/bin/env bash
# Makes the private environment of the systems that benchmarks compare with, and prints its Python.
source "$(dirname "$0")/environment.sh"

# Areas of the tests run side by side, and each may be the first that needs it.
mkdir -p "$cache_root"
exec 9> "$cache_root/python.lock"
flock 9

venv=$cache_root/bench-venv
requirements=$project_root/benches/requirements.txt
if [[ ! -f $venv/installed ]] || ! cmp -s "$requirements" "$venv/installed"; then
    say "making the peers' private environment in $venv"
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$requirements" >&2
    cp "$requirements" "$venv/installed"
fi
printf '%s\n' "$venv/bin/python"
