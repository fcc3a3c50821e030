#!/usr/bin/env bash
# Every test that needs no GPU. The last line counts: 'N passed, N failed'.
#
# usage: scripts/test.sh [--whole] [AREA]…    all areas by default; `faults` is all of its parts
#   rust          unit tests of every crate but the extension     kernels       kernels compile for every GPU
#   benches       what benchmarks compute and draw                docs          what README and docs/ show
#   scripts       what a person runs first                        regress       SQL tests
#   differential  foreign tables against heap tables              emulated      both on the emulated device
#   core          PostgreSQL's own regression queries           beside        other extensions, drivers, poolers
#   faults-engines faults-clients faults-ranks faults-rights      killed engines, many clients, ranks and hosts, missing rights
#
# A share of the long suites runs (PYSTACHIO_TEST_SHARE, a quarter unless set), which a seed chooses (PYSTACHIO_TEST_SEED, by
# default the commit's). --whole runs all of them, and a benchmark of emulated ranks. The emulated device works late, in the
# order of that seed, unless PYSTACHIO_EMULATED says otherwise.
#
# First come the tests of Rust, on all cores. Then PYSTACHIO_TEST_LANES areas run side by side (by default one more than there are
# cores, as faults wait for clocks and clients). Each has a cluster of its own, and prints its output when it ends.
# PYSTACHIO_TEST_ORDER=N runs the tests of an area in the order that this number chooses.
source "$(dirname "$0")/environment.sh"

share=${PYSTACHIO_TEST_SHARE:-0.25}
if [[ ${1:-} == --whole ]]; then
    share=1
    shift
fi
seed=$(test_seed "$share")
export PYSTACHIO_TEST_SHARE=$share PYSTACHIO_TEST_SEED=$seed PYSTACHIO_EMULATED=${PYSTACHIO_EMULATED-seed=$seed}
order=${PYSTACHIO_TEST_ORDER:-}
lanes=${PYSTACHIO_TEST_LANES:-$(($(nproc) + 1))}
# The modules of regress/faults by the area that runs them.
declare -A fault_modules=(
    [faults-ranks]="ranks standby"
    [faults-engines]="cancel divided files stores writing processes hang watching cursors"
    [faults-clients]="clients admission hosts nesting planning"
    [faults-rights]="access views policies roles upgrade supervisor"
)
# The longest first, so that none is left alone at the end.
fault_areas=(faults-ranks faults-clients faults-engines faults-rights)
# Their clusters. Short names: paths below a cluster are names of schemas, of at most 63 bytes (STATE_PATH_BYTES_MAX).
declare -A fault_clusters=([faults-ranks]=f1 [faults-clients]=f2 [faults-engines]=f3 [faults-rights]=f4)
areas=()
for name in "$@"; do
    if [[ $name == faults ]]; then areas+=("${fault_areas[@]}"); else areas+=("$name"); fi
