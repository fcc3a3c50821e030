#!/usr/bin/env bash
# Compiles every kernel for every GPU generation that is supported, and reports what each needs.
#
# usage: scripts/kernels.sh [REPORT]    writes the table of registers, shared memory and spills to REPORT
#
# Fails if a kernel does not compile without a warning, or spills registers though it is not in
# kernels/spills.txt.
source "$(dirname "$0")/environment.sh"

nvcc=$(find_nvcc) || die "no nvcc found: run scripts/setup.sh, or set PYSTACHIO_NVCC"
report=${1:-$project_root/target/kernels.tsv}
mkdir -p "$(dirname "$report")"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
status=0
printf 'architecture\tkernel\tregisters\tshared_bytes\tstack_bytes\tspill_store_bytes\n' > "$report"
for source in "$project_root"/kernels/*/*.cu; do
    for architecture in 80 90 100; do
        "$nvcc" -std=c++20 -O3 -lineinfo --fmad=false -Werror all-warnings -arch="sm_$architecture" -cubin \
            -Xptxas -v "$source" -o "$folder/out.cubin" > "$folder/log" 2>&1 ||
            { cat "$folder/log" >&2; say "does not compile for sm_$architecture: $source"; status=1; continue; }
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
            }' "$folder/log" >> "$report"
    done
done
spilling=$(awk -F'\t' 'NR > 1 && $6 > 0 { print $2 }' "$report" | sort -u)
for kernel in $spilling; do
    grep -qx "$kernel" "$project_root/kernels/spills.txt" || { say "spills registers: $kernel"; status=1; }
done
kernels=$(awk -F'\t' 'NR > 1 { print $2 }' "$report" | sort -u | wc -l)
say "kernels: $kernels compile for sm_80, sm_90 and sm_100; the report is $report"
exit $status
