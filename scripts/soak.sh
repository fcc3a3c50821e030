#!/usr/bin/env bash
# Sessions at random on both engines, for a time, while faults are injected: regress/soak. Ends with what was found, and fails by it.
#
# usage: scripts/soak.sh [SECONDS [SEED [OPTION…]]]     300 seconds and the time as a seed by default; options: those of
# regress/soak/run.py, such as --clients 16, --suite changed, --server gpu_tiny
#
# The emulated device works late, in the order of the seed; PYSTACHIO_EMULATED says otherwise (src/gpu/device/emulated): engines get
# it with the cluster's environment.
source "$(dirname "$0")/environment.sh"

duration=${1:-300} seed=${2:-$(date +%s)}
shift $(($# < 2 ? $# : 2))
say "seed $seed: make soak SECONDS=$duration SEED=$seed repeats it"
export PYSTACHIO_EMULATED=${PYSTACHIO_EMULATED-seed=$seed}
stage=$("$project_root/scripts/build.sh")
folder=$("$project_root/scripts/cluster.sh" create soak "$stage")
trap '"$project_root/scripts/cluster.sh" stop soak' EXIT
python3 "$project_root/regress/soak/run.py" "$("$project_root/scripts/cluster.sh" conninfo soak)" "$folder" \
    --seconds "$duration" --seed "$seed" "$@"
