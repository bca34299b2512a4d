#!/bin/sh
# Ticks over 100 threads of an interpreter that wait: what is told of one that wakes now and then is
# what it was on at that moment, by its own record; and what a tick costs when nothing has changed.
# VERSIONS="cpython-3.13 ..." SECONDS_EACH=20 for more of it.
: "${B:=build}" "${SECONDS_EACH:=4}"
programs=tests/runtimes/programs
tmp=$(mktemp -d)
pid=
trap 'kill -9 $pid 2>/dev/null; rm -rf "$tmp"' EXIT
ok() { echo "ok $1"; }
no() { echo "not ok $1"; shift; echo "$@"; }
check() { what=$1; shift; if "$@"; then ok "$what"; else no "$what" "$@"; fi; }
figure() { sed -n '$s/.*"'"$1"'": \([0-9.-]*\).*/\1/p' "$tmp/told"; }
at_most() { awk "BEGIN { exit !($1 != \"\" && $1 >= 0 && $1 <= $2) }"; }

one=0 other=0
[ "$(nproc)" -lt 2 ] || other=1
sh tests/runtimes/get.sh list 2>/dev/null >"$tmp/list"
command_of() { awk -v n="$1" '$1 == n { print $2 }' "$tmp/list"; }

# look COMMAND DEPTH LOCKED WAKING [stacks]: the program, and ticks on another CPU
look() {
    : >"$tmp/ready"
    taskset -c $one "$1" $programs/wake.py "$2" "$3" "$4" 0 "$tmp/record" >"$tmp/ready" 2>"$tmp/err" &
    pid=$!
    n=0
    while ! grep -q ready "$tmp/ready" && [ $n -lt 300 ]; do
        sleep 0.1
        n=$((n + 1))
    done
    taskset -c $other "$B/tests/ticks" $pid 50 "$SECONDS_EACH" $5 >"$tmp/told" 2>>"$tmp/err"
    kill -TERM $pid
    wait $pid
    tail -n 1 "$tmp/told"
    cat "$tmp/err"
}

for name in ${VERSIONS:-cpython-3.11 cpython-3.13}; do
    command=$(command_of "$name")
    [ -n "$command" ] || [ -n "$VERSIONS" ] || command=$(command -v python3)
    look "$command" 30 80 20 stacks
    check "threads-that-wake-stand-where-they-say-$name" python3 tests/live/ticks.py "$tmp/record" "$tmp/told"
    look "$command" 20 100 0
    echo "$name: a tick with nothing changed: $(figure us_median) us (one in ten at most $(figure us_p10)), $(figure calls) system calls"
    check "a-quiet-tick-takes-a-handful-of-calls-$name" at_most "$(figure calls)" 15
    check "and-reads-nothing-$name" at_most "$(figure walked)" 0
done
