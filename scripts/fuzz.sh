#!/usr/bin/env bash
# Hostile Parquet files over both engines, for a time, led by which edges of their code run: src/fuzz. Fails if there is a finding.
#
# usage: scripts/fuzz.sh [SECONDS [SEED]]     an hour and the time as a seed by default; files in target/fuzz
#        scripts/fuzz.sh --judge FILE…        what comes of some files
#
# The engines are compiled to count edges, and so are the kernels where there is clang. What does not (parquet, arrow, DataFusion)
# is what every other build uses.
source "$(dirname "$0")/environment.sh"

cd "$project_root"
export RUSTC_WORKSPACE_WRAPPER=$project_root/scripts/fuzz-rustc.sh
if command -v clang++ >/dev/null; then
    export CXX=clang++ CXXFLAGS="-fsanitize-coverage=inline-8bit-counters,edge"
else
    say "no clang++: the kernels run without counting their edges"
fi
prepare_target
# What a wrapper compiles has files of its own beside those of other builds.
select_workspace
cargo build --release "${selection[@]}" --bin pystachio-fuzz >&2
binary=$CARGO_TARGET_DIR/release/pystachio-fuzz
if [[ ${1:-} == --judge ]]; then
    exec "$binary" "$@"
fi
duration=${1:-3600} seed=${2:-$(date +%s)}
say "seed $seed: make fuzz SECONDS=$duration SEED=$seed repeats it, but for the queue of earlier runs in target/fuzz/queue"
mkdir -p target/fuzz
exec "$binary" --seconds "$duration" --seed "$seed" --folder target/fuzz --data regress/data --data regress/fuzz
