#!/usr/bin/env bash
# Builds a PostgreSQL 15 with assertions from Debian's source package, in the cache folder, and prints its pg_config. Assertions
# find what a release server passes over: plans that the planner would never make itself, memory used after it was freed.
#
# usage: scripts/cassert-server.sh
source "$(dirname "$0")/environment.sh"

prefix=$cache_root/postgres-15-cassert
config=$prefix/bin/pg_config
if [[ ! -x $config ]]; then
    command -v apt-get >/dev/null || die "Debian's source package is needed, and there is no apt-get here"
    as_root=()
    if [[ $(id -u) != 0 ]]; then as_root=(sudo); fi
    say "installing what PostgreSQL is built with"
    "${as_root[@]}" apt-get install -y -q --no-install-recommends bison flex dpkg-dev libreadline-dev zlib1g-dev libicu-dev liblz4-dev \
        libzstd-dev libxml2-dev libxslt1-dev libssl-dev >&2
    # The sources that regress/core reads its suite from: built outside of them.
    sources=$("$(dirname "$0")/postgres-source.sh" 15 "$cache_root/sources/15")
    build=$(mktemp -d "$cache_root/postgres-15-build-XXXXXX")
    trap 'rm -rf "$build"' EXIT
    say "building PostgreSQL with assertions (some minutes)"
    cd "$build"
    "$sources/configure" --quiet --prefix="$prefix" --enable-cassert --enable-debug --with-icu --with-lz4 --with-zstd --with-openssl \
        CFLAGS='-O1 -g' >&2
    # World-bin does not wait for these, which all folders include.
    make -s -C src/backend generated-headers >&2
    make -s -j "$(nproc)" world-bin >&2
    make -s install-world-bin >&2
    make -s -C src/test/regress all >&2
    make -s -C src/test/regress install >&2 || true
fi
printf '%s\n' "$config"
