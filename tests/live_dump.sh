#!/bin/sh
# `dump` on real programs: every thread of an interpreter as the interpreter itself tells it, native
# functions at their places, programs without an interpreter, and what cannot be done as a sentence.
: "${B:=build}"
bin=$B/ebpfprofiler
tmp=$(mktemp -d)
pids=
trap 'kill $pids 2>/dev/null; rm -rf "$tmp"' EXIT
ok() { echo "ok $1"; }
no() { echo "not ok $1"; shift; echo "$@"; }
check() { name=$1; shift; if "$@"; then ok "$name"; else no "$name" "$@"; fi; }
wait_for() { # FILE: until it has a line, 30 s at most
    for _ in $(seq 150); do [ -s "$1" ] && return 0; sleep 0.2; done
    return 1
}

python=$(sh tests/runtimes/get.sh list 2>/dev/null | sed -n 's/^cpython-3.1[13] //p' | head -n 1)
: "${python:=$(command -v python3)}"

$python tests/runtimes/programs/park.py -d 5 >"$tmp/park" 2>/dev/null & pid=$!
pids="$pids $pid"
wait_for "$tmp/park" || no parked "the test program did not start"
$bin dump $pid --json >"$tmp/json" 2>"$tmp/err"
cat >"$tmp/compare.py" <<'PY'
import json, sys
park = json.loads(open(sys.argv[1]).readline())
dump = json.load(open(sys.argv[2]))
ours = {t['tid']: t for t in dump['threads']}
bad = 0
for t in park['threads']:
    want = [(f['func'], f['file'], f['line']) for f in t['frames']]
    o = ours.get(t['tid'])
    got = [(f['func'], f['file'], f['line']) for f in o['frames']] if o else None
    # What is longer than the limits is cut, and says so.
    if o and o['cut']:
        want = want[:len(got)]
    if t['name'] == 'name_long' and got:
        want = [(a[:500], b[:500], c) for a, b, c in want]
        got = [(a[:500], b[:500], c) for a, b, c in got]
    # A second interpreter's list ends where it was entered.
    if t['name'] == 'interpreter' and got:
        want = want[:len(got)]
    if want != got:
        bad += 1
        print(t['name'], o and o['refused'], want[:3], (got or [])[:3])
print(len(park['threads']), 'threads,', bad, 'different;', dump['runtime']['text'])
sys.exit(bad != 0 or len(park['threads']) < 20)
PY
check threads-as-the-interpreter-tells-them python3 "$tmp/compare.py" "$tmp/park" "$tmp/json"
# Of a thread that waits nothing needs BPF: two looks at /proc say that it stood still meanwhile.
setpriv --bounding-set -bpf,-perfmon,-sys_admin "$bin" dump $pid --json >"$tmp/json" 2>"$tmp/err"
check and-without-bpf-as-well python3 "$tmp/compare.py" "$tmp/park" "$tmp/json"
check which-is-said-in-one-sentence sh -c "[ \$(wc -l <'$tmp/err') -eq 1 ] && grep -q 'looked at through /proc' '$tmp/err'"
$bin dump $pid >"$tmp/text" 2>"$tmp/err"
check first-line-names-process-and-second-the-runtime sh -c \
    "sed -n 1p '$tmp/text' | grep -q '^process $pid: .*park.py' && sed -n 2p '$tmp/text' | grep -qE '^[A-Za-z]+ 3\.[0-9]+\.[0-9]+, [0-9]+ threads'"
check frames-have-function-file-line grep -qE '^    descend \(/.*park\.py:[0-9]+\)$' "$tmp/text"
check nothing-to-complain test ! -s "$tmp/err"
$bin dump --native $pid >"$tmp/native" 2>"$tmp/err"
check native-functions-stand-between sh -c \
    "grep -qE '^    descend .*park.py' '$tmp/native' && grep -qE '^    (_start|__libc_start_main|Py_BytesMain|Py_RunMain) ' '$tmp/native' && ! grep -q 'not merged' '$tmp/native'"
kill $pid

sleep 300 & pid=$!
pids="$pids $pid"
sleep 0.3
$bin dump $pid >"$tmp/sleep" 2>&1
check without-an-interpreter-native-stacks sh -c \
    "grep -q '^no interpreter that is known here' '$tmp/sleep' && grep -q 'nanosleep' '$tmp/sleep' && grep -q '__libc_start_main' '$tmp/sleep'"
cat "$tmp/sleep"
kill $pid

gcc -O0 -fno-omit-frame-pointer -o "$tmp/ratio" tests/live/ratio.c
"$tmp/ratio" 60 & pid=$!
pids="$pids $pid"
sleep 0.3
$bin dump $pid >"$tmp/ratio.txt" 2>&1
check a-running-thread-is-sampled sh -c "grep -q ' running\$' '$tmp/ratio.txt' && grep -q '^    spin (ratio)' '$tmp/ratio.txt' && grep -q '^    main (ratio)' '$tmp/ratio.txt'"
cat "$tmp/ratio.txt"
kill $pid

$bin dump 4194303 >"$tmp/out" 2>"$tmp/err"
check no-such-process-is-said sh -c "[ $? -eq 1 ] && grep -q 'there is no such process' '$tmp/err' && [ ! -s '$tmp/out' ]"
$bin dump x >/dev/null 2>"$tmp/err"
check no-number-is-a-usage-error test $? -eq 2
