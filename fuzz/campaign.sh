#!/bin/sh
# Runs fuzzers with libFuzzer: campaign.sh MINUTES [TARGET...]. See README.md.
set -eu
minutes=${1:?how many minutes of processor time for each target}
shift
cd "$(dirname "$0")"
[ $# -gt 0 ] || set -- $(cd fuzz_targets && ls | sed 's/\.rs$//')
host=$(rustc -vV | sed -n 's/^host: //p')
coverage="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-pc-table
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-trace-compares"
RUSTFLAGS="--cfg fuzzing $(echo $coverage) -Cdebug-assertions -Coverflow-checks" cargo build --release --target "$host"

# What a file describes may be as large as a machine: a model for large images needs what it needs. The system then refuses the
# arena, as it does to a user. Anything else that is reserved because a file says so ends the process.
ulimit -v 1500000

# Sets `seconds` to the processor time of all processes that this shell has waited for: fuzzers are niced and may be paused, so the
# clock on the wall says little about how long they ran. A subshell would know only of its own.
processor_time() {
    times >"target/times.$$"
    seconds=$(awk 'NR == 2 { split($1, u, "[ms]"); split($2, s, "[ms]"); print int(60 * (u[1] + s[1]) + u[2] + s[2]) }' "target/times.$$")
}

for target in "$@"; do
    mkdir -p "target/corpus/$target" "artifacts/$target"
    fuzzer="target/$host/release/$target"
    log="target/$target.$$.log"
    processor_time
    before=$seconds
    used=0
    executions=0
    end=done
    # A file is read and refused at once. A training step is planned by every planner, each of which may search for a second,
    # and what libFuzzer watches takes as long again.
    slow=5
    [ "$target" != step ] || slow=30
    while [ "$used" -lt $((60 * minutes)) ]; do
        # At least a minute, so that little of it goes into reading the corpus.
        left=$((60 * minutes - used))
        [ "$left" -ge 60 ] || left=60
        status=0
        nice -n 19 "$fuzzer" "target/corpus/$target" "corpus/$target" -max_total_time="$left" -artifact_prefix="artifacts/$target/new-" \
            -timeout=60 -report_slow_units=$slow -rss_limit_mb=1024 -max_len=8192 -print_final_stats=1 >"$log" 2>&1 || status=$?
        for found in "artifacts/$target/new-"*; do
            # A process that was paused looks like one that is slow: only what happens again, or takes that much processor time,
            # is a finding, and ends the target.
            if [ -e "$found" ]; then
                status=0
                (ulimit -t "$slow" && exec "$fuzzer" -timeout=3600 -rss_limit_mb=1024 "$found") >"$log.again" 2>&1 && rm "$found" || end="FINDING $found"
            fi
        done
        [ "$status" -eq 0 ] || end="ended with $status, see $log"
        executions=$((executions + $(sed -n 's/^stat::number_of_executed_units: *//p' "$log" | grep . || echo 0)))
        processor_time
        used=$((seconds - before))
        [ "$end" = done ] || break
    done
    covered=$(grep -o 'cov: [0-9]* ft: [0-9]* corp: [0-9]*' "$log" | tail -n 1)
    echo "$target: $((used / 60)) of $minutes processor minutes, $executions executions, $covered, $end"
done
