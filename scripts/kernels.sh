#!/usr/bin/env bash
# Compiles every kernel for every GPU generation that is supported, and reports what each needs.
#
# usage: scripts/kernels.sh [REPORT]    writes the table of registers, shared memory and spills to REPORT
#
# Fails if a kernel does not compile without a warning, or spills registers though it is not in
# kernels/spills.txt. The report of the same kernels by the same compiler is kept in the cache folder, and taken from there.
source "$(dirname "$0")/environment.sh"

nvcc=$(find_nvcc) || die "no nvcc found: run scripts/setup.sh, or set PYSTACHIO_NVCC"
report=${1:-$project_root/target/kernels.tsv}
mkdir -p "$(dirname "$report")" "$cache_root/kernels"
architectures=(80 90 100)
known=$cache_root/kernels/$(
    cd "$project_root"
    { "$nvcc" --version; find kernels scripts/kernels.sh -type f -print0 | sort -z | xargs -0 sha256sum; } | sha256sum | cut -c1-32
).tsv
if [[ -f $known ]]; then
    cp "$known" "$report"
    say "kernels: nothing has changed since they were compiled; the report is $report"
    exit
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# Compiles a file for an architecture: compile SOURCE ARCHITECTURE. Leaves the lines of its report, or what is wrong.
compile() {
    local source=$1 architecture=$2 part
    part=$folder/$(basename "$source" .cu)-$architecture
    "$nvcc" -std=c++20 -O3 -lineinfo --fmad=false -Werror all-warnings -arch="sm_$architecture" -cubin \
        -Xptxas -v "$source" -o "$part.cubin" > "$part.log" 2>&1 ||
        { mv "$part.log" "$part.error"; say "does not compile for sm_$architecture: $source"; cat "$part.error" >&2; return; }
    # The lines of an entry: its name, its stack and spills, its registers and shared memory.
    awk -v architecture="$architecture" '
        /Compiling entry function/ { split($0, part, "\047"); kernel = part[2] }
        /bytes stack frame/ { if (kernel != "") { stack = $1; spill = $5 } }
        /Used [0-9]+ registers/ {
            if (kernel == "") next
            registers = shared = 0
            for (i = 1; i <= NF; i++) {
                if ($i == "registers,") registers = $(i - 1)
                if ($i ~ /^smem/) shared = $(i - 2)
            }
            printf "sm_%s\t%s\t%s\t%s\t%s\t%s\n", architecture, kernel, registers, shared, stack, spill
            kernel = ""
        }' "$part.log" > "$part.tsv"
}

for source in "$project_root"/kernels/*/*.cu; do
    for architecture in "${architectures[@]}"; do
        while [[ $(jobs -rp | wc -l) -ge $(nproc) ]]; do wait -n; done
        compile "$source" "$architecture" &
    done
done
wait
status=0
if compgen -G "$folder/*.error" > /dev/null; then status=1; fi
printf 'architecture\tkernel\tregisters\tshared_bytes\tstack_bytes\tspill_store_bytes\n' > "$report"
for source in "$project_root"/kernels/*/*.cu; do
    for architecture in "${architectures[@]}"; do
        part=$folder/$(basename "$source" .cu)-$architecture.tsv
        if [[ -f $part ]]; then cat "$part" >> "$report"; fi
    done
done
spilling=$(awk -F'\t' 'NR > 1 && $6 > 0 { print $2 }' "$report" | sort -u)
for kernel in $spilling; do
    grep -qx "$kernel" "$project_root/kernels/spills.txt" || { say "spills registers: $kernel"; status=1; }
done
kernels=$(awk -F'\t' 'NR > 1 { print $2 }' "$report" | sort -u | wc -l)
say "kernels: $kernels compile for sm_80, sm_90 and sm_100; the report is $report"
if [[ $status == 0 ]]; then cp "$report" "$known"; fi
exit $status
