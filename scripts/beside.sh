#!/usr/bin/env bash
# Fetches what the tests run beside pystachio (extensions, drivers, PgBouncer, sqlsmith) into the cache folder. Installs nothing
# in the system. Prints a line of tab-separated fields for each:
#
#   have     NAME  VERSION  PATH       PATH: a Python, a program, a folder of node's modules, or the root of an unpacked package
#   skipped  NAME  -        REASON
#
# usage: scripts/beside.sh [NAME]…     by default all of them
#
# Extensions are Debian's packages for the server's major version. One that the server has already is not fetched. A package of
# Debian 13 is taken for a server that the machine's Debian does not have, if the machine's C library can load it.
source "$(dirname "$0")/environment.sh"

# Extensions by the name of their library, and their packages without the server's version.
declare -A EXTENSIONS=([pg_cron]=cron [pgaudit]=pgaudit [hypopg]=hypopg [pg_qualstats]=pg-qualstats [pg_stat_kcache]=pg-stat-kcache
    [pg_wait_sampling]=pg-wait-sampling [plpgsql_check]=plpgsql-check [set_user]=set-user [pg_hint_plan]=pg-hint-plan
    [timescaledb]=timescaledb [citus]=citus)
# Programs, the file to run, and the packages: libraries that a bare machine lacks are fetched too.
declare -A PROGRAMS=([pgbouncer]="usr/sbin/pgbouncer pgbouncer libc-ares2 libevent-2.1-7" [sqlsmith]="usr/bin/sqlsmith sqlsmith libpqxx-6.4")
PYTHONS=(drivers dbt)
NODE_PACKAGES=(pg@8.23.1 pg-cursor@2.22.1 pg-copy-streams@7.0.0)
DEBIAN_KEYS=/usr/share/keyrings/debian-archive-keyring.gpg
NEXT_SUITE=trixie

