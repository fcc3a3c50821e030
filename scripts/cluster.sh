#!/usr/bin/env bash
# A private PostgreSQL cluster with pystachio, apart from the system's: its own copy of the server's files (so
# that CREATE EXTENSION finds ours and nothing is written outside), data, socket and log in one folder.
#
# usage: scripts/cluster.sh start NAME [STAGE]    (re)starts it, installing the build of STAGE; prints its folder
#        scripts/cluster.sh create NAME [STAGE]   the same from an empty data folder
#        scripts/cluster.sh stop NAME             stops it where it runs
#        scripts/cluster.sh folder NAME           prints its folder
#        scripts/cluster.sh conninfo NAME         prints a connection string without a database
# With PYSTACHIO_NETWORK=NAMESPACE in the environment, and as root, the server runs in that network namespace (ip netns).
# Settings: regress/conf/single.conf, and then regress/conf/NAME.conf where there is one.
source "$(dirname "$0")/environment.sh"

[[ $# -ge 2 ]] || die "usage: cluster.sh start|create|stop|folder|conninfo NAME [STAGE]"
action=$1 name=$2 stage=${3:-}
root=$(state_root)
folder=$root/$name
port=5432

make_folder() {
    mkdir -p "$folder"
    if [[ $(id -u) == 0 ]]; then chown "$(server_user)" "$folder"; fi
    chmod 0700 "$folder"
    if [[ $root != "$project_root/target" ]]; then
        rm -f "$project_root/target/$name" 2>/dev/null || true
        ln -sfn "$folder" "$project_root/target/$name"
    fi
}

# The server's binaries find their libraries and share folder relative to themselves, so a copy with the same
# folders below another root is a whole installation.
copy_server() {
    local config=$1 stamp place
    stamp="$("$config" --version) $(stat -c '%n %Y' "$("$config" --bindir)/postgres")"
    if [[ ! -f $folder/server/stamp || $(cat "$folder/server/stamp") != "$stamp" ]]; then
        rm -rf "$folder/server"
        for place in --bindir --pkglibdir --sharedir; do
            mkdir -p "$folder/server$("$config" $place)"
            tar -C "$("$config" $place)" --exclude=./bitcode --exclude='./pgxs' --dereference -cf - . |
                tar -C "$folder/server$("$config" $place)" -xf -
        done
        copy_libraries "$("$config" --bindir)" "$("$config" --pkglibdir)"
        printf '%s' "$("$config" --bindir)" > "$folder/server/bindir"
        printf '%s' "$stamp" > "$folder/server/stamp"
        chmod -R a+rX "$folder/server"
    fi
}

# A server that is not the system's may bring libraries in folders beside its own, which it too finds relative to itself.
copy_libraries() {
    local library
    # Scripts among the files have none, which is an error to ldd.
    { find "$@" -maxdepth 1 -type f -exec ldd {} + 2>/dev/null || true; } | awk '$3 ~ /^\// { print $3 }' | xargs -r realpath -s | sort -u |
        { grep -vE '^/(usr/)?lib(32|64)?/' || true; } | while read -r library; do
            mkdir -p "$folder/server$(dirname "$library")"
            [[ -e $folder/server$library ]] || cp -L "$library" "$folder/server$library"
        done
}

install_stage() {
    local config=$1
    [[ -n $stage ]] || return 0
    (
        flock -s 9
        install -m 0644 "$stage"/lib/pystachio.so "$folder/server$("$config" --pkglibdir)/"
        install -m 0755 "$stage"/lib/pystachio-engine "$folder/server$("$config" --pkglibdir)/"
        rm -f "$folder/server$("$config" --sharedir)"/extension/pystachio*
        install -m 0644 "$stage"/extension/* "$folder/server$("$config" --sharedir)/extension/"
    ) 9< "$(stage_lock "$stage")"
}

make_data() {
    local settings=("$project_root/regress/conf/single.conf")
    if [[ -f $project_root/regress/conf/$name.conf ]]; then settings+=("$project_root/regress/conf/$name.conf"); fi
    if [[ -f $folder/data/PG_VERSION && $(cat "$folder/data/PG_VERSION") != "$(server_version "$config")" ]]; then
        die "$folder/data is of PostgreSQL $(cat "$folder/data/PG_VERSION"), and $config is another version: cluster.sh create $name"
    fi
    if [[ ! -f $folder/data/PG_VERSION ]]; then
        as_server_user "$bin/initdb" -D "$folder/data" --username=postgres --auth=trust --encoding=UTF8 \
            --locale=C.UTF-8 --no-sync > "$folder/initdb.log" 2>&1 ||
            { cat "$folder/initdb.log" >&2; die "initdb failed in $folder/data"; }
        echo "include_if_exists = '$folder/pystachio.conf'" | as_server_user tee -a "$folder/data/postgresql.conf" > /dev/null
    fi
    {
        echo "# Written by scripts/cluster.sh from regress/conf; do not edit."
        # A library whose hooks were there first shows what ours do to it and it to them.
        if [[ -n $stage && -f $folder/server$("$config" --pkglibdir)/pg_stat_statements.so ]]; then
            echo "shared_preload_libraries = 'pg_stat_statements, pystachio'"
            echo 'compute_query_id = off'
        elif [[ -n $stage ]]; then
            echo "shared_preload_libraries = 'pystachio'"
        fi
        cat "${settings[@]}"
        echo "listen_addresses = ''"
        echo "port = $port"
        echo "unix_socket_directories = '$folder'"
        echo 'unix_socket_permissions = 0700'
    } > "$folder/pystachio.conf"
    chmod 0644 "$folder/pystachio.conf"
}

# Runs a command as the server's user, in the network namespace that is named in `within`, if one is.
as_server_user_within() {
    if [[ ${#within[@]} == 0 ]]; then
        as_server_user "$@"
    else
        (cd / && exec "${within[@]}" setpriv --reuid="$(server_user)" --regid="$(id -g "$(server_user)")" --init-groups \
            env HOME=/ "$@")
    fi
}

# Stops what runs, which may be a server of another version than the one that is wanted now.
stop_server() {
    local control
    [[ -f $folder/data/postmaster.pid && -f $folder/server/bindir ]] || return 0
    control=$folder/server$(cat "$folder/server/bindir")/pg_ctl
    as_server_user "$control" -D "$folder/data" -m fast -w -t 60 stop > /dev/null 2>&1 ||
        as_server_user "$control" -D "$folder/data" -m immediate -w -t 60 stop > /dev/null 2>&1 || true
}

start_server() {
    local within=()
    if [[ -n ${PYSTACHIO_NETWORK:-} ]]; then within=(ip netns exec "$PYSTACHIO_NETWORK"); fi
    # The server must not keep a lock that the caller holds by a descriptor.
    as_server_user_within "$bin/pg_ctl" -D "$folder/data" -l "$folder/server.log" -w -t 60 start < /dev/null > /dev/null 2>&1 \
        3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&- ||
        { tail -n 20 "$folder/server.log" >&2; die "the server in $folder did not start; its log is $folder/server.log"; }
}

config=$(find_pg_config) || die "no PostgreSQL server found: run scripts/setup.sh, or set PG_CONFIG"
bin=$folder/server$("$config" --bindir)
case $action in
    folder) printf '%s\n' "$folder" ;;
    conninfo) printf 'host=%s port=%s user=postgres\n' "$folder" "$port" ;;
    stop) stop_server ;;
    start | create)
        make_folder
        stop_server
        # Everything but the copy of the server: what earlier runs wrote would be in the way.
        if [[ $action == create ]]; then
            find "$folder" -mindepth 1 -maxdepth 1 ! -name server -exec rm -rf {} +
        fi
        copy_server "$config"
        install_stage "$config"
        make_data
        start_server
        printf '%s\n' "$folder"
        ;;
    *) die "unknown action '$action': start, create, stop, folder, conninfo" ;;
esac
