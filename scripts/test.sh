#!/usr/bin/env bash
# Every test that needs no GPU. The last line counts: 'N passed, N failed'.
#
# usage: scripts/test.sh [--whole] [rust|kernels|benches|docs|scripts|regress|differential|core|faults|emulated]…    all areas by default
#
# Of the long suites a share runs (PYSTACHIO_TEST_SHARE, a quarter unless set), which a seed chooses (PYSTACHIO_TEST_SEED;
# by default the commit's, so that every commit tries other queries and a run can be repeated). --whole runs all of them.
source "$(dirname "$0")/environment.sh"

share=${PYSTACHIO_TEST_SHARE:-0.25}
if [[ ${1:-} == --whole ]]; then
    share=1
    shift
fi
seed=$(test_seed "$share")
areas=("$@")
[[ $# -gt 0 ]] || areas=(rust kernels benches docs scripts regress differential core faults emulated)
results=$project_root/target/results
rm -rf "$results"
mkdir -p "$results"
status=0
say "seed $seed, share $share of the long suites: PYSTACHIO_TEST_SEED=$seed PYSTACHIO_TEST_SHARE=$share repeats them"

wanted() { [[ " ${areas[*]} " == *" $1 "* ]]; }

# Writes an area's counts: count NAME PASSED FAILED.
count() { printf '{"passed": %d, "failed": %d}\n' "$2" "$3" > "$results/$1.json"; }

# Runs an area, and notes how long it took: area NAME COMMAND….
area() {
    local name=$1 begin=$SECONDS
    shift
    wanted "$name" || return 0
    "$@" || status=1
    printf '%d' $((SECONDS - begin)) > "$results/$name.seconds"
}

differential() { python3 "$project_root/regress/differential/run.py" --seed "$seed" --share "$share" "$@"; }

# A cluster with the extension in a database `differential`; prints how to connect to that.
differential_database() {
    psql "$1 dbname=postgres" -X -q -c 'CREATE DATABASE differential' -c '\c differential' -c 'CREATE EXTENSION pystachio' >&2
    printf '%s dbname=differential' "$1"
}

# What the tests of Rust may take, once they are built: several times what they need on two cores.
rust_seconds_max=2400

# Tests that had begun long ago and have no result.
unended() {
    comm -23 <(sed -nE 's/^test (.*) has been running for over .*/\1/p' "$1" | sort) \
        <(sed -nE 's/^test (.*) \.\.\. .*/\1/p' "$1" | sort) | paste -sd ' '
}

# The engine's tests over an emulated device that works late, in the orders of some seeds (src/gpu/device/emulated): few of
# them, or, with --whole, more and all tests. A seed that fails is named above what failed; PYSTACHIO_EMULATED=seed=N repeats it.
run_orders() {
    local outcome=0 number count=2 filters=(device:: operation:: spill:: execution::tests::{join::kinds,sorts,aggregate::kinds,scan::row_groups,scan::storage,scan::tiers,ranks::plans}::)
    if [[ $share == 1 ]]; then
        count=6
        filters=(device:: operation:: decode:: spill:: execution:: --skip mutants)
    fi
    for ((number = 0; number < count; number++)); do
        say "streams late, in the order of PYSTACHIO_EMULATED=seed=$((seed + number))"
        PYSTACHIO_EMULATED="seed=$((seed + number))" timeout "$rust_seconds_max" "$@" --no-fail-fast -- "${filters[@]}" \
            --skip late:: || outcome=$?
    done
    return "$outcome"
}

run_rust() {
    local log=$results/rust.log passed failed outcome=0
    local selection tests
    cd "$project_root"
    prepare_target
    select_workspace
    tests=(cargo test --release "${selection[@]}")
    if "${tests[@]}" --no-run 2>&1 | tee "$log"; then
        timeout "$rust_seconds_max" "${tests[@]}" --no-fail-fast 2>&1 | tee "$log" || outcome=$?
        run_orders "${tests[@]}" 2>&1 | tee -a "$log" || outcome=$?
    else
        outcome=1
    fi
    passed=$(sed -nE 's/^test result: .* ([0-9]+) passed; .*/\1/p' "$log" | awk '{total += $1} END {print total + 0}')
    failed=$(sed -nE 's/^test result: .* ([0-9]+) failed; .*/\1/p' "$log" | awk '{total += $1} END {print total + 0}')
    # A crate that does not compile has no result line, and must count; what processes of tests print does not. So must a test
    # that does not end.
    if [[ $outcome != 0 && $failed == 0 ]]; then failed=1; fi
    if [[ $outcome == 124 ]]; then
        say "tests of Rust did not end in $rust_seconds_max s; those that run: $(unended "$log")"
        failed=$((failed + 1))
    fi
    count rust "$passed" "$failed"
    if [[ $failed != 0 ]]; then grep -E '^test .* FAILED$|^error' "$log" > "$results/rust.failures" || true; fi
    return "$outcome"
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

# What benchmarks reckon and draw, without a server; and that of ranks with little, on emulated ones, whose answers must be right.
run_benches() {
    local log=$results/benches.log python ran failed outcome=0
    python=$("$project_root/scripts/pyarrow.sh")
    "$python" -m unittest discover -s "$project_root/benches" -p 'test_*.py' > "$log" 2>&1 || outcome=1
    ran=$(sed -nE 's/^Ran ([0-9]+) tests? in .*/\1/p' "$log")
    failed=$(sed -nE 's/^FAILED \((.*)\)$/\1/p' "$log" | grep -oE '[0-9]+' | awk '{total += $1} END {print total}')
    # What did not come to its end, or tests nothing, counts as a failure.
    if [[ ${ran:-0} == 0 || ($outcome != 0 && -z $failed) ]]; then ran=1 failed=1 outcome=1; fi
    if [[ $outcome != 0 ]]; then tail -n 40 "$log" >&2; fi
    if ! DEVICE=emulated OUT=$results/bench-ranks QUERIES="3 9 18" RUNS=1 JOIN_ROWS=0.0005 LIMIT_S=200 \
        STEPS="generate hot kill timeline warm paper_join large_join" "$project_root/scripts/bench-ranks.sh" >> "$log" 2>&1; then
        tail -n 40 "$log" >&2
        failed=$((${failed:-0} + 1)) outcome=1
    fi
    count benches $((ran + 1 - ${failed:-0})) "${failed:-0}"
    return "$outcome"
}

run_scripts() { "$project_root/scripts/test-scripts.sh" --stage "$stage" "$results/scripts.json"; }

run_docs() { "$project_root/scripts/test-docs.sh" --stage "$stage" --counts "$results/docs.json"; }

run_regress() { "$project_root/regress/run.sh" "$config" "$folder" "$results/regress.json"; }

run_differential() {
    local database outcome=0
    database=$(differential_database "$conninfo")
    differential "$database" --data "$folder/edges" --tpch "$folder/tpch" --counts "$results/differential.json" || outcome=1
    psql "$conninfo dbname=postgres" -X -q -c 'CREATE DATABASE self_check'
    python3 "$project_root/regress/differential/run.py" "$conninfo dbname=self_check" --data "$folder/edges" --self-check \
        --counts "$results/self-check.json" > "$results/self-check.log" 2>&1 || { tail -n 30 "$results/self-check.log"; outcome=1; }
    tail -n 1 "$results/self-check.log"
    return "$outcome"
}

run_faults() {
    local bare_folder bare outcome=0
    bare_folder=$("$project_root/scripts/cluster.sh" create bare "$stage")
    bare=$("$project_root/scripts/cluster.sh" conninfo bare)
    python3 "$project_root/regress/faults/run.py" "$conninfo" "$folder" --bare "$bare" "$bare_folder" --stage "$stage" \
        --counts "$results/faults.json" || outcome=1
    "$project_root/scripts/cluster.sh" stop bare
    return "$outcome"
}

# The GPU engine on the host: its kernels' own sources under the tests that the CPU engine was tested by. The threads of a
# block run from the last to the first here and from the first to the last in the tests of Rust: a missing barrier shows. And
# what is enqueued happens late, in the order of a seed: who takes something before it is there shows too.
run_emulated() {
    local emulated_folder emulated outcome=0 suite suites=()
    say "emulated device: streams late, in the order of PYSTACHIO_EMULATED=seed=$seed"
    emulated_folder=$(PYSTACHIO_EMULATED_ORDER=descending PYSTACHIO_EMULATED="seed=$seed" \
        "$project_root/scripts/cluster.sh" create emulated "$stage")
    emulated=$("$project_root/scripts/cluster.sh" conninfo emulated)
    "$project_root/regress/run.sh" "$config" "$emulated_folder" "$results/emulated-regress.json" || outcome=1
    for suite in data generated views tpch spec optimized ranks writers; do suites+=(--suite "$suite"); done
    differential "$(differential_database "$emulated")" --data "$emulated_folder/edges" --tpch "$emulated_folder/tpch" \
        "${suites[@]}" --counts "$results/emulated.json" || outcome=1
    "$project_root/scripts/cluster.sh" stop emulated
    return "$outcome"
}

# PostgreSQL's own regression queries: a slice of so many seconds, or all of them.
core_seconds=60
run_core() {
    local slice=(--slice "$core_seconds")
    if [[ $share == 1 ]]; then slice=(); fi
    "$project_root/scripts/core.sh" "$results/core.json" --seed "$seed" "${slice[@]}"
}

stop_clusters() {
    local name
    for name in test docs bare emulated hosts standby; do "$project_root/scripts/cluster.sh" stop "$name"; done
}

area rust run_rust
area kernels run_kernels
area benches run_benches
if wanted docs || wanted scripts || wanted regress || wanted differential || wanted faults || wanted emulated; then
    trap stop_clusters EXIT
    stage=$("$project_root/scripts/build.sh")
    area docs run_docs
    area scripts run_scripts
fi
if wanted regress || wanted differential || wanted faults || wanted emulated; then
    folder=$("$project_root/scripts/cluster.sh" create test "$stage")
    conninfo=$("$project_root/scripts/cluster.sh" conninfo test)
    config=$(find_pg_config)
    export PYSTACHIO_TEST_FOLDER=$folder
    area regress run_regress
    area differential run_differential
    area faults run_faults
    area emulated run_emulated
fi

area core run_core

if wanted differential; then areas+=(self-check); fi
if wanted emulated; then areas+=(emulated-regress); fi
python3 "$project_root/scripts/tally.py" "$results" "$status" "${areas[@]}"
