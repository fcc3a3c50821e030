#!/bin/bash
# Starts the server of the images that scripts/packages.sh makes, as the user postgres, and makes its data folder first where there is none.
#
# POSTGRES_PASSWORD is needed for that, as in PostgreSQL's own images. What follows the image's name are arguments of postgres.
set -euo pipefail

bin=$(echo /usr/lib/postgresql/*/bin)
as_postgres() { setpriv --reuid=postgres --regid=postgres --init-groups env HOME=/var/lib/postgresql "$@"; }

initialize() {
    [[ -n ${POSTGRES_PASSWORD:-} ]] || { echo "error: $PGDATA is empty, and POSTGRES_PASSWORD is not set: give the superuser a password" >&2; exit 1; }
    # The password goes through a file that its user alone can read.
    install -m 0600 -o postgres /dev/null /run/password
    printf '%s\n' "$POSTGRES_PASSWORD" > /run/password
    # Text is compared byte by byte in this locale, so that ORDER BY on text is pushed down.
    as_postgres "$bin/initdb" -D "$PGDATA" -U postgres --pwfile=/run/password --auth-host=scram-sha-256 --auth-local=trust \
        --locale=C.UTF-8 --encoding=UTF8
    rm /run/password
    printf "listen_addresses = '*'\nshared_preload_libraries = 'pystachio'\n" >> "$PGDATA/postgresql.conf"
    printf 'host all all all scram-sha-256\n' >> "$PGDATA/pg_hba.conf"
    as_postgres "$bin/pg_ctl" -D "$PGDATA" -w -o "-c listen_addresses=''" start
    as_postgres "$bin/psql" -X -q -v ON_ERROR_STOP=1 -U postgres -f /usr/share/pystachio/initialize.sql
    as_postgres "$bin/pg_ctl" -D "$PGDATA" -m fast -w stop
}

install -d -o postgres -g postgres /var/lib/postgresql /run/postgresql
install -d -o postgres -g postgres -m 0700 "$(dirname "$PGDATA")" "$PGDATA"
# Where the first start was interrupted, the mark is missing.
if [[ ! -f $PGDATA/initialized ]]; then
    [[ ! -f $PGDATA/PG_VERSION ]] || { echo "error: $PGDATA was made by something else, or not finished: give another volume, or empty it" >&2; exit 1; }
    initialize
    install -m 0600 -o postgres /dev/null "$PGDATA/initialized"
fi
exec setpriv --reuid=postgres --regid=postgres --init-groups env HOME=/var/lib/postgresql "$bin/postgres" -D "$PGDATA" "$@"
