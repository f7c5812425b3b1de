#!/bin/sh
# RUSTC_WORKSPACE_WRAPPER of `cargo xtask fuzz`: compiles the workspace's crates with libFuzzer's coverage counters.
# Skips the kernels: they read no untrusted input and take the longest to compile.
case " $* " in
*" --crate-name emberlm_kernels "*) exec "$@" ;;
esac
exec "$@" --cfg=fuzzing -Ccodegen-units=1 -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares
