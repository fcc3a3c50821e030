#!/usr/bin/env bash
# Every test that needs no GPU. The last line counts: 'N passed, N failed'.
#
# usage: scripts/test.sh [rust|kernels|regress|differential|faults|emulated]…    all of them by default
source "$(dirname "$0")/environment.sh"

areas=("$@")
[[ $# -gt 0 ]] || areas=(rust kernels regress differential faults emulated)
results=$project_root/target/results
rm -rf "$results"
mkdir -p "$results"
status=0

wanted() { [[ " ${areas[*]} " == *" $1 "* ]]; }

# Writes an area's counts: count NAME PASSED FAILED.
count() { printf '{"passed": %d, "failed": %d}\n' "$2" "$3" > "$results/$1.json"; }

# What the tests of Rust may take, once they are built: several times what they need on two cores.
rust_seconds_max=2400

# Tests that had begun long ago and have no result.
unended() {
    comm -23 <(sed -nE 's/^test (.*) has been running for over .*/\1/p' "$1" | sort) \
        <(sed -nE 's/^test (.*) \.\.\. .*/\1/p' "$1" | sort) | paste -sd ' '
}

run_rust() {
    local log=$results/rust.log passed failed outcome=0
    local tests=(cargo test --release --locked --workspace --exclude pystachio)
    cd "$project_root"
    if "${tests[@]}" --no-run 2>&1 | tee "$log"; then
        timeout "$rust_seconds_max" "${tests[@]}" --no-fail-fast 2>&1 | tee "$log" || outcome=$?
    else
        outcome=1
    fi
    [[ $outcome == 0 ]] || status=1
    passed=$(sed -nE 's/^test result: .* ([0-9]+) passed; .*/\1/p' "$log" | awk '{total += $1} END {print total + 0}')
    failed=$(sed -nE 's/^test result: .* ([0-9]+) failed; .*/\1/p' "$log" | awk '{total += $1} END {print total + 0}')
    # A crate that does not compile has no result line, and must count. So must a test that does not end.
    if grep -qE '^error(\[|:)' "$log" && [[ $failed == 0 ]]; then failed=1; fi
    if [[ $outcome == 124 ]]; then
        say "tests of Rust did not end in $rust_seconds_max s; those that run: $(unended "$log")"
        failed=$((failed + 1))
    fi
    count rust "$passed" "$failed"
    grep -E '^test .* FAILED$|^error' "$log" > "$results/rust.failures" || true
}

# Compiles every kernel for every GPU that is supported, where there is a compiler.
run_kernels() {
    local report=$project_root/target/kernels.tsv kernels
    if ! find_nvcc >/dev/null; then
        say "kernels: no nvcc, so they are compiled for the emulated device only"
        count kernels 0 0
        return
    fi
    if "$project_root/scripts/kernels.sh" "$report"; then
        kernels=$(awk -F'\t' 'NR > 1' "$report" | wc -l)
        count kernels "$kernels" 0
    else
        status=1
        count kernels 0 1
    fi
}

if wanted rust; then run_rust; fi
if wanted kernels; then run_kernels; fi

if wanted regress || wanted differential || wanted faults || wanted emulated; then
    stage=$("$project_root/scripts/build.sh")
    folder=$("$project_root/scripts/cluster.sh" create test "$stage")
    conninfo=$("$project_root/scripts/cluster.sh" conninfo test)
    config=$(find_pg_config)
    # shellcheck disable=SC2064
    trap "'$project_root/scripts/cluster.sh' stop test" EXIT
    export PYSTACHIO_TEST_FOLDER=$folder
    if wanted regress; then
        "$project_root/regress/run.sh" "$config" "$folder" "$results/regress.json" || status=1
    fi
    if wanted differential; then
        psql "$conninfo dbname=postgres" -X -q -c 'CREATE DATABASE differential' -c '\c differential' -c 'CREATE EXTENSION pystachio'
        python3 "$project_root/regress/differential/run.py" "$conninfo dbname=differential" --data "$folder/edges" \
            --tpch "$folder/tpch" --counts "$results/differential.json" || status=1
        psql "$conninfo dbname=postgres" -X -q -c 'CREATE DATABASE self_check'
        python3 "$project_root/regress/differential/run.py" "$conninfo dbname=self_check" --data "$folder/edges" --self-check \
            --counts "$results/self-check.json" > "$results/self-check.log" 2>&1 || { tail -n 30 "$results/self-check.log"; status=1; }
        tail -n 1 "$results/self-check.log"
    fi
    if wanted faults; then
        bare_folder=$("$project_root/scripts/cluster.sh" create bare "$stage")
        bare=$("$project_root/scripts/cluster.sh" conninfo bare)
        # shellcheck disable=SC2064
        trap "'$project_root/scripts/cluster.sh' stop test; '$project_root/scripts/cluster.sh' stop bare" EXIT
        python3 "$project_root/regress/faults/run.py" "$conninfo" "$folder" --bare "$bare" "$bare_folder" \
            --counts "$results/faults.json" || status=1
    fi
    if wanted emulated; then
        # The GPU engine on the host: its kernels' own sources under the tests that the CPU engine was tested by. The threads of a
        # block run from the last to the first here and from the first to the last in the tests of Rust: a missing barrier shows.
        emulated_folder=$(PYSTACHIO_EMULATED_ORDER=descending "$project_root/scripts/cluster.sh" create emulated "$stage")
        emulated=$("$project_root/scripts/cluster.sh" conninfo emulated)
        "$project_root/regress/run.sh" "$config" "$emulated_folder" "$results/emulated-regress.json" || status=1
        psql "$emulated dbname=postgres" -X -q -c 'CREATE DATABASE differential' -c '\c differential' \
            -c 'CREATE EXTENSION pystachio'
        python3 "$project_root/regress/differential/run.py" "$emulated dbname=differential" \
            --data "$emulated_folder/edges" --tpch "$emulated_folder/tpch" --suite data --suite generated --suite views --suite tpch \
            --suite spec --suite optimized --counts "$results/emulated.json" || status=1
        "$project_root/scripts/cluster.sh" stop emulated
    fi
fi

if wanted differential; then areas+=(self-check); fi
if wanted emulated; then areas+=(emulated-regress); fi
python3 "$project_root/scripts/tally.py" "$results" "$status" "${areas[@]}"
