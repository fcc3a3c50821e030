#!/usr/bin/env bash
# Makes target/packages: all forms in which pystachio is installed without a build, for each PostgreSQL, with a list of what is in
# the binaries, and SHA256SUMS.
#
# usage: [NAME=VALUE]… scripts/packages.sh [PART]…     all parts by default, but cuda, and image where we are not root
#   tar      pystachio-<version>-pg<major>-<architecture>.tar.xz (scripts/package.sh)
#   deb      pystachio-engine, postgresql-<major>-pystachio, and -dbgsym of each
#   rpm      pystachio-engine, pystachio_<major>, and -debuginfo of each
#   pgxn     pystachio-<version>.zip: the sources, with META.json
#   image    an OCI image for each PostgreSQL that Debian has, without CUDA's libraries
#   cuda     the same with the CUDA libraries that the engine loads
#   VERSIONS="15 16 17 18"       versions of PostgreSQL
#   PYSTACHIO_PROFILE=packages   how it is compiled (scripts/build.sh); `release` is built sooner and not the same everywhere
#   STAGES=folder                builds that lie there already, a folder for each version as scripts/build.sh lays it out
#   OUT=folder                   default: target/packages
#   LEVEL=6                      how hard to compress, 0 to 9; tests take 0
#
# The same build gives the same bytes: times are those of the commit (SOURCE_DATE_EPOCH), names are sorted, owners are root.
#
# The engine's executable knows no PostgreSQL: it is one file for all versions, three quarters of all bytes, and so a package of its own,
# of exactly the version that the extension asks for. Beside each extension lies a link to it.
source "$(dirname "$0")/environment.sh"
source "$(dirname "$0")/packages/contents.sh"
source "$(dirname "$0")/packages/deb.sh"
source "$(dirname "$0")/packages/rpm.sh"
source "$(dirname "$0")/packages/pgxn.sh"
source "$(dirname "$0")/packages/image.sh"

read -ra versions <<< "${VERSIONS:-$SERVER_VERSIONS}"
parts=("$@")
if [[ $# -eq 0 ]]; then
    parts=(tar deb rpm pgxn)
    if [[ $(id -u) == 0 ]]; then parts+=(image); fi
fi
level=${LEVEL:-6}
out=$(realpath -m "${OUT:-$project_root/target/packages}")
export PYSTACHIO_PROFILE=${PYSTACHIO_PROFILE:-packages}

wanted() { [[ " ${parts[*]} " == *" $1 "* ]]; }

make_tar() {
    local major
    export LEVEL=$level
    for major in "${versions[@]}"; do "$project_root/scripts/package.sh" --stage "$(stage_of "$major")" "$major" "$out"; done
}

for part in "${parts[@]}"; do
    case $part in
        tar | deb | rpm | pgxn | image | cuda) ;;
        *) die "there is no part $part: tar, deb, rpm, pgxn, image, cuda" ;;
    esac
done
cd "$project_root"
mkdir -p "$out"
work=$(mktemp -d "$out/work-XXXXXX")
trap 'rm -rf "$work"' EXIT
prepare_binaries
if wanted tar; then make_tar; fi
if wanted deb; then make_deb; fi
if wanted rpm; then make_rpm; fi
if wanted pgxn; then make_pgxn; fi
if wanted image; then make_images; fi
if wanted cuda; then make_images cuda; fi
cp "$work"/materials/*.cdx.json "$out/"
(cd "$out" && find . -maxdepth 1 -type f ! -name SHA256SUMS -printf '%P\n' | LC_ALL=C sort | xargs sha256sum) > "$work/sums"
mv "$work/sums" "$out/SHA256SUMS"
say "made $out: $(wc -l < "$out/SHA256SUMS") files, $(du -sh --exclude='work-*' "$out" | cut -f1)"
