#!/usr/bin/env bash
# SQL on one rank and on all GPUs of a host: TPC-H hot, warm and cold with the same answers, a rank that is killed, storage and network over
# a query's time, joins of generated rows. On a host without cargo it uses target/gpu (PARTS="pystachio postgres" make gpu-archive).
#
# usage: [NAME=VALUE]… scripts/bench-ranks.sh
#   STEPS="generate hot kill timeline warm cold"   in this order, what matters most first; see benches/ranks.py, which has more: skew,
#                          paper_join, large_join. What has no time left is not begun; the report is printed at the end
#   DEVICE=cuda            'emulated' tries it with little, where there is no GPU
#   RANKS=                 GPUs; by default all that there are, or 2 emulated ones
#   SF=100                 scale factor               QUERIES="3 9"   all if empty      RUNS=4   hot runs, of which the best counts; 0: the first run alone
#   LIMIT_S=480            seconds for all steps together, the generation of data too, from when this clone is built or unpacked;
#                          QUERY_LIMIT_S=30 for each query
#   LINKS=p2p              of the joins, each kind in turn: p2p, host (NCCL_P2P_DISABLE=1, as fast as a network of 200 Gbit/s)
#   JOIN_ROWS=1            share of the joins' rows   COLUMNS=1,2,4,10   of the paper's join
#   RAW=file               what the example shuffle measured of raw transfers, to compare with (scripts/bench-shuffle.sh makes it); by default
#                          what an earlier run was told
#   TIMELINE_QUERY=3       whose storage and network are drawn   TIMELINE_COLD=1   with nothing of the files in the page cache
#   CONFIGURATIONS="one all fastest"   of the step hot, in this order
#   ENGINE_CHOICE=gpu      pystachio.engine_choice
#   SETTINGS=…             what measured sessions set: "pystachio.gpu_disable = 'concurrent_builds'"
#   SERVER_OPTIONS=…       further options of the server: memory '40GB'
#   GENERATE=…             further arguments of tpch_generate, as SQL
#   OUT=folder             where report, drawing and logs go, few files of them; default: benches/results and target/bench-ranks
#
# On a host that is there for some minutes only, and has neither Rust nor PostgreSQL, these two calls give everything:
#   OUT=folder JOIN_LIMIT_S=240 scripts/bench-shuffle.sh
#   OUT=folder STEPS="generate hot kill timeline large_join warm cold" scripts/bench-ranks.sh
#
# Steps can be called one at a time; what is there is kept, and every result is on disk before the next query runs.
source "$(dirname "$0")/environment.sh"
source "$(dirname "$0")/gpu-host.sh"

device=${DEVICE:-cuda}
reports=${OUT:-$project_root/benches/results}
logs=${OUT:-$project_root/target/bench-ranks}/logs
read -ra steps <<< "${STEPS:-generate hot kill timeline warm cold}"
read -ra kinds <<< "${LINKS:-p2p}"
read -ra configurations <<< "${CONFIGURATIONS:-one all fastest}"
limit=${LIMIT_S:-480}
if [[ $device == emulated ]]; then
    ranks=${RANKS:-2} scale=${SF:-0.01} join_rows=${JOIN_ROWS:-0.002} columns=${COLUMNS:-1,3}
    # Two emulated ranks and their tables are small.
    server_options=${SERVER_OPTIONS:-memory \'1GB\'} generate=${GENERATE-row_group_rows => 2048}
else
    ranks=${RANKS:-$(nvidia-smi -L | wc -l)} scale=${SF:-100} join_rows=${JOIN_ROWS:-1} columns=${COLUMNS:-1,2,4,10}
    server_options=${SERVER_OPTIONS:-}
    if [[ -n ${GENERATE+set} ]]; then generate=$GENERATE; fi
fi
[[ $ranks -ge 1 ]] || die "RANKS=$ranks: there must be a GPU"
mkdir -p "$reports" "$logs"

prepare_host pystachio postgres
begin=$SECONDS
# Results are of a build and of what measured it.
build=$(cat "$stage"/lib/* "$project_root"/benches/{ranks*,random_rows}.py | cksum | cut -d' ' -f1)
built=$(build_facts | paste -sd' ')
# shellcheck disable=SC2064
trap "'$project_root/scripts/cluster.sh' stop bench-ranks" EXIT

# Runs one step over one kind of links: run_step STEP LINKS [OPTION…]. One that hangs is ended, and what it measured is on disk.
run_step() {
    local step=$1 links=$2 passed=$((SECONDS - begin)) left arguments
    shift 2
    left=$((limit - passed))
    if [[ $left -lt 5 ]]; then
        say "no time is left for step $step over $links: $passed of $limit s are over"
        return
    fi
    arguments=(--ranks "$ranks" --device "$device" --scale "$scale" --queries "${QUERIES:-}" --runs "${RUNS:-4}" --links "$links"
        --configurations "${configurations[@]}" --timeline-query "${TIMELINE_QUERY:-3}" --columns "$columns" --join-rows "$join_rows" --raw "${RAW:-}"
        --engine-choice "${ENGINE_CHOICE:-gpu}" --settings "${SETTINGS:-}" --server-options "${server_options:+, $server_options}"
        --limit "$left" --query-limit "${QUERY_LIMIT_S:-30}" --build "$build" --built "$built" --out "$reports" --logs "$logs")
    if [[ -n ${generate+set} ]]; then arguments+=(--generate "$generate"); fi
    if [[ ${TIMELINE_COLD:-0} == 1 ]]; then arguments+=(--timeline-cold); fi
    # The host's whole page cache is dropped only where the run is for real: elsewhere others share it.
    if [[ $device == cuda && -w /proc/sys/vm/drop_caches ]]; then arguments+=(--drop-caches); fi
    say "$step over $links: $passed of $limit s are over"
    timeout -k 5 "$((left + 20))" "$peer_python" "$project_root/benches/ranks.py" "$step" "$conninfo" "$folder" "${arguments[@]}" "$@" \
        2> >(tee -a "$logs/errors.log" >&2) || { say "step $step over $links ended with status $?"; status=1; }
}

status=0
for links in "${kinds[@]}"; do
    # Engines have the server's environment.
    case $links in
        p2p) unset NCCL_P2P_DISABLE ;;
        host) export NCCL_P2P_DISABLE=1 ;;
        *) die "LINKS=$links: p2p, host" ;;
    esac
    folder=$("$project_root/scripts/cluster.sh" start bench-ranks "$stage")
    conninfo=$("$project_root/scripts/cluster.sh" conninfo bench-ranks)
    for step in "${steps[@]}"; do
        case $step in
            # The rows serve all kinds of links.
            *_join) if [[ $links == "${kinds[-1]}" ]]; then run_step "$step" "$links"; else run_step "$step" "$links" --keep-rows; fi ;;
            *) if [[ $links == "${kinds[0]}" ]]; then run_step "$step" "$links"; fi ;;
        esac
    done
done
# It takes no time.
limit=$((SECONDS - begin + 60))
run_step report "${kinds[0]}"
cp "$folder/server.log" "$logs/server.log" 2> /dev/null || true
# What comes back from another host may be few files only.
if [[ -n ${OUT:-} ]]; then
    tar -C "$OUT" -czf "$OUT/logs-${steps[0]}.tar.gz" logs
    rm -rf "$logs"
fi
exit $status