config=$(find_pg_config) || die "no PostgreSQL server found: run scripts/setup.sh, or set PG_CONFIG"
major=$(server_version "$config")
folder=$cache_root/beside
wanted=("$@")
[[ $# -gt 0 ]] || wanted=("${!EXTENSIONS[@]}" "${!PROGRAMS[@]}" "${PYTHONS[@]}" node)
mapfile -t wanted < <(printf '%s\n' "${wanted[@]}" | sort)

have() { printf 'have\t%s\t%s\t%s\n' "$1" "$2" "$3"; }
skip() { printf 'skipped\t%s\t-\t%s\n' "$1" "$2"; }

# Makes lists of our own, of the machine's mirrors, once a day: own_lists SUITE….
own_lists() {
    local mirror suite
    [[ -z $(find "$folder/apt/sources.list" -mtime -1 2> /dev/null) ]] || return 0
    [[ -f $DEBIAN_KEYS ]] || return 1
    mkdir -p "$folder/apt"
    mirror=$(debian_mirrors | grep '/debian$' | sed -n 1p)
    [[ -n $mirror ]] || return 1
    for suite in "$@"; do printf 'deb [signed-by=%s] %s %s main\n' "$DEBIAN_KEYS" "$mirror" "$suite"; done > "$folder/apt/sources.list"
    apt_apart "$folder/apt" apt-get update >&2 || { rm "$folder/apt/sources.list"; return 1; }
}

# Downloads a package into the current folder. Lists of our own are made only where the machine has none, or none with this server.
download() {
    local package=$1
    if apt-cache show "$package" > /dev/null 2>&1; then
        apt-get -qq -o APT::Sandbox::User="$(id -un)" download "$package" >&2
    elif apt-cache show "postgresql-$major" > /dev/null 2>&1; then
        return 1
    else
        own_lists "$(. /etc/os-release && printf '%s' "${VERSION_CODENAME:-$NEXT_SUITE}")" "$NEXT_SUITE" &&
            apt_apart "$folder/apt" apt-get download "$package" >&2
    fi
}

# Unpacks a package into a folder: unpack PACKAGE FOLDER.
unpack() {
    local package=$1 to=$2 work outcome=0
    work=$(mktemp -d "$folder/fetch-XXXXXX")
    (cd "$work" && download "$package") || outcome=1
    if [[ $outcome == 0 ]]; then
        mkdir -p "$to"
        dpkg -x "$work"/*.deb "$to" && dpkg-deb -f "$work"/*.deb Version > "$to/version-$package"
    fi
    rm -rf "$work"
    return "$outcome"
}

# What keeps a file from being loaded here, libraries in FOLDER included: unloadable FILE FOLDER.
unloadable() {
    LD_LIBRARY_PATH=$2 ldd "$1" 2>&1 | sed -nE "s/.*(version \`[^']*' not found).*/\1/p; s/^\t([^ ]*) => (not found)$/\1 \2/p" | sed -n 1p
}

extension() {
    local name=$1 package=postgresql-$major-${EXTENSIONS[$1]} root=$folder/debian-$major/$1 library why
    if [[ -f $("$config" --pkglibdir)/$name.so ]]; then
        have "$name" "$(sed -nE "s/^default_version *= *'(.*)'/\1/p" "$("$config" --sharedir)/extension/$name.control")" /
        return
    fi
    if [[ ! -f $root/version-$package ]]; then
        rm -rf "$root"
        unpack "$package" "$root" || { skip "$name" "the server does not have it, and Debian has no package $package"; return; }
    fi
    library=$(find "$root" -name "$name*.so" | sed -n 1p)
    why=$(unloadable "$library" "$root")
    if [[ -n $why ]]; then skip "$name" "$package: $why"; else have "$name" "$(< "$root/version-$package")" "$root"; fi
}

program() {
    local name=$1 root=$folder/debian/$1 file packages package why libraries
    read -r file packages <<< "${PROGRAMS[$1]}"
    if command -v "$name" > /dev/null; then
        have "$name" "$("$name" --version 2>&1 | sed -n 1p)" "$(command -v "$name")"
        return
    fi
    for package in $packages; do
        [[ -f $root/version-$package ]] || unpack "$package" "$root" || { skip "$name" "Debian has no package $package"; return; }
    done
    libraries=$root/usr/lib/x86_64-linux-gnu
    why=$(unloadable "$root/$file" "$libraries")
    [[ -z $why ]] || { skip "$name" "$name: $why"; return; }
    # A program that finds the libraries that were fetched with it, wherever the folder is copied to.
    printf '#!/bin/sh\nhere=$(dirname "$0")\nLD_LIBRARY_PATH=$here/%s exec "$here/%s" "$@"\n' "${libraries#"$root/"}" "$file" > "$root/$name"
    chmod -R a+rX "$root"
    chmod a+x "$root/$name"
    have "$name" "$(< "$root/version-$name")" "$root/$name"
}

# A private environment of the packages that regress/beside/NAME.txt lists.
python_environment() {
    local name=$1 venv=$folder/$1-venv requirements=$project_root/regress/beside/$1.txt
    if [[ ! -f $venv/installed ]] || ! cmp -s "$requirements" "$venv/installed"; then
        say "making the private environment of Python packages in $venv"
        rm -rf "$venv"
        if ! { python3 -m venv "$venv" && "$venv/bin/pip" install --quiet --disable-pip-version-check --only-binary=:all: -r "$requirements"; } >&2; then
            skip "$name" "the Python packages of regress/beside/$name.txt could not be installed"
            return
        fi
        cp "$requirements" "$venv/installed"
    fi
    have "$name" "$(tr '\n' ' ' < "$requirements" | sed 's/ $//')" "$venv/bin/python"
}

node_modules() {
    local modules=$folder/node
    if ! command -v node > /dev/null || ! command -v npm > /dev/null; then
        skip node "there is no node or no npm here"
        return
    fi
    if [[ $(cat "$modules/installed" 2> /dev/null) != "${NODE_PACKAGES[*]}" ]]; then
        say "installing node's PostgreSQL client in $modules"
        rm -rf "$modules"
        mkdir -p "$modules"
        if ! npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$modules" "${NODE_PACKAGES[@]}" >&2; then
            skip node "npm could not install ${NODE_PACKAGES[*]}"
            return
        fi
        printf '%s' "${NODE_PACKAGES[*]}" > "$modules/installed"
    fi
    have node "$(node --version) ${NODE_PACKAGES[*]}" "$modules/node_modules"
}

# Areas of the tests run side by side, and each may be the first that needs them.
mkdir -p "$folder"
exec 9> "$folder/lock"
flock 9
for name in "${wanted[@]}"; do
    if [[ $name == node ]]; then
        node_modules
    elif [[ " ${PYTHONS[*]} " == *" $name "* ]]; then
        python_environment "$name"
    elif ! command -v apt-get > /dev/null || ! command -v dpkg > /dev/null; then
        skip "$name" "there is no apt-get here"
    elif [[ -n ${PROGRAMS[$name]:-} ]]; then
        program "$name"
    elif [[ -n ${EXTENSIONS[$name]:-} ]]; then
        extension "$name"
    else
        die "'$name' is none of: ${!EXTENSIONS[*]} ${!PROGRAMS[*]} ${PYTHONS[*]} node"
    fi
done
