#!/usr/bin/env bash
# Runs areas of the tests again and again while all processors are busy, to find tests that fail by chance. The last line counts.
#
# usage: scripts/test-chance.sh [-n TIMES] AREA…     areas of scripts/test.sh; 20 times by default
#
# Each run has another seed, and another order of the tests where an area has one. Nothing is tried again: a run that fails is a
# finding, whose output is kept under target/chance. BURNERS=N says how many processes compute beside (one for each processor).
source "$(dirname "$0")/environment.sh"

times=20
if [[ ${1:-} == -n ]]; then
    times=$2
    shift 2
fi
[[ $# -gt 0 ]] || die "usage: test-chance.sh [-n TIMES] AREA…"
folder=$project_root/target/chance
mkdir -p "$folder"
burners=()
trap 'kill "${burners[@]}" 2> /dev/null || true' EXIT
for ((number = 0; number < ${BURNERS:-$(nproc)}; number++)); do
    (while :; do :; done) &
    burners+=($!)
done
passed=0 failed=0
for ((number = 1; number <= times; number++)); do
    seed=$((RANDOM * 32768 + RANDOM))
    log=$folder/${1}-$seed.log
    begin=$SECONDS
    if PYSTACHIO_TEST_SEED=$seed PYSTACHIO_TEST_ORDER=$seed "$project_root/scripts/test.sh" "$@" > "$log" 2>&1; then
        passed=$((passed + 1))
        say "run $number of $times, seed $seed: passed in $((SECONDS - begin)) s"
        rm "$log"
    else
        failed=$((failed + 1))
        say "run $number of $times, seed $seed: FAILED in $((SECONDS - begin)) s; PYSTACHIO_TEST_SEED=$seed PYSTACHIO_TEST_ORDER=$seed; $log"
        grep -aE '^FAILED|^ +FAIL |FAILED$' "$log" | head -n 20 >&2 || true
    fi
done
printf '%d passed, %d failed\n' "$passed" "$failed"
[[ $failed == 0 ]]
