#!/usr/bin/env bash
# Makes a private environment with moto, a server that speaks S3, and prints its Python.
source "$(dirname "$0")/environment.sh"

# Areas of the tests run side by side, and each may be the first that needs it.
mkdir -p "$cache_root"
exec 9> "$cache_root/moto.lock"
flock 9

venv=$cache_root/moto-venv
wanted="moto[s3,server]==5.2.5"
if [[ $(cat "$venv/installed" 2>/dev/null) != "$wanted" ]]; then
    say "making the private environment with moto in $venv"
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check "$wanted" >&2
    printf '%s' "$wanted" > "$venv/installed"
fi
printf '%s\n' "$venv/bin/python"
