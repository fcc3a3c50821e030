# shellcheck shell=bash
# Where things are, and how to act as the server's user. Sourced by every other script.
#
# PostgreSQL refuses to run as root. As root, clusters therefore belong to SERVER_USER and live in a folder
# that this user can reach: `target/` of the clone if it can, else a folder under /var/tmp with links to it
# from `target/`. A path too long for a Unix socket (107 bytes) is treated in the same way.
set -euo pipefail

SERVER_VERSIONS="15 16 17 18"
# The longest name of an imported schema that the tests make is 22 bytes longer, and may have 63.
STATE_PATH_BYTES_MAX=40

project_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
cache_root=${PYSTACHIO_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/pystachio}
# Each clone has a build folder of its own, so that two commits can be built side by side. See prepare_target.
own_target=$cache_root/target-$(printf '%s' "$project_root" | cksum | cut -d' ' -f1)
: "${CARGO_TARGET_DIR:=$own_target}"
export CARGO_TARGET_DIR
TARGET_DAYS_MAX=14

say() { printf '%s\n' "$*" >&2; }
die() { say "error: $*"; exit 1; }

# Prints the pg_config to use: PG_CONFIG, else the oldest packaged server of a supported version.
find_pg_config() {
    local version candidate
    if [[ -n ${PG_CONFIG:-} ]]; then
        [[ -x $PG_CONFIG ]] || die "PG_CONFIG=$PG_CONFIG is not an executable file"
        printf '%s\n' "$PG_CONFIG"
        return
    fi
    for version in $SERVER_VERSIONS; do
        candidate=/usr/lib/postgresql/$version/bin/pg_config
        if [[ -x $candidate && -x ${candidate%pg_config}postgres ]]; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    if command -v pg_config >/dev/null && [[ -x $(pg_config --bindir)/postgres ]]; then
        command -v pg_config
        return
    fi
    return 1
}

# Prints the pg_config of a version (16, or 16.2): of a package that is installed with its headers and pg_regress, else of
# what scripts/servers.sh fetched.
server_config() {
    local installed=/usr/lib/postgresql/$1
    if [[ -x $installed/bin/postgres && -x $installed/lib/pgxs/src/test/regress/pg_regress &&
        -f /usr/include/postgresql/$1/server/postgres.h ]]; then
        printf '%s\n' "$installed/bin/pg_config"
        return
    fi
    installed=$cache_root/servers/$1
    [[ -x $installed/bin/pg_config ]] || return 1
    printf '%s\n' "$(realpath "$installed")/bin/pg_config"
}

# Prints the CUDA compiler to use: PYSTACHIO_NVCC, else one that is installed, else the one that setup.sh fetched.
find_nvcc() {
    local candidate
    for candidate in "${PYSTACHIO_NVCC:-}" "$(command -v nvcc || true)" /usr/local/cuda/bin/nvcc \
        "$cache_root/cuda/nvidia/cu13/bin/nvcc"; do
        if [[ -n $candidate && -x $candidate ]]; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    return 1
}

# Prints the major version of a pg_config, and fails where pystachio has no build for it.
server_version() {
    local text
    text=$("$1" --version)
    text=${text#PostgreSQL }
    text=${text%%[!0-9]*}
    [[ " $SERVER_VERSIONS " == *" $text "* ]] ||
        die "$1 is PostgreSQL $text; pystachio builds for: $SERVER_VERSIONS"
    printf '%s\n' "$text"
}

# Makes this clone's build folder, before cargo is called. A new one has the compiled dependencies of the folder that was used last, be it
# another clone's, so that only the project's own crates are compiled. A CARGO_TARGET_DIR that the user has set is taken as it is.
prepare_target() {
    local seed
    [[ $CARGO_TARGET_DIR == "$own_target" ]] || return 0
    mkdir -p "$cache_root"
    exec 8> "$cache_root/targets.lock"
    flock 8
    if [[ ! -d $own_target ]]; then
        # What an interrupted run has left is no whole folder.
        rm -rf "$cache_root"/target-*.new
        seed=$(last_target)
        if [[ -n $seed ]]; then seed_target "$seed"; fi
    fi
    mkdir -p "$own_target"
    printf '%s\n' "$project_root" > "$own_target/clone"
    drop_old_targets
    exec 8>&-
}

# Prints the build folder, of any clone, that was used last. `target` is what all clones had together once.
last_target() {
    local folder mark
    for folder in "$cache_root/target" "$cache_root"/target-*; do
        mark=$folder/clone
        [[ -f $mark ]] || mark=$folder/release/.fingerprint
        [[ ! -d $folder/release/.fingerprint ]] || printf '%s %s\n' "$(stat -c %Y "$mark")" "$folder"
    done | sort -n | tail -n 1 | cut -d' ' -f2-
}

# Fills the new build folder from another one: seed_target FOLDER. Files are shared by hard links, but for those that cargo writes in
# place. Of the project's own crates only compiled kernels are taken, which know what they were compiled of. What says that a crate is
# compiled is copied first: if a build is at work there, what it compiles meanwhile counts as not compiled.
seed_target() {
    local from=$1 new=$own_target.new part folder
    say "taking compiled dependencies from $from"
    rm -rf "$new"
    for part in .fingerprint build deps; do
        (cd "$from" && find . -maxdepth 4 -type d -regex ".*/\(release\|packages\)/$part") | while read -r folder; do
            mkdir -p "$new/$folder"
            case $part in
                deps) seed_folder "$from/$folder" "$new/$folder" -al ! -name '*pystachio*' ! -name '*.d' ;;
                build) seed_folder "$from/$folder" "$new/$folder" -a \( ! -name 'pystachio*' -o -name 'pystachio-cuda-*' \) ;;
                *) seed_folder "$from/$folder" "$new/$folder" -a ! -name 'pystachio*' ;;
            esac
        done
    done
    mv "$new" "$own_target"
}

