#!/usr/bin/env bash
# Makes the private environment of the systems that benchmarks compare with, and prints its Python.
source "$(dirname "$0")/environment.sh"

venv=$cache_root/bench-venv
requirements=$project_root/benches/requirements.txt
if [[ ! -f $venv/installed ]] || ! cmp -s "$requirements" "$venv/installed"; then
    say "making the peers' private environment in $venv"
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$requirements" >&2
    cp "$requirements" "$venv/installed"
fi
printf '%s\n' "$venv/bin/python"
