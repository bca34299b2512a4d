#!/bin/sh
# Each fuzz target over a copy of its committed corpus, FUZZ_SECONDS (60) each. With FUZZ_SEED the
# same inputs are made each time, as far as the seconds reach.
: "${B:=build/fuzz}" "${FUZZ_SECONDS:=60}"
passed=0 failed=0
for t in "$@"; do
    name=$(basename "$t" | sed 's/^fuzz_//')
    work=$B/corpus/$name
    mkdir -p "$work"
    # Inputs that crash go here, to be committed once mended.
    if "$t" ${FUZZ_SEED:+-seed="$FUZZ_SEED"} -max_total_time="$FUZZ_SECONDS" -timeout=5 -rss_limit_mb=512 -print_final_stats=1 \
        -artifact_prefix="$B/crash-$name-" "$work" "tests/fuzz/corpus/$name" >"$B/$name.log" 2>&1; then
        passed=$((passed + 1))
        echo "fuzz_$name: $(sed -n 's/stat::number_of_executed_units: *//p' "$B/$name.log") executions"
    else
        failed=$((failed + 1))
        tail -30 "$B/$name.log"
    fi
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
