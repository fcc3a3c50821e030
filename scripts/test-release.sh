#!/usr/bin/env bash
# The package of an earlier release is replaced by this tree's below a running server, which is restarted then and updates its
# extension; and this tree's by the earlier one, without a restart: nothing goes back to an earlier version. Run by hand before a
# release, since the earlier one is compiled first. The last line counts: 'N passed, N failed'.
#
# usage: scripts/test-release.sh REVISION     the commit of the earlier release
source "$(dirname "$0")/environment.sh"

[[ $# == 1 ]] || die "usage: test-release.sh REVISION"
revision=$(git -C "$project_root" rev-parse --verify "$1^{commit}") || die "no commit $1: name that of a release"
checkout=$cache_root/release-${revision:0:12}
if [[ ! -d $checkout ]]; then git -C "$project_root" worktree add --detach "$checkout" "$revision" > /dev/null; fi
# It has a build folder of its own.
earlier=$(env -u CARGO_TARGET_DIR "$checkout/scripts/build.sh")
own=$("$project_root/scripts/build.sh")
config=$(find_pg_config)
passed=0 failed=0
trap '"$project_root/scripts/cluster.sh" stop release' EXIT

# The version that a build makes by default.
version() { sed -n "s/^default_version = '\(.*\)'/\1/p" "$1/extension/pystachio.control"; }

# One package replaces the other: replace FROM TO restart|run-on.
replace() {
    local folder arguments
    folder=$("$project_root/scripts/cluster.sh" create release "$1")
    cp "$project_root/regress/data/t1.parquet" "$folder/"
    chmod a+r "$folder/t1.parquet"
    arguments=("$("$project_root/scripts/cluster.sh" conninfo release)" "$folder" "$folder/server$("$config" --pkglibdir)"
        "$folder/server$("$config" --sharedir)/extension" "$2" "$(version "$1")" "$(version "$2")")
    python3 "$project_root/regress/release.py" before "${arguments[@]}"
    [[ $3 == restart ]] || return 0
    "$project_root/scripts/cluster.sh" start release "$2" > /dev/null
    python3 "$project_root/regress/release.py" after "${arguments[@]}"
}

for case in "$earlier $own restart" "$own $earlier run-on"; do
    read -r from to then <<< "$case"
    say "$(version "$from") is replaced by $(version "$to"): $then"
    # In a shell of its own, so that the first command that fails ends it.
    set +e
    (set -e; replace "$from" "$to" "$then")
    if [[ $? == 0 ]]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
    set -e
done
printf '%d passed, %d failed\n' "$passed" "$failed"
[[ $failed == 0 ]]
