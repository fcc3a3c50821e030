#!/usr/bin/env bash
# Tests of what a person runs first: build folders of clones, what is fetched, a demo that keeps what is there (regress/scripts).
#
# usage: scripts/test-scripts.sh [--stage STAGE] COUNTS_FILE    without a stage, builds
source "$(dirname "$0")/environment.sh"

stage=
if [[ ${1:-} == --stage ]]; then
    stage=$2
    shift 2
fi
counts=${1:?usage: test-scripts.sh [--stage STAGE] COUNTS_FILE}
[[ -n $stage ]] || stage=$("$project_root/scripts/build.sh")
log=$(mktemp)
trap '"$project_root/scripts/cluster.sh" stop scripts; rm -f "$log"' EXIT
folder=$("$project_root/scripts/cluster.sh" create scripts "$stage")
outcome=0
PYSTACHIO_TEST_CLUSTER=$folder python3 -m unittest discover -s "$project_root/regress/scripts" -t "$project_root/regress" -p '*_test.py' > "$log" 2>&1 || outcome=1
cat "$log" >&2
ran=$(sed -nE 's/^Ran ([0-9]+) tests? in .*/\1/p' "$log")
failed=$(sed -nE 's/^FAILED \((.*)\)$/\1/p' "$log" | grep -oE '(failures|errors)=[0-9]+' | grep -oE '[0-9]+' | awk '{total += $1} END {print total + 0}' || true)
# What did not come to its end, or tests nothing, counts as a failure.
if [[ ${ran:-0} == 0 || ($outcome != 0 && ${failed:-0} == 0) ]]; then ran=1 failed=1 outcome=1; fi
printf '{"passed": %d, "failed": %d}\n' $((ran - ${failed:-0})) "${failed:-0}" > "$counts"
exit "$outcome"
