#!/usr/bin/env bash
# Packs this host's PostgreSQL with the libraries that it needs, for hosts without one.
#
# usage: scripts/pack-postgres.sh OUT.tar.xz
#
# The archive keeps the server's folders below `usr`, where its programs find each other wherever it is unpacked,
# pg_regress among them; `libraries` goes into LD_LIBRARY_PATH. Left out: what every glibc host has, LLVM (the
# server's just-in-time compiler is off without it), bitcode.
source "$(dirname "$0")/environment.sh"

[[ $# == 1 ]] || die "usage: pack-postgres.sh OUT.tar.xz"
out=$(realpath -m "$1")
config=$(find_pg_config) || die "no PostgreSQL server found: run scripts/setup.sh, or set PG_CONFIG"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
root=$folder/postgres
mkdir -p "$root/libraries" "$(dirname "$out")"
for place in --bindir --pkglibdir --sharedir; do
    source=$("$config" $place)
    mkdir -p "$root$source"
    tar -C "$source" --exclude=./bitcode --exclude='./llvmjit*' --exclude='./pystachio*' --exclude='./extension/pystachio*' \
        --exclude=./man --exclude=./doc --dereference -cf - . | tar -C "$root$source" -xf -
done
# Debian's server reads the system's time zones.
if [[ -d /usr/share/zoneinfo ]]; then
    mkdir -p "$root/usr/share"
    cp -aL /usr/share/zoneinfo "$root/usr/share/"
    rm -rf "$root/usr/share/zoneinfo/"{right,posix}
fi
# ldd fails for scripts, which are among them.
{ find "$root$("$config" --bindir)" "$root$("$config" --pkglibdir)" -type f \( -perm -u+x -o -name '*.so' \) -exec ldd {} + || true; } 2>/dev/null |
    awk '$3 ~ /^\// { print $3 }' | sort -u |
    grep -vE '/(libc|libm|libpthread|libdl|librt|libresolv|libgcc_s|libstdc\+\+)\.so|LLVM' |
    xargs -r -I{} cp -L {} "$root/libraries/"
printf '%s\n' "$("$config" --bindir)" > "$root/bindir"
tar -C "$folder" --owner=0 --group=0 -cf - postgres | xz -T0 -6 > "$out"
say "made $out, $(stat -c %s "$out") bytes"
