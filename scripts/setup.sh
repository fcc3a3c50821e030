#!/usr/bin/env bash
# Installs what building and running needs, on Debian 12 or newer and Ubuntu. Does nothing where all is there.
#
# usage: scripts/setup.sh
#
# The CUDA compiler is fetched only where there is a GPU, or where it is asked for: PYSTACHIO_CUDA=1 (tests and packages do),
# PYSTACHIO_CUDA=0 never. One that is there already is used. Without it the engine has no CUDA kernels, and runs on processors.
source "$(dirname "$0")/environment.sh"

# Languages in whose order tests sort texts.
TEST_LOCALES=(en_US sv_SE cs_CZ)
missing_locales() {
    local name known
    known=$(locale -a)
    for name in "${TEST_LOCALES[@]}"; do
        [[ $'\n'$known$'\n' == *$'\n'"$name.utf8"$'\n'* ]] || printf '%s\n' "$name"
    done
}

make_locales() {
    local name as_root=()
    if [[ $(id -u) != 0 ]]; then
        command -v sudo > /dev/null || return 0
        as_root=(sudo)
    fi
    while read -r name; do
        say "making the locale $name.UTF-8, which tests use"
        "${as_root[@]}" localedef -i "$name" -f UTF-8 "$name.UTF-8" < /dev/null
    done < <(missing_locales)
}

missing_packages() {
    local version=$1
    local server_packages=()
    if ! find_pg_config >/dev/null; then server_packages+=("postgresql-$version"); fi
    if [[ -z ${PG_CONFIG:-} && ! -f /usr/include/postgresql/$version/server/postgres.h ]]; then
        server_packages+=("postgresql-server-dev-$version")
    fi
    command -v clang >/dev/null || server_packages+=(clang)
    compgen -G '/usr/lib/llvm-*/lib/libclang*.so*' >/dev/null || server_packages+=(libclang-dev)
    command -v pkg-config >/dev/null || server_packages+=(pkg-config)
    command -v cc >/dev/null && command -v c++ >/dev/null || server_packages+=(build-essential)
    command -v python3 >/dev/null || server_packages+=(python3)
    command -v openssl >/dev/null || server_packages+=(openssl)
    command -v xz >/dev/null || server_packages+=(xz-utils)
    [[ $(ldconfig -p) == *libpq.so.5* ]] || server_packages+=(libpq5)
    python3 -c 'import ensurepip' 2>/dev/null || server_packages+=(python3-venv)
    [[ -z $(missing_locales) || -f /usr/share/i18n/locales/en_US ]] || server_packages+=(locales)
    printf '%s\n' "${server_packages[@]}"
}

# The server version to install: one that is installed already, else the oldest that is packaged.
wanted_version() {
    local config version
    if config=$(find_pg_config); then
        server_version "$config"
        return
    fi
    for version in $SERVER_VERSIONS; do
        if apt-cache show "postgresql-$version" >/dev/null 2>&1; then
            printf '%s\n' "$version"
            return
        fi
    done
    die "no packaged PostgreSQL among versions $SERVER_VERSIONS; set PG_CONFIG=/path/to/pg_config of your own"
}

install_packages() {
    local as_root=()
    [[ $# -gt 0 ]] || return 0
    if [[ $(id -u) != 0 ]]; then
        command -v sudo >/dev/null || die "these packages are missing, and there is no sudo to install them: $*"
        as_root=(sudo)
    fi
    say "installing: $*"
    # A cluster of the distribution's own is not wanted: only the binaries are used.
    "${as_root[@]}" mkdir -p /etc/postgresql-common
    if [[ ! -e /etc/postgresql-common/createcluster.conf ]]; then
        "${as_root[@]}" sh -c 'echo "create_main_cluster = false" > /etc/postgresql-common/createcluster.conf'
    fi
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@" >&2
}

check_cargo() {
    command -v cargo >/dev/null && return
    die "cargo is missing. Get it with:
    curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y && . \"\$HOME/.cargo/env\"
  then run the same command again."
}

# Whether the CUDA compiler is to be fetched where it is missing.
wants_nvcc() {
    case ${PYSTACHIO_CUDA:-} in
        1) ;;
        0) return 1 ;;
        "") compgen -G '/dev/nvidia[0-9]*' > /dev/null || [[ -e /dev/dxg ]] ;;
        *) die "PYSTACHIO_CUDA=$PYSTACHIO_CUDA: give 1 to fetch the CUDA compiler, 0 not to, nothing to fetch it where there is a GPU" ;;
    esac
}

# The CUDA compiler, from PyPI: it needs no GPU and no driver.
NVCC_PACKAGES=(nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-cuda-cccl==13.0.85
    nvidia-cuda-runtime==13.0.96)
install_nvcc() {
    local environment=$cache_root/cuda-venv
    find_nvcc >/dev/null && return
    if ! wants_nvcc; then
        say "no CUDA compiler and no GPU here: this build has no CUDA kernels, and runs on processors (PYSTACHIO_CUDA=1 fetches the compiler)"
        return
    fi
    say "installing the CUDA compiler (105 MB)"
    rm -rf "$environment" "$cache_root/cuda"
    if ! { python3 -m venv "$environment" && "$environment/bin/pip" install -q --disable-pip-version-check --no-deps \
        --target "$cache_root/cuda" "${NVCC_PACKAGES[@]}"; } >&2; then
        rm -rf "$cache_root/cuda"
        say "the CUDA compiler could not be installed: this build has no CUDA kernels, and runs on the CPU"
    fi
    rm -rf "$environment"
}

check_cargo
if command -v apt-get >/dev/null; then
    if [[ -z $(find_pg_config || true) ]] && ! apt-cache show postgresql >/dev/null 2>&1; then
        if [[ $(id -u) == 0 ]]; then apt-get update -q >&2; else sudo apt-get update -q >&2; fi
    fi
    version=$(wanted_version)
    mapfile -t packages < <(missing_packages "$version" | sed '/^$/d')
    if [[ ${#packages[@]} -gt 0 ]]; then
        if [[ $(id -u) == 0 ]]; then apt-get update -q >&2; elif command -v sudo >/dev/null; then sudo apt-get update -q >&2; fi
        install_packages "${packages[@]}"
    fi
    make_locales
elif ! find_pg_config >/dev/null; then
    die "no apt-get here: install PostgreSQL ($SERVER_VERSIONS) with its server headers, libclang and pkg-config, and set PG_CONFIG"
fi
make_server_user
install_nvcc
