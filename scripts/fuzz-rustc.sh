#!/bin/sh
# The compiler of this workspace's crates in a fuzz build (RUSTC_WORKSPACE_WRAPPER): the engines count which edges run, build scripts
# and the fuzzer itself do not. Flags that any rustc has; source: cargo-fuzz's.
compiler=$1
shift
case " $* " in
    *" --crate-name pystachio_engine "* | *" --crate-name pystachio_files "* | *" --crate-name pystachio_gpu "* | \
        *" --crate-name pystachio_cpu "* | *" --crate-name pystachio_plan "*)
        exec "$compiler" "$@" -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=3 \
            -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Ccodegen-units=16
        ;;
    *) exec "$compiler" "$@" ;;
esac
