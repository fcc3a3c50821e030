# shellcheck shell=bash
# Bare systems in which packages are tried: roots of Debian's packages, overlaid so that each test has its own and none is written to.
# Sourced by scripts/test-packages.sh; needs root and mmdebstrap.
#
# A root is mounted in a mount namespace of the command that runs in it: there is nothing to unmount, and what a command leaves running
# ends with its namespace of processes. What it has written stays for the next command.
#
#   $cache_root/roots/base     Debian's least system, of the release that this machine runs, made once
#   $roots/NAME/upper          what a test has changed in it

base_root=$cache_root/roots/base

make_base_root() {
    local suite key options=()
    [[ ! -f $base_root.done ]] || return 0
    [[ $(id -u) == 0 ]] || die "bare systems are made and entered by root only: run this as root"
    command -v mmdebstrap > /dev/null || die "mmdebstrap is missing: apt-get install mmdebstrap"
    suite=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
    say "making a bare $suite in $base_root"
    mkdir -p "$cache_root/roots"
    rm -rf "$base_root"
    # Other sources than Debian's bring the keys by which they are signed.
    if [[ -n ${IMAGE_SOURCES:-} ]]; then
        while read -r key; do
            # shellcheck disable=SC2016   # mmdebstrap's shell knows the root as $1
            options+=(--setup-hook='mkdir -p "$1'"$(dirname "$key")"'"' --setup-hook="copy-in $key $(dirname "$key")")
        done < <(sed -nE 's/.*signed-by=([^] ]*).*/\1/p' "$IMAGE_SOURCES" | sort -u)
    fi
    mmdebstrap --quiet --variant=minbase --include=ca-certificates "${options[@]}" "$suite" "$base_root" ${IMAGE_SOURCES:+"$IMAGE_SOURCES"} >&2
    touch "$base_root.done"
}

# Runs a script of bash in a namespace where $root is a bare system of that name: with_root NAME SCRIPT [ARGUMENT]….
with_root() {
    local name=$1 script=$2 folder=$roots/$1
    shift 2
    mkdir -p "$folder/upper" "$folder/work" "$folder/root"
    base=$base_root folder=$folder root=$folder/root script=$script \
        unshare --mount --pid --fork --kill-child bash -euo pipefail -c '
            mount -t overlay overlay -o "lowerdir=$base,upperdir=$folder/upper,workdir=$folder/work" "$root"
            mount -t proc proc "$root/proc"
            mount -t tmpfs tmpfs "$root/dev"
            mkdir "$root/dev/shm"
            for device in null zero random urandom; do
                touch "$root/dev/$device"
                mount --bind "/dev/$device" "$root/dev/$device"
            done
            mount -t tmpfs tmpfs "$root/dev/shm"
            cp -L /etc/resolv.conf /etc/hosts "$root/etc/" 2> /dev/null || true
            eval "$script"' bash "$@"
}

# Runs a command within such a system: in_root NAME COMMAND….
in_root() {
    local name=$1
    shift
    with_root "$name" 'exec chroot "$root" env -i PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"' "$@"
}

drop_root() { rm -rf "${roots:?}/$1"; }

# Lays a server that scripts/servers.sh fetched out below a root, as a distribution does, and leaves links where it looks for its files
# itself: lay_server MAJOR ROOT PREFIX SHARE. (Its programs find their folders relative to themselves.)
lay_server() {
    local major=$1 root=$2 prefix=$3 share=$4 config from libraries data library to
    config=$("$project_root/scripts/servers.sh" "$major" | cut -d' ' -f2)
    from=$(dirname "$("$config" --bindir)")
    libraries=$("$config" --pkglibdir)
    data=$("$config" --sharedir)
    [[ $libraries == "$from"/* && $data == "$from"/* ]] || die "$config is a server of fixed places, which can't be laid out elsewhere"
    mkdir -p "$root$prefix" "$root$(dirname "$share")"
    cp -a "$from/bin" "$from/lib" "$root$prefix/"
    cp -a "$data" "$root$share"
    # Some bring libraries in a folder beside their own.
    { find "$from/bin" "$from/lib" -type f -exec ldd {} + 2> /dev/null || true; } | awk '$3 ~ /^\// { print $3 }' | xargs -r realpath -s | sort -u |
        { grep -vE "^(/usr)?/lib|^$from/" || true; } | while read -r library; do
            to=$(realpath -m "$root$prefix/$(realpath -m -s --relative-to="$from" "$library")")
            install -D -m 0644 "$library" "$to"
        done
    link_folder "$root$prefix/${libraries#"$from"/}" "$root$prefix/lib"
    link_folder "$root$prefix/${data#"$from"/}" "$root$share"
}

# Makes a folder a link to another one, to which its files go.
link_folder() {
    local folder=$1 to=$2
    [[ $folder != "$to" ]] || return 0
    if [[ -d $folder ]]; then
        cp -a "$folder/." "$to/"
        rm -r "$folder"
    fi
    mkdir -p "$(dirname "$folder")"
    ln -sr "$to" "$folder"
}
