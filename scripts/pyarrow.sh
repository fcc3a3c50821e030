#!/usr/bin/env bash
# Makes a private environment with pyarrow, of the version that benches/requirements.txt names, and prints its Python.
source "$(dirname "$0")/environment.sh"

# Areas of the tests run side by side, and each may be the first that needs it.
mkdir -p "$cache_root"
exec 9> "$cache_root/python.lock"
flock 9

venv=$cache_root/core-venv
wanted=$(grep '^pyarrow==' "$project_root/benches/requirements.txt")
if [[ $(cat "$venv/installed" 2>/dev/null) != "$wanted" ]]; then
    say "making the private environment with pyarrow in $venv"
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check "$wanted" >&2
    printf '%s' "$wanted" > "$venv/installed"
fi
printf '%s\n' "$venv/bin/python"
