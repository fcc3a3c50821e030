#!/usr/bin/env bash
# TPC-H on a GPU against DuckDB, over the same files in one run; answers are compared with DuckDB's and, at SF 1, with
# heap PostgreSQL's text. On a host without cargo it uses target/gpu (make gpu-archive).
#
# usage: [NAME=VALUE]… scripts/bench-gpu.sh
#   SF="10 100"        scale factors
#   STEPS="exact generate cold direct warm hot first kernels profile timeline report"   in this order; see benches/gpu.py,
#                      which has more: ablation, calibrate
#   QUERIES="1 6"      all if empty                  RUNS=5, DUCKDB_RUNS=2   hot runs, of which the best counts
#   DUCKDB_COLD=22     how many queries DuckDB runs cold: those that read most
#   TIMELINE_QUERY=3   whose time lines are drawn    DEVICE_BANDWIDTH=4.3    TB/s of a copy within the device, for the step kernels
#   DEVICE=cuda        of the server `gpu`           SYSTEMS="gpu duckdb"    also cpu
#   ENGINE_CHOICE=gpu  pystachio.engine_choice; auto lets the CPU engine have what it is expected to run faster
#   STEPS="… choice"   auto against the better engine, over queries, forms and states of caches
#   STEPS="… spill"    every query once more with a sixteenth of the data's bytes as GPU memory, answers compared
#   STEPS="… load"     answers a second of CLIENTS="1 4 16 64" at once, LOAD_S=15 seconds each; with little memory, cancels and files
#                      that change too: no error, no other answer, the same engine
#   STEPS="… forms"    every query over files that DuckDB, pyarrow, Polars, Spark and ClickHouse wrote from the same rows, if they are installed; FORMS="duckdb polars": those of
#                      gpu_forms.py alone; FORMS=1 adds the step with all of them
#   ABLATION=1         warm and hot once more without each technique of pystachio.gpu_disable
#   SETTINGS=…         what measured sessions set: "pystachio.gpu_disable = 'concurrent_builds, regulation'"
#   EXACT_SF=1         scale factor of the step exact
#   GENERATE=…         further arguments of tpch_generate, as SQL; default: the GPU form where there is one, else
#                      row groups of 10 million rows
#   SERVER_OPTIONS=…   further options of the server `gpu`: memory '40GB'
#   STEP_LIMIT_S=540   seconds for each step at each scale factor; QUERY_LIMIT_S=120 for each query
#   OUT=folder         where report and logs go; default: benches/results and target/bench-gpu
#
# Steps can be called one at a time; what is there is kept, and every result is on disk before the next query runs.
source "$(dirname "$0")/environment.sh"
source "$(dirname "$0")/gpu-host.sh"

device=${DEVICE:-cuda}
reports=${OUT:-$project_root/benches/results}
logs=${OUT:-$project_root/target/bench-gpu}/logs
mkdir -p "$reports" "$logs"
read -ra steps <<< "${STEPS:-exact generate cold direct warm hot first kernels profile timeline report}"
if [[ ${ABLATION:-0} == 1 && -z ${STEPS:-} ]]; then steps=("${steps[@]:0:${#steps[@]}-1}" ablation report); fi
forms=${FORMS:-}
if [[ $forms == 1 ]]; then
    forms=
    if [[ -z ${STEPS:-} ]]; then steps=("${steps[@]:0:${#steps[@]}-1}" forms report); fi
fi

prepare_host
folder=$("$project_root/scripts/cluster.sh" start bench-gpu "$stage")
conninfo=$("$project_root/scripts/cluster.sh" conninfo bench-gpu)
# shellcheck disable=SC2064
trap "'$project_root/scripts/cluster.sh' stop bench-gpu" EXIT

build=$(cat "$stage"/lib/* | cksum | cut -d' ' -f1)
built=$(build_facts | paste -sd' ')
arguments=(--device "$device" --queries "${QUERIES:-}" --systems "${SYSTEMS:-gpu duckdb}" --runs "${RUNS:-5}"
    --duckdb-runs "${DUCKDB_RUNS:-2}" --server-options "${SERVER_OPTIONS:+, $SERVER_OPTIONS}"
    --limit "${STEP_LIMIT_S:-540}" --query-limit "${QUERY_LIMIT_S:-120}" --build "$build" --built "$built" --out "$reports"
    --duckdb-cold "${DUCKDB_COLD:-22}" --timeline-query "${TIMELINE_QUERY:-3}" --device-bandwidth "${DEVICE_BANDWIDTH:-4.3}"
    --logs "$logs" --engine-choice "${ENGINE_CHOICE:-gpu}" --settings "${SETTINGS:-}" --clients "${CLIENTS:-1 4 16 64}" --load-seconds "${LOAD_S:-15}" --forms "$forms")
if [[ -n ${GENERATE+set} ]]; then arguments+=(--generate "$GENERATE"); fi
# The host's whole page cache is dropped only where the run is for real: elsewhere others share it.
if [[ $device == cuda && -w /proc/sys/vm/drop_caches ]]; then arguments+=(--drop-caches); fi

# Runs one step at one scale factor; a step that hangs is ended, and what it measured is on disk.
run_step() {
    timeout -k 10 "$((${STEP_LIMIT_S:-540} + 60))" "$peer_python" "$project_root/benches/gpu.py" "$1" "$conninfo" "$folder" \
        --scale "$2" "${arguments[@]}" 2> >(tee -a "$logs/errors.log" >&2) || { say "step $1 at SF $2 ended with status $?"; status=1; }
}

status=0
for step in "${steps[@]}"; do
    if [[ $step == exact ]]; then
        run_step generate "${EXACT_SF:-1}"
        run_step exact "${EXACT_SF:-1}"
        continue
    fi
    for scale in ${SF:-10 100}; do run_step "$step" "$scale"; done
done
cp "$folder/server.log" "$logs/server.log" 2> /dev/null || true
exit $status
