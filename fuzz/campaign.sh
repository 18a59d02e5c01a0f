#!/bin/sh
# Runs fuzzers with libFuzzer: campaign.sh MINUTES [TARGET...]. See README.md.
set -eu
minutes=${1:?how many minutes for each target}
shift
cd "$(dirname "$0")"
[ $# -gt 0 ] || set -- $(cd fuzz_targets && ls | sed 's/\.rs$//')
host=$(rustc -vV | sed -n 's/^host: //p')
coverage="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-pc-table
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-trace-compares"
RUSTFLAGS="--cfg fuzzing $(echo $coverage) -Cdebug-assertions -Coverflow-checks" cargo build --release --target "$host"
for target in "$@"; do
    mkdir -p "target/corpus/$target" "artifacts/$target"
    echo "== $target"
    # A finding ends the target; the others still run.
    nice -n 19 "target/$host/release/$target" "target/corpus/$target" "corpus/$target" -max_total_time=$((60 * minutes)) \
        -artifact_prefix="artifacts/$target/" -timeout=5 -rss_limit_mb=1024 -max_len=8192 -print_final_stats=1 2>&1 | tail -12 || true
done
