#!/usr/bin/env bash
# Packs pystachio and installs each form of it in a bare system, where a server is started and a query over Parquet files must be right. As
# root, on Debian or Ubuntu. The last line counts: 'N passed, N failed'.
#
# usage: [NAME=VALUE]… scripts/test-packages.sh [AREA]…    all areas by default, but image and cuda
#   tar      target/packages/*.tar.xz, by its install.sh, into Debian's PostgreSQL
#   deb      by apt, which finds what they depend on; clean by lintian; gone without a trace when removed
#   rpm      by rpm --root
#   pgxn     META.json follows the specification, the archive has the sources of the commit
#   bills    CycloneDX documents and SHA256SUMS name what is there
#   repeat   packing twice gives the same bytes
#   image    the OCI image starts a server; cuda: the one with CUDA's libraries too, which the engine finds in it
#   VERSIONS="15 16 17 18", STAGES=folder, PYSTACHIO_PROFILE=packages   as for scripts/packages.sh
#   LEVEL=0                      how hard to compress
#   IMAGE_SOURCES=file           sources of packages of bare systems and images, as for scripts/packages.sh
#   MADE=1                       tests what lies in target/packages instead of packing anew; OUT=folder: there
#
# Debian has one PostgreSQL (12: 15). The packages for others are tried with servers that scripts/servers.sh fetches, which a package
# made here lays out in the places of a distribution's; so are all of RPM's, in a root of Debian's libraries.
#
# shellcheck disable=SC2016   # scripts for other shells, which expand them
source "$(dirname "$0")/environment.sh"
source "$(dirname "$0")/packages/roots.sh"

