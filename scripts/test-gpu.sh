#!/usr/bin/env bash
# The tests on a host with a GPU. The last line counts: 'N passed, N failed'. On a host without cargo it uses target/gpu
# (make gpu-archive).
#
# usage: [NAME=VALUE]… scripts/test-gpu.sh [kernels|sanitizer|regress|differential|faults]…    all of them by default
#   kernels        the executable tests of src/cuda: every kernel's results against the emulated device's
#   sanitizer      the same under compute-sanitizer: SANITIZERS="racecheck memcheck initcheck synccheck"
#   regress        the SQL tests          differential    against heap tables, SUITES="data generated tpch spec spill edges …"
#   faults         those that need no engine of the CPU's own: FAULTS=clients (a text in their names; empty: all)
#   DEVICE=cuda    of every server; 'emulated' tests this script
#   LIMIT_S=540    seconds for each area; each test under each sanitizer has SANITIZER_LIMIT_S=150, and SANITIZER_JOBS=4 run at once
#   PYSTACHIO_TEST_PARQUET=folder:…   further Parquet files for the tests of src/cuda
#   NVCOMP=folder  where nvCOMP's library is: its tests then fail where they can't use it
#   CUFILE=1       cuFile's test fails where its compatibility mode can't be used. It asks udev for a disk's file system: where
#                  udev has no entry for the disk, as in containers, one is written (root)
#   OUT=folder     logs; default: target/test-gpu
source "$(dirname "$0")/environment.sh"
source "$(dirname "$0")/gpu-host.sh"

