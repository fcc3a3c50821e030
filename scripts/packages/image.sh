# shellcheck shell=bash
# OCI images: Debian's least system, PostgreSQL, and the packages of deb.sh. Made without a container engine, by mmdebstrap and umoci, as
# root. Sourced by scripts/packages.sh.
#
#   pystachio-<version>-pg<major>-<architecture>.oci.tar        an image's layout: `podman load`, `skopeo copy oci-archive:…`
#   pystachio-<version>-pg<major>-<architecture>-cuda.oci.tar   with a layer of the CUDA libraries that the engine loads
#
# IMAGE_SOURCES=file: a sources.list for the images, as of PGDG, whose packages are for all versions; by default that of Debian's release
# here, which has one.

# Where what the engine opens at run time lies (docs/gpus.md): NCCL, cuFile, nvCOMP, in the versions of cuda-<architecture>.txt. The driver
# is the host's, which its container runtime brings in.
CUDA_FOLDER=/usr/lib/pystachio/cuda

# make_images [cuda]
make_images() {
    local major tool
    [[ $(id -u) == 0 ]] || die "images are made by root only: run this as root"
    for tool in mmdebstrap umoci; do command -v "$tool" > /dev/null || die "$tool is missing: apt-get install $tool"; done
    wanted deb || make_deb
    for major in "${versions[@]}"; do
        if [[ -z ${IMAGE_SOURCES:-} ]] && ! apt-cache show "postgresql-$major" > /dev/null 2>&1; then
            say "no image of PostgreSQL $major: this release of Debian does not have it (IMAGE_SOURCES names other sources)"
            continue
        fi
        make_image "$major" "${1:-}"
    done
}

# The system of an image as an archive: make_system MAJOR FILE. Kept for the other kind of image.
make_system() {
    local major=$1 file=$2 suite debs=$work/image/debs sources=()
    [[ ! -f $file ]] || return 0
    suite=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
    if [[ -n ${IMAGE_SOURCES:-} ]]; then sources=("$IMAGE_SOURCES"); fi
    rm -rf "$debs"
    mkdir -p "$debs/debs" "$debs/usr/share/pystachio" "$debs/usr/local/bin"
    cp "$out"/pystachio-engine_*.deb "$out/postgresql-$major-pystachio_"*.deb "$debs/debs/"
    install -m 0755 "$project_root/docker/entrypoint.sh" "$debs/usr/local/bin/entrypoint.sh"
    install -m 0644 "$project_root/docker/initialize.sql" "$debs/usr/share/pystachio/"
    # shellcheck disable=SC2016   # mmdebstrap's shell knows the root as $1
    # A key made at installation would be in every copy of the image. Documents but for licences are left out.
    mmdebstrap --quiet --variant=minbase --format=tar --include="postgresql-$major,ca-certificates" --dpkgopt=force-confold \
        --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
        --dpkgopt='path-include=/usr/share/doc/pystachio-engine/*' \
        --essential-hook='mkdir -p "$1/etc/postgresql-common" && echo "create_main_cluster = false" > "$1/etc/postgresql-common/createcluster.conf"' \
        --customize-hook="sync-in $debs /" \
        --customize-hook='chroot "$1" sh -c "apt-get install -y -q --no-install-recommends /debs/*.deb"' \
        --customize-hook='rm -rf "$1/debs" "$1"/etc/ssl/private/ssl-cert-snakeoil.key "$1"/etc/ssl/certs/ssl-cert-snakeoil.pem "$1"/var/log/* "$1"/var/cache/* "$1"/etc/resolv.conf "$1"/etc/hostname' \
        --customize-hook='find "$1/etc/ssl/certs" -xtype l -delete' \
        "$suite" "$file" "${sources[@]}" >&2
}

# A layer of CUDA's libraries: make_cuda_layer FILE.
make_cuda_layer() {
    local file=$1 root=$work/image/cuda
    "$project_root/scripts/packages/cuda-libraries.sh" "$root$CUDA_FOLDER"
    settle "$root"
    tar -C "$root" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -cf "$file" usr
}

make_image() {
    local major=$1 kind=$2 layout=$work/image/layout moment name
    name=pystachio-$package_version-pg$major-$(uname -m)${kind:+-$kind}
    moment=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
    mkdir -p "$work/image"
    make_system "$major" "$work/image/system-$major.tar"
    rm -rf "$layout"
    umoci init --layout "$layout"
    umoci new --image "$layout:$package_version"
    umoci raw add-layer --image "$layout:$package_version" --history.created="$moment" "$work/image/system-$major.tar"
    if [[ $kind == cuda ]]; then
        make_cuda_layer "$work/image/cuda.tar"
        umoci raw add-layer --image "$layout:$package_version" --history.created="$moment" "$work/image/cuda.tar"
    fi
    configure_image "$layout:$package_version" "$major" "$kind" "$moment"
    umoci gc --layout "$layout"
    settle "$layout"
    tar -C "$layout" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -cf "$out/$name.oci.tar" oci-layout index.json blobs
    say "made $out/$name.oci.tar"
}

# What the image says of itself: configure_image IMAGE MAJOR KIND MOMENT.
configure_image() {
    local image=$1 major=$2 kind=$3 moment=$4 options=()
    if [[ $kind == cuda ]]; then
        options=(--config.env="LD_LIBRARY_PATH=$CUDA_FOLDER" --config.env=NVIDIA_VISIBLE_DEVICES=all --config.env=NVIDIA_DRIVER_CAPABILITIES=compute,utility)
    fi
    umoci config --image "$image" --history.created="$moment" --created="$moment" --config.entrypoint=/usr/local/bin/entrypoint.sh \
        --config.env=PATH="/usr/lib/postgresql/$major/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" --config.env=LC_ALL=C.UTF-8 \
        --config.env=PGDATA="/var/lib/postgresql/$major/docker" --config.volume=/var/lib/postgresql --config.volume=/parquet \
        --config.exposedports=5432/tcp --config.stopsignal=SIGINT --config.label=org.opencontainers.image.title=pystachio \
        --config.label="org.opencontainers.image.version=$package_version" --config.label=org.opencontainers.image.licenses=Apache-2.0 "${options[@]}"
}