read -ra versions <<< "${VERSIONS:-$SERVER_VERSIONS}"
export VERSIONS="${versions[*]}" LEVEL=${LEVEL:-0}
areas=("$@")
[[ $# -gt 0 ]] || areas=(tar deb rpm pgxn bills repeat)
packages=$(realpath -m "${OUT:-$project_root/target/packages}")
results=$project_root/target/results-packages
rm -rf "$results"
mkdir -p "$results"
roots=$(mktemp -d "${TMPDIR:-/var/tmp}/pystachio-roots-XXXXXX")
trap 'rm -rf "$roots"' EXIT
status=0
# The versions of PostgreSQL that the sources of packages here, and so those of bare systems, have.
mapfile -t packaged < <(for version in $SERVER_VERSIONS; do ! apt-cache show "postgresql-$version" > /dev/null 2>&1 || echo "$version"; done)

wanted() { [[ " ${areas[*]} " == *" $1 "* ]]; }

is_packaged() { [[ " ${packaged[*]} " == *" $1 "* ]]; }

# Counts a claim, by whether a command succeeds: claim TEXT COMMAND….
claim() {
    local text=$1
    shift
    if "$@" > "$results/output" 2>&1; then
        passed=$((passed + 1))
        return
    fi
    failed=$((failed + 1))
    say "FAILED: $area: $text"
    tail -n 20 "$results/output" >&2
    printf '%s\n' "$text" >> "$results/$area.failures"
}

# Runs an area's function if it is wanted, and writes its counts.
run_area() {
    local begin=$SECONDS
    area=$1 passed=0 failed=0
    wanted "$area" || return 0
    "test_$area"
    if [[ $failed != 0 || $passed == 0 ]]; then status=1; fi
    printf '{"passed": %d, "failed": %d}\n' "$passed" "$failed" > "$results/$area.json"
    printf '%d' $((SECONDS - begin)) > "$results/$area.seconds"
}

# What scripts/packages/try.sh prints where all is right.
expected_answers() {
    printf 'version %s\nrows 60175\nscans 1\nengine running\n' "$(workspace_version)"
}

# A first user's steps in a bare system: answers NAME BINDIR.
answers() {
    install -D -m 0755 "$project_root/scripts/packages/try.sh" "$roots/$1/upper/usr/local/bin/try.sh"
    diff <(expected_answers) <(in_root "$1" try.sh "$2")
}

# A package that lays out a fetched server where Debian's postgresql-<major> has its own: make_server_deb MAJOR FILE.
make_server_deb() {
    local major=$1 file=$2 root=$roots/server-$1
    lay_server "$major" "$root" "/usr/lib/postgresql/$major" "/usr/share/postgresql/$major"
    mkdir -p "$root/DEBIAN"
    printf 'Package: postgresql-%s\nVersion: %s.99-1\nArchitecture: %s\nMaintainer: test <test@localhost>\nDescription: a fetched server, laid out as a package\n' \
        "$major" "$major" "$(dpkg --print-architecture)" > "$root/DEBIAN/control"
    dpkg-deb --root-owner-group -Znone --build "$root" "$file"
    rm -r "$root"
}

deb_file() { printf '%s/%s_%s-1_%s.deb' "$packages" "$1" "$(workspace_version)" "$(dpkg --print-architecture)"; }

test_deb() {
    local major name files package extension
    claim "lintian finds nothing" lintian --fail-on error,warning "$packages"/*.deb
    for major in "${versions[@]}"; do
        name=deb-$major package=postgresql-$major-pystachio
        files=("$(deb_file pystachio-engine)" "$(deb_file "$package")" "$(deb_file "$package-dbgsym")" "$(deb_file pystachio-engine-dbgsym)")
        mkdir -p "$roots/$name/upper/debs"
        if ! is_packaged "$major"; then make_server_deb "$major" "$roots/$name/upper/debs/postgresql-$major.deb" > /dev/null; fi
        cp "${files[@]}" "$roots/$name/upper/debs/"
        mapfile -t extension < <(in_debs "$major" "$package")
        claim "apt refuses the extension for $major without its engine" in_root "$name" sh -c \
            'apt-get update -qq; ! apt-get install -s -q "$@" > /refused 2>&1 && grep "Depends: pystachio-engine" /refused' sh "${extension[@]}"
        claim "apt installs them for PostgreSQL $major" in_root "$name" sh -c 'apt-get update -qq && apt-get install -y -q --no-install-recommends /debs/*.deb'
        claim "a query is answered by PostgreSQL $major" answers "$name" "/usr/lib/postgresql/$major/bin"
        claim "the link beside the extension for $major leads to the engine" in_root "$name" test -x "/usr/lib/postgresql/$major/lib/pystachio-engine"
        claim "debug information for $major is of these binaries" has_debug_information "$name" "/usr/lib/postgresql/$major/lib/pystachio.so" /usr/lib/pystachio/pystachio-engine
        claim "all is gone for $major when removed" in_root "$name" sh -c "apt-get purge -y -q $package pystachio-engine && ! find /usr -name '*pystachio*' | grep ."
        drop_root "$name"
    done
}

# The packages, within a root, of an extension without its engine: in_debs MAJOR PACKAGE.
in_debs() {
    if ! is_packaged "$1"; then printf '/debs/postgresql-%s.deb\n' "$1"; fi
    printf '/debs/%s\n' "$(basename "$(deb_file "$2")")"
}

# Whether the debug information of binaries lies where debuggers look for it: has_debug_information NAME FILE….
has_debug_information() {
    local name=$1 file id
    shift
    for file in "$@"; do
        id=$(readelf -n "$roots/$name/upper$file" | sed -n 's/^ *Build ID: //p')
        [[ $(readelf -S "$roots/$name/upper/usr/lib/debug/.build-id/${id:0:2}/${id:2}.debug") == *.debug_line* ]] || return 1
    done
}

test_tar() {
    local major name archive
    for major in "${versions[@]}"; do
        name=tar-$major archive=$packages/pystachio-$(workspace_version)-pg$major-$(uname -m).tar.xz
        mkdir -p "$roots/$name/upper/debs"
        if is_packaged "$major"; then
            claim "apt installs PostgreSQL $major" in_root "$name" sh -c "apt-get update -qq && apt-get install -y -q --no-install-recommends postgresql-$major"
        else
            make_server_deb "$major" "$roots/$name/upper/debs/server.deb" > /dev/null
            claim "PostgreSQL $major is laid out" in_root "$name" sh -c 'apt-get update -qq && apt-get install -y -q --no-install-recommends libstdc++6 tzdata /debs/server.deb'
        fi
        tar -C "$roots/$name/upper/debs" -xJf "$archive"
        claim "install.sh installs into PostgreSQL $major" in_root "$name" sh -c "/debs/pystachio-*/install.sh /usr/lib/postgresql/$major/bin/pg_config"
        claim "a query is answered by PostgreSQL $major" answers "$name" "/usr/lib/postgresql/$major/bin"
        drop_root "$name"
    done
}

# A package of RPM with a fetched server, and in name the libraries that the root has from Debian: make_server_rpm MAJOR FOLDER PACKAGE…. The
# server of this distribution's own package can't be laid out elsewhere: the package is empty then.
make_server_rpm() {
    local major=$1 folder=$2 root=$roots/server-$1
    shift 2
    if is_packaged "$major"; then
        install -D /dev/null "$root/usr/pgsql-$major/empty"
    else
        lay_server "$major" "$root" "/usr/pgsql-$major" "/usr/pgsql-$major/share"
    fi
    {
        printf 'Name: postgresql%s-server\nVersion: %s.99\nRelease: 1\nSummary: a fetched server, laid out as a package\nLicense: PostgreSQL\nAutoReqProv: no\n' "$major" "$major"
        # What is of the system, and neither of pystachio nor of rpm itself.
        rpm -qp --requires "$@" | sort -u | grep -E '^(lib|ld-linux|rtld)' | sed 's/^/Provides: /'
        printf '%%description\nOf a test.\n%%install\ncp -a "%s/." "%%{buildroot}/"\n%%files\n' "$root"
        (cd "$root" && find . \( -type f -o -type l \) -printf '/%P\n')
    } > "$roots/server-$major.spec"
    rpmbuild -bb --quiet --define "_topdir $roots/rpmbuild" --define "_rpmdir $folder" --define '_rpmfilename server.rpm' --define 'debug_package %{nil}' \
        --define '__os_install_post %{nil}' --define '_build_id_links none' --define '_binary_payload w0.gzdio' "$roots/server-$major.spec" || return 1
    rm -r "$root"
}

rpm_file() { printf '%s/%s-%s-1.%s.rpm' "$packages" "$1" "$(workspace_version)" "$(uname -m)"; }

test_rpm() {
    local major name files
    for major in "${versions[@]}"; do
        name=rpm-$major
        files=("$(rpm_file pystachio-engine)" "$(rpm_file "pystachio_$major")" "$(rpm_file "pystachio_$major-debuginfo")" "$(rpm_file pystachio-engine-debuginfo)")
        mkdir -p "$roots/$name/upper/rpms"
        cp "${files[@]}" "$roots/$name/upper/rpms/"
        claim "a server's package for $major is made" make_server_rpm "$major" "$roots/$name/upper/rpms" "${files[@]}"
        in_root "$name" sh -c 'apt-get update -qq && apt-get install -y -q --no-install-recommends libstdc++6 tzdata' > "$results/rpm-libraries.log" 2>&1
        claim "rpm refuses the extension for $major alone" with_root "$name" '! rpm --root "$root" --install "$root/rpms/$1"' "$(basename "${files[1]}")"
        claim "rpm installs them for PostgreSQL $major" with_root "$name" 'rpm --root "$root" --install "$root"/rpms/*.rpm && rpm --root "$root" --verify "$@"' \
            "pystachio_$major" pystachio-engine
        if ! is_packaged "$major"; then claim "a query is answered by PostgreSQL $major" answers "$name" "/usr/pgsql-$major/bin"; fi
        claim "all is gone for $major when removed" with_root "$name" \
            'rpm --root "$root" --erase "$@" && ! find "$root/usr" -name "*pystachio*" | grep .' \
            "pystachio_$major" pystachio-engine "pystachio_$major-debuginfo" pystachio-engine-debuginfo
        drop_root "$name"
    done
}

test_pgxn() {
    local name folder=$roots/pgxn
    name=pystachio-$(workspace_version)
    mkdir -p "$folder"
    claim "the archive unpacks to one folder" bash -c 'python3 -m zipfile -e "$1" "$2" && [[ $(ls "$2") == "$3" ]]' bash "$packages/$name.zip" "$folder" "$name"
    claim "META.json follows the specification" python3 "$project_root/scripts/packages/check_meta.py" "$folder/$name"
    claim "the sources are those of the commit" bash -c 'diff <(git -C "$1" ls-tree -r --name-only HEAD | grep -v ^.ci/ | sort) <(cd "$2" && find . -type f ! -name META.json -printf "%P\n" | sort)' \
        bash "$project_root" "$folder/$name"
    claim "the sources have all that cargo wants" bash -c 'cd "$1" && cargo metadata --locked --offline --format-version 1 --no-deps' bash "$folder/$name"
}

test_bills() {
    local binary
    claim "SHA256SUMS holds" bash -c 'cd "$1" && sha256sum --check --strict SHA256SUMS' bash "$packages"
    claim "SHA256SUMS names every file" bash -c 'cd "$1" && diff <(cut -c67- SHA256SUMS) <(find . -maxdepth 1 -type f ! -name SHA256SUMS -printf "%P\n" | LC_ALL=C sort)' bash "$packages"
    for binary in engine extension; do
        claim "the bill of the $binary is CycloneDX, and of what is linked" python3 "$project_root/scripts/packages/check_bill.py" \
            "$packages/pystachio-$(workspace_version)-$binary.cdx.json" "$binary"
    done
}

test_repeat() {
    local part parts=()
    for part in tar deb rpm pgxn; do if [[ -n $(find "$packages" -name "*$(part_suffix "$part")") ]]; then parts+=("$part"); fi; done
    claim "it packs again" env OUT="$roots/again" "$project_root/scripts/packages.sh" "${parts[@]}"
    claim "packing twice gives the same bytes" bash -c 'diff <(grep -v "\.oci\.tar" "$1/SHA256SUMS") "$2/SHA256SUMS"' bash "$packages" "$roots/again"
    rm -rf "$roots/again"
}

part_suffix() {
    case $1 in
        tar) echo .tar.xz ;;
        pgxn) echo .zip ;;
        *) echo ".$1" ;;
    esac
}

