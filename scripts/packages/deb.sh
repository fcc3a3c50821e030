# shellcheck shell=bash
# Packages of Debian and Ubuntu, in PGDG's names and places. Sourced by scripts/packages.sh.
#
#   pystachio-engine               /usr/lib/pystachio/pystachio-engine, documents
#   postgresql-<major>-pystachio   the extension, and a link to the engine beside it
#   …-dbgsym                       debug information of either

DEB_ENGINE=/usr/lib/pystachio/pystachio-engine

deb_version() { printf '%s-1' "$package_version"; }

# Prints which versions of libraries a binary needs: shared_libraries FILE.
shared_libraries() {
    mkdir -p "$work/shlibs/debian"
    printf 'Source: pystachio\n\nPackage: pystachio-engine\nArchitecture: any\n' > "$work/shlibs/debian/control"
    (cd "$work/shlibs" && dpkg-shlibdeps -O -e "$1" 2> "$work/shlibs/log") | sed -n 's/^shlibs:Depends=//p'
    if [[ -s $work/shlibs/log ]]; then grep -v 'diversion\|binaries to analyze' "$work/shlibs/log" >&2 || true; fi
}

# The text of a control file, but for what differs: control_file ROOT PACKAGE SECTION SUMMARY TEXT FIELD….
control_file() {
    local root=$1 package=$2 section=$3 synopsis=$4 text=$5
    shift 5
    mkdir -p "$root/DEBIAN"
    {
        printf 'Package: %s\nSource: pystachio\nVersion: %s\nArchitecture: %s\n' "$package" "$(deb_version)" "$(dpkg --print-architecture)"
        printf 'Maintainer: %s\nSection: %s\nPriority: optional\n' "$packager" "$section"
        printf 'Installed-Size: %s\n' "$(du -k --apparent-size -s "$root/usr" | cut -f1)"
        printf '%s\n' "$@"
        printf 'Description: %s\n' "$synopsis"
        fold -s -w 78 <<< "$text" | sed 's/ *$//; s/^$/./; s/^/ /'
    } > "$root/DEBIAN/control"
    (cd "$root" && find usr -type f -print0 | sort -z | xargs -0 -r md5sum > DEBIAN/md5sums)
}

deb_documents() {
    local root=$1 package=$2
    mkdir -p "$root/usr/share/doc/$package"
    {
        printf 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: pystachio\n'
        printf 'Comment: The binaries have crates of others in them, whose licences are in\n'
        printf ' /usr/share/doc/pystachio-engine/THIRD-PARTY.gz.\n\n'
        printf 'Files: *\nCopyright: %s pystachio contributors\nLicense: Apache-2.0\n' "$(date -u +%Y -d "@$SOURCE_DATE_EPOCH")"
        printf ' On Debian systems, the text of the Apache License, version 2.0, is in\n /usr/share/common-licenses/Apache-2.0.\n'
    } > "$root/usr/share/doc/$package/copyright"
    printf 'pystachio (%s) unstable; urgency=medium\n\n  * Version %s. What has changed is in CHANGELOG.md of the sources.\n\n -- %s  %s\n' \
        "$(deb_version)" "$package_version" "$packager" "$(date -u -R -d "@$SOURCE_DATE_EPOCH")" |
        gzip -9n > "$root/usr/share/doc/$package/changelog.Debian.gz"
    override "$root" "$package" "# These are packages of the project's own, which are not uploaded to Debian." "$package: initial-upload-closes-no-bugs *"
}

# Says where a finding of lintian is meant: override ROOT PACKAGE LINE….
override() {
    local root=$1 package=$2
    shift 2
    mkdir -p "$root/usr/share/lintian/overrides"
    printf '%s\n' "$@" > "$root/usr/share/lintian/overrides/$package"
}

pack_deb() {
    local root=$1
    settle "$root"
    dpkg-deb --root-owner-group -Zxz "-z$level" --build "$root" "$out" >&2
}

make_dbgsym() {
    local package=$1 debug=$2 root=$work/deb/$1-dbgsym ids
    mkdir -p "$root/usr/lib/debug" "$root/usr/share/doc"
    cp -r "$debug/.build-id" "$root/usr/lib/debug/"
    ln -s "$package" "$root/usr/share/doc/$package-dbgsym"
    ids=$(find "$debug" -name '*.debug' | sed -E 's#.*/(..)/(.*)\.debug#\1\2#' | sort | paste -sd ' ')
    control_file "$root" "$package-dbgsym" debug "debug symbols for $package" "Function names and lines of what $package installs, for debuggers." \
        "Depends: $package (= $(deb_version))" "Auto-Built-Package: debug-symbols" "Build-Ids: $ids"
    pack_deb "$root"
}

make_deb_engine() {
    local root=$work/deb/pystachio-engine
    lay_engine "$root" "$DEB_ENGINE" /usr/share/doc/pystachio-engine
    deb_documents "$root" pystachio-engine
    control_file "$root" pystachio-engine database "columnar engine of pystachio" "$description

This package has the engine, which is the same for all versions of PostgreSQL. GPUs need NVIDIA's driver for CUDA 13; without one queries run on processors." \
        "Depends: $(shared_libraries "$root$DEB_ENGINE")"
    pack_deb "$root"
    make_dbgsym pystachio-engine "$work/debug/engine"
}

make_deb_extension() {
    local major=$1 package=postgresql-$1-pystachio
    local root=$work/deb/$package
    lay_extension "$root" "$major" "/usr/lib/postgresql/$major/lib" "/usr/share/postgresql/$major" "$DEB_ENGINE"
    deb_documents "$root" "$package"
    control_file "$root" "$package" database "$summary" "$description

This package has the extension for PostgreSQL $major. Add pystachio to shared_preload_libraries, restart the server, and run CREATE EXTENSION pystachio." \
        "Depends: postgresql-$major, pystachio-engine (= $(deb_version)), $(shared_libraries "$root/usr/lib/postgresql/$major/lib/pystachio.so")"
    pack_deb "$root"
    make_dbgsym "$package" "$work/debug/$major"
}

make_deb() {
    local major
    command -v dpkg-shlibdeps > /dev/null || die "dpkg-shlibdeps is missing: install dpkg-dev"
    make_deb_engine
    for major in "${versions[@]}"; do make_deb_extension "$major"; done
}
