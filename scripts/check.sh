#!/usr/bin/env bash
# Tells within three minutes, once things are built, whether a change is worth a full run: formatting, lints and unit tests
# of the crates that changed, and the 22 queries of TPC-H on the CPU engine and on the emulated device.
#
# usage: scripts/check.sh [COMMIT]    what changed since COMMIT; by default since main's last commit, uncommitted work included
source "$(dirname "$0")/environment.sh"

cd "$project_root"
base=${1:-HEAD}
mapfile -t changed < <({ git diff --name-only "$base"; git ls-files --others --exclude-standard; } | sort -u)
[[ ${#changed[@]} -gt 0 ]] || mapfile -t changed < <(git diff --name-only HEAD~1)
results=$project_root/target/check
rm -rf "$results"
mkdir -p "$results"
config=$(find_pg_config) || die "no PostgreSQL server found: run scripts/setup.sh, or set PG_CONFIG"
features=(--no-default-features --features "pg$(server_version "$config")")

# The package of a changed file, where it belongs to one.
package_of() {
    case $1 in
        src/extension/*) echo pystachio ;;
        kernels/*) echo pystachio-gpu ;;
        src/*/*) local folder=${1#src/}; echo "pystachio-${folder%%/*}" ;;
    esac
}

# What the unit tests near a changed file are called: its path as a module, without the file's own name if that is mod or lib.
module_of() {
    local path=${1#src/*/}
    path=${path%.rs}
    path=${path%/mod}
    path=${path%/tests}
    [[ $1 == *.rs && $1 != src/*/tests/* && $path != lib && $path != main ]] && echo "${path//\//::}"
}

# Runs a step with its output in a log; prints one line.
step() {
    local name=$1 log=$results/${1// /-}.log begin=$SECONDS
    shift
    if "$@" > "$log" 2>&1; then
        say "ok      $name ($((SECONDS - begin)) s)"
    else
        say "FAILED  $name ($((SECONDS - begin)) s), log $log"
        tail -n 30 "$log" >&2
        failed=$((failed + 1))
    fi
}

lint_package() {
    local arguments=(--all-targets)
    if [[ $1 == pystachio ]]; then arguments=("${features[@]}"); fi
    PGRX_PG_CONFIG_PATH=$config cargo clippy --release --locked --package "$1" "${arguments[@]}" -- -D warnings
}

queries_on() {
    local cluster=$1 folder conninfo
    folder=$(scripts/cluster.sh create "$cluster" "$stage")
    conninfo=$(scripts/cluster.sh conninfo "$cluster")
    psql "$conninfo dbname=postgres" -X -q -c 'CREATE DATABASE differential' -c '\c differential' -c 'CREATE EXTENSION pystachio'
    python3 regress/differential/run.py "$conninfo dbname=differential" --data "$folder/edges" --tpch "$folder/tpch" --suite tpch
}

failed=0
mapfile -t packages < <(for file in "${changed[@]}"; do package_of "$file"; done | sort -u)
say "changed: ${packages[*]:-no crate}"
step "formatting" cargo fmt --all --check
stage=$(scripts/build.sh 2> "$results/build.log") || { tail -n 30 "$results/build.log" >&2; die "the build failed"; }
for package in "${packages[@]}"; do
    step "lints of $package" lint_package "$package"
    [[ $package != pystachio ]] || continue
    mapfile -t modules < <(for file in "${changed[@]}"; do
        if [[ $(package_of "$file") == "$package" ]]; then module_of "$file" || true; fi
    done | sort -u)
    # A change outside modules (a kernel, a manifest) is tried by the queries below.
    if [[ ${#modules[@]} -gt 0 ]]; then
        step "unit tests of $package" timeout 120 cargo test --release --locked --package "$package" -- "${modules[@]}"
    fi
done
trap 'scripts/cluster.sh stop test; scripts/cluster.sh stop emulated' EXIT
step "TPC-H on the CPU engine" queries_on test
step "TPC-H on the emulated device" queries_on emulated
say "$((SECONDS)) s"
[[ $failed == 0 ]] || die "$failed of the steps failed"
