#!/usr/bin/env bash
# Gets Debian's source package of a PostgreSQL and unpacks it; prints the folder with the sources. Nothing is installed, and
# the machine's package lists stay as they are. The newest that can be had: a mirror may not have all that its list names.
#
# usage: scripts/postgres-source.sh VERSION FOLDER     FOLDER is made, and must not hold sources of another version
source "$(dirname "$0")/environment.sh"

[[ $# == 2 ]] || die "usage: postgres-source.sh VERSION FOLDER"
version=$1
mkdir -p "$2"
folder=$(cd "$2" && pwd)

unpacked() { find "$folder" -maxdepth 1 -type d -name "postgresql-$version-$version.*" | sort -V | tail -n 1; }

if [[ -z $(unpacked) ]]; then
    command -v apt-get >/dev/null || die "Debian's source package is needed, and there is no apt-get here"
    for mirror in $(debian_mirrors); do
        for suite in bookworm bookworm-updates bookworm-security trixie trixie-updates trixie-security forky; do
            # A mirror of security updates has their suites, and others have none of them.
            if [[ ${mirror%/} == *-security ]]; then [[ $suite == *-security ]] || continue; else [[ $suite != *-security ]] || continue; fi
            printf 'deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s main\n' "$mirror" "$suite"
        done
    done > "$folder/sources.list"
    apt_apart "$folder" apt-get update >&2 || say "some of Debian's lists can't be had; going on with the others"
    mapfile -t known < <(apt_apart "$folder" apt-cache showsrc "postgresql-$version" 2>/dev/null | sed -n 's/^Version: *//p' | sort -Vru)
    [[ ${#known[@]} -gt 0 ]] || die "no source package postgresql-$version: Debian's releases that can be had are without it"
    cd "$folder"
    for candidate in "${known[@]}"; do
        if apt_apart "$folder" apt-get source --download-only "postgresql-$version=$candidate" >&2; then break; fi
        say "postgresql-$version $candidate can't be had; trying the one before it"
    done
    archive=$(find . -maxdepth 1 -name "postgresql-${version}_*.orig.tar.*" ! -name '*.asc' | sort -V | tail -n 1)
    [[ -n $archive ]] || die "no source package of postgresql-$version could be had"
    # The sources as PostgreSQL releases them: Debian's patches are about paths only.
    mkdir unpacking
    tar -xf "$archive" -C unpacking
    name=$(basename "$archive")
    name=${name#*_}
    mv unpacking/* "postgresql-$version-${name%.orig.tar.*}"
    rm -rf unpacking
fi
unpacked
