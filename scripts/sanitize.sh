#!/usr/bin/env bash
# The engine's tests with its kernels, as the emulated device runs them, under AddressSanitizer and UndefinedBehaviorSanitizer.
# What reads or writes a byte beyond a buffer, or does what C++ leaves undefined, shows without a GPU.
#
# usage: scripts/sanitize.sh [TEST…]    texts in tests' names; by default those of single operations, some minutes
source "$(dirname "$0")/environment.sh"

tests=("$@")
[[ $# -gt 0 ]] || tests=(decode:: operation:: program:: device:: spill::)

runtime=$(c++ -print-file-name=libasan.so)
[[ $runtime == /* ]] || die "c++ has no libasan.so: install GCC with its sanitizers"
host=$(rustc -vV | sed -n 's/^host: //p')
triple=${host^^}
triple=${triple//-/_}
sanitizers=address,undefined

export CARGO_TARGET_DIR=$cache_root/sanitized
export CXXFLAGS="-fsanitize=$sanitizers -fno-sanitize-recover=$sanitizers -fno-omit-frame-pointer -g1"
export RUSTFLAGS="-Clink-arg=-lasan -Clink-arg=-lubsan"
# A block's threads have stacks of their own, which the sanitizer knows nothing of.
export ASAN_OPTIONS=detect_leaks=0:detect_stack_use_after_return=0 UBSAN_OPTIONS=print_stacktrace=1
export "CARGO_TARGET_${triple}_RUNNER=env LD_PRELOAD=$runtime"
cd "$project_root"
cargo test --release --locked -p pystachio-gpu --lib --target "$host" -- "${tests[@]}"