done
[[ $# -gt 0 ]] || areas=(rust kernels benches docs scripts regress differential core "${fault_areas[@]}" emulated beside)
results=$project_root/target/results
rm -rf "$results"
mkdir -p "$results"
status=0
say "seed $seed, share $share of the long suites: PYSTACHIO_TEST_SEED=$seed PYSTACHIO_TEST_SHARE=$share repeats them"
say "the emulated device: PYSTACHIO_EMULATED=$PYSTACHIO_EMULATED"

wanted() { [[ " ${areas[*]} " == *" $1 "* ]]; }

# Writes an area's counts: count NAME PASSED FAILED.
count() { printf '{"passed": %d, "failed": %d}\n' "$2" "$3" > "$results/$1.json"; }

# Runs an area, and notes how long it took and whether it failed: area NAME COMMAND….
area() {
    local name=$1 begin=$SECONDS
    shift
    wanted "$name" || return 0
    # Not as a condition, within which bash would go on after a command that fails.
    set +e
    (
        set -e
        "$@"
    )
    [[ $? == 0 ]] || touch "$results/failed"
    set -e
    printf '%d' $((SECONDS - begin)) > "$results/$name.seconds"
}

# Runs an area beside others, and prints its output in one piece at its end: beside NAME COMMAND….
beside() {
    wanted "$1" || return 0
    while [[ $(jobs -rp | wc -l) -ge $lanes ]]; do wait -n || true; done
    {
        area "$@" > "$results/$1.log" 2>&1
        exec 7> "$results/output.lock"
        flock 7
        printf '\n%s, %d s:\n' "$1" "$(< "$results/$1.seconds")"
        cat "$results/$1.log"
    } &
}

# Makes the cluster of an area, which ends with the area: sets `folder` and `conninfo`.
use_cluster() {
    folder=$("$project_root/scripts/cluster.sh" create "$1" "$stage")
    # shellcheck disable=SC2064
    trap "'$project_root/scripts/cluster.sh' stop '$1'" EXIT
    conninfo=$("$project_root/scripts/cluster.sh" conninfo "$1")
}

differential() {
    python3 "$project_root/regress/differential/run.py" --seed "$seed" --share "$share" ${order:+--order "$order"} "$@"
}

# A database `differential` with the extension; prints how to connect to it.
differential_database() {
    psql "$conninfo dbname=postgres" -X -q -c 'CREATE DATABASE differential' -c '\c differential' -c 'CREATE EXTENSION pystachio' >&2
    printf '%s dbname=differential' "$conninfo"
}

# Several times what the tests of Rust need on two cores, once they are built. cargo-nextest has a limit for each of them instead.
rust_seconds_max=2400

# Tests that began long ago and have no result.
unended() {
    comm -23 <(sed -nE 's/^test (.*) has been running for over .*/\1/p' "$1" | sort) \
        <(sed -nE 's/^test (.*) \.\.\. .*/\1/p' "$1" | sort) | paste -sd ' '
}

# Tests of Rust in a process each, of all crates side by side.
run_nextest() {
    local outcome=0 junit=$project_root/target/nextest/default/junit.xml
    rm -f "$junit"
    cargo nextest run --release "${selection[@]}" || outcome=$?
    # Where a crate does not compile there is no report, and no counts.
    [[ -f $junit ]] || return 1
    python3 "$project_root/scripts/nextest_counts.py" "$junit" "$results" rust
    return "$outcome"
}

# The same without cargo-nextest: one crate after another.
run_cargo_test() {
    local log=$results/rust.log passed failed outcome=0
    if cargo test --release "${selection[@]}" --no-run 2>&1 | tee "$log"; then
        timeout "$rust_seconds_max" cargo test --release "${selection[@]}" --no-fail-fast 2>&1 | tee "$log" || outcome=$?
    else
        outcome=1
    fi
    passed=$(sed -nE 's/^test result: .* ([0-9]+) passed; .*/\1/p' "$log" | awk '{total += $1} END {print total + 0}')
    failed=$(sed -nE 's/^test result: .* ([0-9]+) failed; .*/\1/p' "$log" | awk '{total += $1} END {print total + 0}')
    # A crate that does not compile has no result line and must count, and so must a test that does not end.
    if [[ $outcome != 0 && $failed == 0 ]]; then failed=1; fi
    if [[ $outcome == 124 ]]; then
        say "tests of Rust did not end in $rust_seconds_max s; those that run: $(unended "$log")"
        failed=$((failed + 1))
    fi
    count rust "$passed" "$failed"
    if [[ $failed != 0 ]]; then grep -E '^test .* FAILED$|^error' "$log" > "$results/rust.failures" || true; fi
    return "$outcome"
}

run_rust() {
    local selection
    cd "$project_root"
    prepare_target
    select_workspace
    if cargo nextest --version > /dev/null 2>&1; then run_nextest; else run_cargo_test; fi
}

# Compiles every kernel for every GPU that is supported, where there is a compiler.
run_kernels() {
    local report=$project_root/target/kernels.tsv
    if ! find_nvcc >/dev/null; then
        say "kernels: no nvcc, so they are compiled for the emulated device only"
        count kernels 0 0
        return
    fi
    if ! "$project_root/scripts/kernels.sh" "$report"; then
        count kernels 0 1
        return 1
    fi
    count kernels "$(awk -F'\t' 'NR > 1' "$report" | wc -l)" 0
}

# What benchmarks compute and draw, without a server. With --whole also that of ranks, small, on emulated ones, whose answers must be right.
run_benches() {
    local log=$results/benches.tests.log python ran failed outcome=0
    python=$("$project_root/scripts/pyarrow.sh")
    "$python" -m unittest discover -s "$project_root/benches" -p 'test_*.py' > "$log" 2>&1 || outcome=1
    ran=$(sed -nE 's/^Ran ([0-9]+) tests? in .*/\1/p' "$log")
    failed=$(sed -nE 's/^FAILED \((.*)\)$/\1/p' "$log" | { grep -oE '[0-9]+' || true; } | awk '{total += $1} END {print total}')
    # A run that does not end, or that tests nothing, counts as a failure.
    if [[ ${ran:-0} == 0 || ($outcome != 0 && -z $failed) ]]; then ran=1 failed=1 outcome=1; fi
    if [[ $share == 1 ]]; then
        ran=$((ran + 1))
        if ! DEVICE=emulated OUT=$results/bench-ranks QUERIES="3 9 18" RUNS=1 JOIN_ROWS=0.0005 LIMIT_S=200 \
            STEPS="generate hot kill timeline warm paper_join large_join" "$project_root/scripts/bench-ranks.sh" >> "$log" 2>&1; then
            failed=$((${failed:-0} + 1)) outcome=1
        fi
    fi
    if [[ $outcome != 0 ]]; then tail -n 40 "$log" >&2; fi
    count benches $((ran - ${failed:-0})) "${failed:-0}"
    return "$outcome"
}

run_scripts() { "$project_root/scripts/test-scripts.sh" --stage "$stage" "$results/scripts.json"; }

run_docs() { "$project_root/scripts/test-docs.sh" --stage "$stage" --counts "$results/docs.json"; }

run_regress() {
    use_cluster test
    export PYSTACHIO_TEST_ORDER=$order
    "$project_root/regress/run.sh" "$config" "$folder" "$results/regress.json"
}

run_differential() {
    local outcome=0
    use_cluster diff
    differential "$(differential_database)" --data "$folder/edges" --tpch "$folder/tpch" --counts "$results/differential.json" || outcome=1
    psql "$conninfo dbname=postgres" -X -q -c 'CREATE DATABASE self_check'
    python3 "$project_root/regress/differential/run.py" "$conninfo dbname=self_check" --data "$folder/edges" --self-check \
        --counts "$results/self-check.json" > "$results/self-check.log" 2>&1 || { tail -n 30 "$results/self-check.log"; outcome=1; }
    tail -n 1 "$results/self-check.log"
    return "$outcome"
}

# Some modules of the faults: run_faults AREA.
run_faults() {
    local options=() module outcome=0 bare
    use_cluster "${fault_clusters[$1]}"
    for module in ${fault_modules[$1]}; do options+=(--module "$module"); done
    if [[ $1 == faults-rights ]]; then
        bare=$("$project_root/scripts/cluster.sh" create bare "$stage")
        options+=(--bare "$("$project_root/scripts/cluster.sh" conninfo bare)" "$bare")
    fi
    python3 "$project_root/regress/faults/run.py" "$conninfo" "$folder" "${options[@]}" --stage "$stage" ${order:+--order "$order"} \
        --counts "$results/$1.json" || outcome=1
    if [[ -n ${bare:-} ]]; then "$project_root/scripts/cluster.sh" stop bare; fi
    return "$outcome"
}

# The GPU engine on the host: its kernels' own sources under the tests of the CPU engine. The threads of a block run from the last
# to the first here, and from the first to the last in the tests of Rust: a missing barrier shows.
run_emulated() {
    local outcome=0 suite suites=()
    export PYSTACHIO_EMULATED_ORDER=descending PYSTACHIO_TEST_ORDER=$order
    use_cluster emulated
    "$project_root/regress/run.sh" "$config" "$folder" "$results/emulated-regress.json" || outcome=1
    for suite in data generated views tpch spec optimized ranks writers; do suites+=(--suite "$suite"); done
    differential "$(differential_database)" --data "$folder/edges" --tpch "$folder/tpch" "${suites[@]}" --counts "$results/emulated.json" || outcome=1
    return "$outcome"
}

# PostgreSQL's own regression queries: a slice of so many seconds, or all of them.
core_seconds=40
run_core() {
    local slice=(--slice "$core_seconds")
    if [[ $share == 1 ]]; then slice=(); fi
    "$project_root/scripts/core.sh" "$results/core.json" --seed "$seed" "${slice[@]}"
}

# What users run beside pystachio, as far as its packages can be had: the rest is skipped, and the area's output says why.
run_beside() {
    local packages=$results/beside.packages python
    "$project_root/scripts/beside.sh" > "$packages"
    python=$(awk -F'\t' '$1 == "have" && $2 == "drivers" { print $4 }' "$packages")
    use_cluster beside
    "${python:-python3}" "$project_root/regress/beside/run.py" "$conninfo" "$folder" --packages "$packages" --stage "$stage" \
        --counts "$results/beside.json"
}

# An interrupted run leaves no area at work.
end_areas() {
    local left
    mapfile -t left < <(jobs -rp)
    [[ ${#left[@]} -gt 0 ]] || return 0
    kill "${left[@]}" 2> /dev/null || true
    for name in test diff docs scripts bare emulated hosts standby super beside "${fault_clusters[@]}"; do "$project_root/scripts/cluster.sh" stop "$name"; done
}
trap end_areas EXIT

area rust run_rust
for name in docs scripts regress differential "${fault_areas[@]}" emulated core beside; do
    if wanted "$name"; then
        stage=$("$project_root/scripts/build.sh")
        config=$(find_pg_config)
        break
    fi
done
beside differential run_differential
beside faults-ranks run_faults faults-ranks
beside emulated run_emulated
beside faults-clients run_faults faults-clients
beside faults-engines run_faults faults-engines
beside core run_core
beside beside run_beside
beside faults-rights run_faults faults-rights
beside regress run_regress
beside kernels run_kernels
beside docs run_docs
beside scripts run_scripts
beside benches run_benches
wait
if [[ -e $results/failed ]]; then status=1; fi

if wanted differential; then areas+=(self-check); fi
if wanted emulated; then areas+=(emulated-regress); fi
python3 "$project_root/scripts/tally.py" "$results" "$status" "${areas[@]}"
