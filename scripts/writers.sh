#!/usr/bin/env bash
# Makes the private environments of the libraries that write Parquet files for the tests, and prints their Pythons, a line each:
# the libraries of today, and some of years ago where this Python has them. With the argument `lakes` those that write tables of Delta
# Lake and Iceberg, with `spark` Spark, which needs Java. Needs the network once.
source "$(dirname "$0")/environment.sh"

# Areas of the tests run side by side, and each may be the first that needs them.
mkdir -p "$cache_root"
exec 9> "$cache_root/python.lock"
flock 9

# Makes an environment of the packages that a file lists, unless it is there: make_environment NAME FILE.
make_environment() {
    local venv=$cache_root/$1 requirements=$project_root/regress/writers/$2
    if [[ ! -f $venv/installed ]] || ! cmp -s "$requirements" "$venv/installed"; then
        say "making the private environment of libraries that write Parquet in $venv"
        rm -rf "$venv"
        python3 -m venv "$venv" >&2
        "$venv/bin/pip" install --quiet --disable-pip-version-check --only-binary=:all: -r "$requirements" >&2 || return 1
        cp "$requirements" "$venv/installed"
    fi
    printf '%s\n' "$venv/bin/python"
}

if [[ ${1:-} == lakes ]]; then
    make_environment lakes-venv requirements-lakes.txt || die "the libraries that write tables of Delta Lake and Iceberg could not be installed"
    exit 0
fi
if [[ ${1:-} == spark ]]; then
    make_environment spark-venv requirements-spark.txt || die "Spark could not be installed"
    exit 0
fi
make_environment writers-venv requirements.txt || die "the libraries that write Parquet could not be installed"
make_environment writers-older-venv requirements-older.txt || say "this Python has no older libraries: files by them are not tested"