# Copies the entries of a folder that find's conditions hold for: seed_folder FROM TO OPTION_OF_CP CONDITION…. What links can't span is copied.
seed_folder() {
    local from=$1 to=$2 option=$3
    shift 3
    find "$from" -mindepth 1 -maxdepth 1 "$@" -exec cp "$option" -t "$to" {} + 2> /dev/null ||
        find "$from" -mindepth 1 -maxdepth 1 "$@" -exec cp -a -t "$to" {} +
}

# Removes the build folders of clones that are gone, and those unused for a while.
drop_old_targets() {
    local folder clone
    for folder in "$cache_root"/target-*; do
        [[ -f $folder/clone && $folder != "$own_target" ]] || continue
        clone=$(< "$folder/clone")
        if [[ ! -d $clone || -n $(find "$folder/clone" -mtime "+$TARGET_DAYS_MAX") ]]; then
            say "removing $folder: its clone $clone is gone, or was not built for $TARGET_DAYS_MAX days"
            rm -rf "$folder"
        fi
    done
}

# Prints the file whose lock build.sh holds while it replaces a build. Builds elsewhere, as in an archive, are never replaced.
stage_lock() { if [[ -f $1.lock ]]; then printf '%s.lock\n' "$1"; else printf '/dev/null\n'; fi; }

# Prints the version of pystachio.
workspace_version() { sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' "$project_root/Cargo.toml"; }

# Prints what every call of cargo for the workspace is given, a line each: workspace_selection MAJOR. Calls that choose other packages or
# features, be it only one package less, give dependencies other features, and compile them once more.
workspace_selection() {
    printf '%s\n' --locked --workspace --no-default-features --features "pystachio/pg$1"
}

# Chooses the workspace for the server that is found: sets `selection`, and what the extension's crates look for.
select_workspace() {
    local config
    config=$(find_pg_config) || die "no PostgreSQL server found: run scripts/setup.sh, or set PG_CONFIG"
    export PGRX_PG_CONFIG_PATH=$config
    # shellcheck disable=SC2034
    mapfile -t selection < <(workspace_selection "$(server_version "$config")")
}

# Prints the seed of a test run: PYSTACHIO_TEST_SEED, else the commit's; where all is to run, always the same one.
test_seed() {
    if [[ -n ${PYSTACHIO_TEST_SEED:-} ]]; then
        printf '%s\n' "$PYSTACHIO_TEST_SEED"
    elif [[ $1 == 1 ]] || ! git -C "$project_root" rev-parse HEAD >/dev/null 2>&1; then
        printf '20260101\n'
    else
        printf '%d\n' "0x$(git -C "$project_root" rev-parse HEAD | cut -c1-7)"
    fi
}

server_user() {
    if [[ $(id -u) != 0 ]]; then id -un; else printf '%s\n' "${PYSTACHIO_SERVER_USER:-postgres}"; fi
}

# The user that owns the clusters when we are root, where the package did not make it.
make_server_user() {
    [[ $(id -u) == 0 ]] || return 0
    id "$(server_user)" >/dev/null 2>&1 || useradd --system --no-create-home --shell /usr/sbin/nologin "$(server_user)"
}

# Runs a command as the server's user, from a folder that it can enter.
as_server_user() {
    if [[ $(id -u) != 0 ]]; then
        (cd / && "$@")
    else
        (cd / && exec setpriv --reuid="$(server_user)" --regid="$(id -g "$(server_user)")" --init-groups \
            env HOME=/ USER="$(server_user)" LOGNAME="$(server_user)" "$@")
    fi
}

# Prints the folder that holds clusters, and makes it.
state_root() {
    local wanted=$project_root/target other owner
    mkdir -p "$wanted"
    if [[ ${#wanted} -le $STATE_PATH_BYTES_MAX ]] && as_server_user test -x "$wanted"; then
        printf '%s\n' "$wanted"
        return
    fi
    other=/var/tmp/pystachio-$(id -u)-$(printf '%s' "$project_root" | cksum | cut -d' ' -f1)
    mkdir -m 0755 "$other" 2>/dev/null || true
    owner=$(stat -c %u "$other")
    [[ -d $other && ! -L $other && $owner == "$(id -u)" ]] || die "$other exists and is not a folder of ours"
    printf '%s\n' "$other"
}

# The addresses from which this machine takes packages of Debian.
debian_mirrors() {
    local files=()
    mapfile -t files < <(find /etc/apt -name '*.sources' -o -name '*.list')
    [[ ${#files[@]} -gt 0 ]] || return 0
    sed -nE 's#^(URIs: *|deb (\[[^]]*\] )?)([^ ]*/debian[a-z-]*)/?( .*)?$#\3#p' "${files[@]}" | sort -u
}

# Runs a program of apt with a list of sources, and with all that it writes, in a folder of ours: apt_apart FOLDER PROGRAM ARGUMENT…
apt_apart() {
    local folder=$1 program=$2
    shift 2
    mkdir -p "$folder/lists/partial" "$folder/cache/archives/partial"
    "$program" -q -o Dir::Etc::SourceList="$folder/sources.list" -o Dir::Etc::SourceParts=- -o Dir::State::Lists="$folder/lists" \
        -o Dir::Cache="$folder/cache" -o APT::Sandbox::User="$(id -un)" -o APT::Get::List-Cleanup=0 "$@"
}

# Every build must see the same compiler, or it is one more build.
PYSTACHIO_NVCC=$(find_nvcc || true)
export PYSTACHIO_NVCC