# Unpacks an image, and starts it as a container runtime would: test_of_image KIND.
test_of_image() {
    local kind=$1 archive name=image$1 root
    archive=$(find "$packages" -name "pystachio-*-pg[0-9]*-$(uname -m)$kind.oci.tar" | sort | sed -n 1p)
    claim "there is an image" test -n "$archive"
    [[ -n $archive ]] || return 0
    mkdir -p "$roots/$name/layout"
    tar -C "$roots/$name/layout" -xf "$archive"
    claim "it has OCI's layout" skopeo inspect "oci:$roots/$name/layout:$(workspace_version)"
    claim "it unpacks" umoci unpack --image "$roots/$name/layout:$(workspace_version)" "$roots/$name/bundle"
    root=$roots/$name/bundle/rootfs
    claim "it has no key, which would be everybody's" bash -c '! find "$1/etc/ssl/private" -type f | grep .' bash "$root"
    if [[ -n $kind ]]; then
        claim "what CUDA's libraries need is in it, but for the driver" bash -c '! chroot "$1" sh -c "ldd /usr/lib/pystachio/cuda/*.so*" | grep "not found" | grep -v libcuda' bash "$root"
        claim "the licences of CUDA's libraries are in it" bash -c '[[ $(find "$1/usr/lib/pystachio/cuda/licenses" -type f | wc -l) == 3 ]]' bash "$root"
    fi
    claim "it refuses to start without a password" bash -c '! run_image "$1" && grep -q POSTGRES_PASSWORD "$1/../log"' bash "$root"
    claim "it starts, and the sample's query is answered" bash -c 'POSTGRES_PASSWORD=secret run_image "$1" && [[ $(< "$1/../answer") == 60175 ]]' bash "$root"
    claim "it starts again from its volume" bash -c 'run_image "$1" && [[ $(< "$1/../answer") == 60175 ]]' bash "$root"
    rm -rf "${roots:?}/$name"
}

