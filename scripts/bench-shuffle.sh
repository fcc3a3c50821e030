#!/usr/bin/env bash
# Exchanges between GPUs: the tests first, then how fast they are against what the network can do, then a distributed join through SQL.
# On a host without cargo it uses target/gpu (PARTS="pystachio postgres shuffle" make gpu-archive; without the join, PARTS=shuffle).
#
# usage: [NAME=VALUE]… scripts/bench-shuffle.sh
#   STEPS="checks bench join"   in this order; join: the paper's distributed join on a server of so many ranks, against raw transfers of
#                          this run (bench-ranks.sh, which takes more variables: JOIN_ROWS, QUERY_LIMIT_S, …)
#   RANKS=                 GPUs; by default all that there are, or 2 emulated ones
#   DEVICE=cuda            'emulated' tries the benchmark with little, where there is no GPU
#   SIZES_MB=1,4,16,64,256,1024   bytes that a rank sends in one message
#   COLUMNS=1,2,4,10       of 8 bytes, in rows         ROWS_MB=4096   of rows on each rank
#   LINKS=p2p,host         host: NCCL_P2P_DISABLE=1, as fast as a network of 200 Gbit/s
#   CHECK_LIMIT_S=60       seconds for each test       BENCH_LIMIT_S=75   for each kind of links     JOIN_LIMIT_S=300   for joins
#   CHECKS=text            only tests with that in their names
#   OUT=folder             checks.txt, shuffle.json, shuffle.txt, host.txt, the joins' report and logs, and a log of each test that failed;
#                          default: target/bench-shuffle
source "$(dirname "$0")/environment.sh"

device=${DEVICE:-cuda}
results=${OUT:-$project_root/target/bench-shuffle}
read -ra steps <<< "${STEPS:-checks bench join}"
if [[ $device == emulated ]]; then ranks=${RANKS:-2}; else ranks=${RANKS:-$(nvidia-smi -L | wc -l)}; fi
# Between emulated ranks there is one kind.
links=${LINKS:-p2p,host}
if [[ $device == emulated ]]; then links=p2p; fi
mkdir -p "$results"
status=0

if [[ ${PYSTACHIO_FROM_ARCHIVE:-0} != 1 ]] && command -v cargo > /dev/null; then
    programs=$results/programs
    "$project_root/scripts/shuffle-build.sh" "$programs"
else
    archive=$project_root/target/gpu/shuffle.tar.xz
    [[ -f $archive ]] || die "$archive is missing: run PARTS=shuffle make gpu-archive where there is cargo"
    programs=$(mktemp -d)
    trap 'rm -rf "$programs"' EXIT
    tar -C "$programs" --strip-components=1 -xJf "$archive"
fi
# What every rank has in its environment (src/cuda/nccl/mod.rs); its processes set it themselves.
export NCCL_NVLS_ENABLE=0 NCCL_P2P_DIRECT_DISABLE=1
if [[ $device == cuda ]]; then export PYSTACHIO_REQUIRE_GPU=1 PYSTACHIO_REQUIRE_GPUS=2; fi

# One line a test: its name, how it ended and after how many seconds. What it printed is kept where it failed.
run_checks() {
    local name begin outcome log passed=0 failed=0
    : > "$results/checks.txt"
    while read -r name; do
        begin=${EPOCHREALTIME/./}
        log=$results/check-$name.log
        if timeout -k 5 "${CHECK_LIMIT_S:-60}" "$programs/exchange" --exact "$name" --nocapture < /dev/null > "$log" 2>&1; then
            outcome=passed
            passed=$((passed + 1))
        else
            outcome="FAILED ($?)"
            failed=$((failed + 1))
            status=1
        fi
        printf '%-70s %s, %d ms\n' "$name" "$outcome" "$(((${EPOCHREALTIME/./} - begin) / 1000))" |
            tee -a "$results/checks.txt" >&2
        grep -hE '^(skipped|rank|and went on)' "$log" >> "$results/checks.txt" || true
        if [[ $outcome == passed ]]; then rm -f "$log"; else tail -n 25 "$log" >&2; fi
    done < <("$programs/exchange" --list --format terse 2> /dev/null | sed -n 's/: test$//p' | wanted_checks)
    printf 'checks: %d passed, %d failed\n' "$passed" "$failed" | tee -a "$results/checks.txt" >&2
}

# Those between emulated ranks need no GPU, and ran where this was built.
wanted_checks() {
    if [[ $device == cuda ]]; then grep -v -e emulated -e a_process_that_is_a_rank; else cat; fi | grep -F -e "${CHECKS:-}"
}

# Measures raw transfers, and rows unless told --raw-only.
run_bench() {
    local arguments=("$@" --ranks "$ranks" --out "$results/shuffle.json" --limit-s "${BENCH_LIMIT_S:-75}")
    if [[ $device == emulated ]]; then
        arguments+=(--emulated --sizes-mb "${SIZES_MB:-1,4}" --columns "${COLUMNS:-1,3}" --rows-mb "${ROWS_MB:-4}" --chunk-rows 32768 --runs 1)
    else
        arguments+=(--sizes-mb "${SIZES_MB:-1,4,16,64,256,1024}" --columns "${COLUMNS:-1,2,4,10}" --rows-mb "${ROWS_MB:-4096}" --links "$links")
    fi
    timeout -k 5 "$((2 * ${BENCH_LIMIT_S:-75} + 10))" "$programs/shuffle" "${arguments[@]}" > "$results/shuffle.txt" 2> "$results/shuffle-errors.txt" || {
        say "the benchmark ended with status $?"
        status=1
    }
    cat "$results/shuffle-errors.txt" >&2
    [[ -s $results/shuffle-errors.txt ]] || rm -f "$results/shuffle-errors.txt"
}

# The paper's join over each kind of links, beside what raw transfers do in this run.
run_join() {
    [[ " ${steps[*]} " == *" bench "* ]] || run_bench --raw-only
    RAW=$results/shuffle.json STEPS=paper_join RANKS=$ranks LINKS=${links//,/ } LIMIT_S=${JOIN_LIMIT_S:-300} OUT=$results \
        "$project_root/scripts/bench-ranks.sh" || status=1
}

if command -v nvidia-smi > /dev/null; then
    { cat "$programs/build" 2> /dev/null || true; nvidia-smi --query-gpu=name,driver_version,memory.used --format=csv; nvidia-smi topo -m; } \
        > "$results/host.txt" 2>&1 || true
fi
for step in "${steps[@]}"; do
    case $step in
        checks) run_checks ;;
        bench) run_bench ;;
        join) run_join ;;
        *) die "no step $step" ;;
    esac
done
for step in "${steps[@]}"; do
    case $step in
        checks) printf '\n' && cat "$results/checks.txt" ;;
        bench) printf '\n' && cat "$results/shuffle.txt" ;;
    esac
done
exit $status