areas=("$@")
[[ $# -gt 0 ]] || areas=(kernels sanitizer regress differential faults)
device=${DEVICE:-cuda}
limit_s=${LIMIT_S:-540}
results=${OUT:-$project_root/target/test-gpu}
mkdir -p "$results"
for area in "${areas[@]}"; do rm -f "$results/$area.json"; done
status=0

wanted() { [[ " ${areas[*]} " == *" $1 "* ]]; }

# Writes an area's counts: count NAME PASSED FAILED. Nothing that ran is a failure too.
count() {
    local failed=$3
    if [[ $(($2 + $3)) == 0 ]]; then failed=1; fi
    printf '{"passed": %d, "failed": %d}\n' "$2" "$failed" > "$results/$1.json"
}

# Runs a command of an area with its time limit; its output goes to a log, of which the end is shown if it fails.
run_area() {
    local area=$1 begin=$SECONDS
    shift
    timeout -k 10 "$limit_s" "$@" > "$results/$area.log" 2>&1 || { status=1; tail -n 40 "$results/$area.log"; }
    say "$area: $((SECONDS - begin)) s"
}

prepare_host
if [[ -z $test_folder ]]; then
    test_folder=$results/tests
    mkdir -p "$test_folder"
    "$project_root/scripts/gpu-tests.sh" "$test_folder"
fi
if [[ $device == cuda ]]; then export PYSTACHIO_REQUIRE_GPU=1; fi
if [[ -n ${NVCOMP:-} ]]; then
    export PYSTACHIO_REQUIRE_NVCOMP=1 LD_LIBRARY_PATH=$NVCOMP${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
fi
if [[ ${CUFILE:-0} == 1 ]]; then
    read -r number type < <(findmnt --noheadings --output MAJ:MIN,FSTYPE --target "$test_folder")
    if [[ ! -e /run/udev/data/b$number ]]; then
        mkdir -p /run/udev/data
        printf 'E:ID_FS_USAGE=filesystem\nE:ID_FS_TYPE=%s\n' "$type" > "/run/udev/data/b$number"
    fi
    export PYSTACHIO_REQUIRE_CUFILE=1
fi
export PYSTACHIO_TEST_PARQUET=$project_root/regress/data${PYSTACHIO_TEST_PARQUET:+:$PYSTACHIO_TEST_PARQUET}

# Prints the executable tests: path and name of each.
kernel_tests() {
    local executable
    for executable in "$test_folder"/*; do
        "$executable" --list --format terse 2> /dev/null | sed -n "s#^\(.*\): test\$#$executable \1#p"
    done
}

run_kernels() {
    local passed=0 failed=0 executable name
    while read -r executable name; do
        if timeout -k 10 "$limit_s" "$executable" --exact "$name" --nocapture < /dev/null > "$results/kernels-$name.log" 2>&1; then
            passed=$((passed + 1))
        else
            failed=$((failed + 1))
            say "kernels: $name failed"
            tail -n 15 "$results/kernels-$name.log"
        fi
    done < <(kernel_tests)
    count kernels "$passed" "$failed"
}

# One test under one sanitizer; leaves 'passed', 'failed' or 'unfinished' beside its log. A test that is still running at its limit
# has shown no error in what it ran.
sanitize() {
    local tool=$1 executable=$2 name=$3 log=$results/$1-$3.log code=0 options=() outcome=passed
    # A kernel is looked up in one module after another: that the driver does not find it is no error.
    if [[ $tool == memcheck ]]; then options=(--report-api-errors no); fi
    # Cells of NULL rows are not written, and are copied to the host with the others; they are not read there.
    if [[ $tool == initcheck ]]; then options=(--check-api-memory-access no); fi
    PYSTACHIO_SANITIZED=1 timeout -k 10 "${SANITIZER_LIMIT_S:-150}" compute-sanitizer --tool "$tool" "${options[@]}" --error-exitcode 9 --print-limit 20 \
        "$executable" --exact "$name" --nocapture < /dev/null > "$log" 2>&1 || code=$?
    if grep -qE '^========= +(Invalid|Uninitialized|Error: |Warning: .*hazard|Barrier error|Divergent)' "$log" ||
        [[ $code != 0 && $code != 124 && $code != 137 ]]; then
        outcome=failed
        say "sanitizer: $tool finds errors in $name (status $code)"
        grep -m 12 -E '^=========' "$log" || true
    elif [[ $code != 0 ]]; then
        outcome=unfinished
        say "sanitizer: $tool: $name is not finished after ${SANITIZER_LIMIT_S:-150} s, without an error"
    fi
    printf '%s\n' "$outcome" > "$results/$tool-$name.outcome"
}

run_sanitizer() {
    local begin=$SECONDS tool executable name jobs=${SANITIZER_JOBS:-4} passed failed unfinished
    command -v compute-sanitizer > /dev/null || export PATH=$PATH:/usr/local/cuda/bin:/usr/local/cuda/compute-sanitizer
    command -v compute-sanitizer > /dev/null || { say "sanitizer: there is no compute-sanitizer"; count sanitizer 0 1; return; }
    rm -f "$results"/*.outcome
    for tool in ${SANITIZERS:-racecheck memcheck initcheck synccheck}; do
        while read -r executable name; do
            # nvCOMP's own kernels read unwritten memory.
            if [[ $tool == initcheck && $executable == */nvcomp && -n ${NVCOMP:-} ]]; then continue; fi
            while [[ $(jobs -rp | wc -l) -ge $jobs ]]; do wait -n; done
            if [[ $((SECONDS - begin)) -ge $limit_s ]]; then
                printf 'unfinished\n' > "$results/$tool-$name.outcome"
            else
                sanitize "$tool" "$executable" "$name" &
            fi
        done < <(kernel_tests)
    done
    wait
    passed=$(cat "$results"/*.outcome | grep -c passed || true)
    failed=$(cat "$results"/*.outcome | grep -c failed || true)
    unfinished=$(cat "$results"/*.outcome | grep -c unfinished || true)
    say "sanitizer: $((SECONDS - begin)) s; $unfinished runs were not finished"
    count sanitizer "$passed" "$failed"
}

if wanted kernels; then run_kernels; fi
if wanted sanitizer; then run_sanitizer; fi

if wanted regress || wanted differential || wanted faults; then
    name=test-gpu
    if [[ $device != cuda ]]; then name=$device; fi
    folder=$("$project_root/scripts/cluster.sh" create "$name" "$stage")
    conninfo=$("$project_root/scripts/cluster.sh" conninfo "$name")
    # shellcheck disable=SC2064
    trap "'$project_root/scripts/cluster.sh' stop '$name'" EXIT
    if wanted regress; then
        run_area regress "$project_root/regress/run.sh" "$(find_pg_config)" "$folder" "$results/regress.json"
    fi
    if wanted differential; then
        psql "$conninfo dbname=postgres" -X -q -c 'CREATE DATABASE differential' -c '\c differential' -c 'CREATE EXTENSION pystachio'
        read -ra suites <<< "${SUITES:-data generated views tpch spec spill writers edges literals letters arrays}"
        # The libraries that write these are not on hosts without a network.
        if [[ -n ${unpacked:-} ]]; then cp -r "$unpacked/writers" "$folder/edges-writers"; fi
        run_area differential python3 "$project_root/regress/differential/run.py" "$conninfo dbname=differential" \
            --data "$folder/edges" --tpch "$folder/tpch" "${suites[@]/#/--suite=}" --seed "$(test_seed 1)" --counts "$results/differential.json"
    fi
    if wanted faults; then
        run_area faults python3 "$project_root/regress/faults/run.py" "$conninfo" "$folder" --only "${FAULTS:-}" \
            --counts "$results/faults.json"
    fi
    cp "$folder/server.log" "$results/server.log"
fi
python3 "$project_root/scripts/tally.py" "$results" "$status" "${areas[@]}"