# Runs an unpacked image by the configuration of its bundle's image, in namespaces of its own, until a query over TCP was answered:
# run_image ROOT. Leaves the log and the answer beside the root.
run_image() {
    unshare --mount --pid --net --fork --kill-child bash -euo pipefail -c '
        root=$1
        ip link set lo up 2> /dev/null || true
        mount -t proc proc "$root/proc"
        mount -t tmpfs tmpfs "$root/dev"
        mkdir "$root/dev/shm"
        for device in null zero random urandom; do touch "$root/dev/$device"; mount --bind "/dev/$device" "$root/dev/$device"; done
        mapfile -t variables < <(python3 -c "import json, sys; print(*json.load(open(sys.argv[1]))[\"process\"][\"env\"], sep=\"\n\")" "$root/../config.json")
        mapfile -t command < <(python3 -c "import json, sys; print(*json.load(open(sys.argv[1]))[\"process\"][\"args\"], sep=\"\n\")" "$root/../config.json")
        inside() { chroot "$root" env -i "${variables[@]}" "$@"; }
        inside ${POSTGRES_PASSWORD:+POSTGRES_PASSWORD="$POSTGRES_PASSWORD"} "${command[@]}" > "$root/../log" 2>&1 &
        server=$!
        for ((wait = 0; wait < 120; wait++)); do
            kill -0 "$server" 2> /dev/null || { cat "$root/../log"; exit 1; }
            if inside PGPASSWORD=secret psql -h 127.0.0.1 -U postgres -X -A -t -c "SELECT count(*) FROM tpch.lineitem" > "$root/../answer" 2> /dev/null; then break; fi
            sleep 1
        done
        inside setpriv --reuid=postgres --regid=postgres --init-groups sh -c "pg_ctl -D \"\$PGDATA\" -m fast -w stop"
        wait "$server" || true' bash "$1"
}
export -f run_image

test_image() { test_of_image ""; }
test_cuda() { test_of_image -cuda; }

# The parts of scripts/packages.sh that the areas need.
needed_parts() {
    local part
    for part in tar deb rpm pgxn image cuda; do if wanted "$part"; then echo "$part"; fi; done
    if ! wanted tar && ! wanted deb && ! wanted rpm && ! wanted pgxn; then echo pgxn; fi
}

make_base_root
if [[ ${MADE:-0} != 1 ]]; then
    rm -rf "$packages"
    mapfile -t parts < <(needed_parts)
    "$project_root/scripts/packages.sh" "${parts[@]}"
fi
for name in tar deb rpm pgxn bills repeat image cuda; do run_area "$name"; done
rm -f "$results/output"
python3 "$project_root/scripts/tally.py" "$results" "$status" "${areas[@]}"
