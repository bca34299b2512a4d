#!/bin/sh
# Interpreters in profiles, whichever they are: the time of threads is whole, stacks merge, what the
# configuration and the command line say holds, children without exec are served, doctor tells.
: "${B:=build}"
: "${SECONDS_EACH:=6}"
bin=$B/ebpfprofiler
tmp=$(mktemp -d)
pids=
trap 'kill $pids 2>/dev/null; rm -rf "$tmp"' EXIT
ok() { echo "ok $1"; }
no() { echo "not ok $1"; shift; echo "$@"; }
check() { name=$1; shift; if "$@"; then ok "$name"; else no "$name" "$@"; fi; }
wait_for() { for _ in $(seq 150); do [ -s "$1" ] && return 0; sleep 0.2; done; return 1; }

python=$(sh tests/runtimes/get.sh list 2>/dev/null | sed -n 's/^cpython-3.1[13] //p' | head -n 1)
: "${python:=$(command -v python3)}"

# 10 wait for a lock, 5 sleep and wake, 1 spins, and the main thread: 17 threads' time.
$python tests/live/wall.py 10 5 1 >"$tmp/ready" & pid=$!
pids="$pids $pid"
wait_for "$tmp/ready"
$bin record -p $pid -d "$SECONDS_EACH" -e python_wall --format folded -o "$tmp/wall" 2>"$tmp/err"
cat "$tmp/wall"
check wall-time-of-all-threads-is-whole python3 - "$tmp/wall" "$SECONDS_EACH" <<'PY'
import sys
seconds = float(sys.argv[2])
sums = {}
for line in open(sys.argv[1]):
    stack, ns = line.rsplit(' ', 1)
    leaf = stack.split(';')[-1]
    sums[leaf] = sums.get(leaf, 0) + int(ns) / 1e9
want = {'hold': 10, 'sleeper': 5, 'spinner': 1, '<module>': 1}
print(sums)
# The process is looked at some tenths of a second after the start; then nothing is missing.
each = {k: sums.get(k, 0) / n for k, n in want.items()}
sys.exit(not all(seconds * 0.8 < v < seconds * 1.1 for v in each.values()) or
         max(each.values()) - min(each.values()) > 0.1 * seconds)
PY
$bin record -p $pid -d 2 --no-runtimes --format folded -o "$tmp/none" 2>/dev/null
check no-runtimes-leaves-native-stacks sh -c "grep -q PyEval '$tmp/none' && ! grep -q ';spinner' '$tmp/none'"
$bin doctor >"$tmp/doctor" 2>/dev/null
check doctor-tells-of-it grep -qE "python3.*: [A-Za-z]+ 3\.[0-9]+\.[0-9]+: .*$pid" "$tmp/doctor"
$bin doctor --json 2>/dev/null >"$tmp/doctor.json"
check doctor-tells-programs python3 -c "import json,sys; d = json.load(open('$tmp/doctor.json')); sys.exit(not any($pid in r['pids'] for r in d['runtimes']))"
kill $pid

$python tests/runtimes/programs/churn.py 120 >"$tmp/churn" 2>/dev/null & pid=$!
pids="$pids $pid"
wait_for "$tmp/churn"
$bin record -p $pid -d "$SECONDS_EACH" -F 499 -o "$tmp/churn.pb.gz" 2>"$tmp/err"
grep "interpreters' stacks" "$tmp/err"
check stacks-of-churn-merge python3 - "$tmp/err" <<'PY'
import re, sys
line = [l for l in open(sys.argv[1]) if l.startswith("interpreters' stacks of the host")][0]
share = {k: float(v) for k, v in re.findall(r'(merged[^,]*?|kept apart[^,]*?|refused[^,]*?) ([0-9.]+) %', line)}
print(share)
sys.exit(not sum(v for k, v in share.items() if k.startswith('merged')) >= 99)
PY
kill $pid

# A child that executes nothing has its parent's interpreter.
cat >"$tmp/fork.py" <<'PY'
import os, time
def child():
    n = 0
    while True:
        n += 1
if os.fork() == 0:
    child()
print('ready', flush=True)
os.wait()
PY
$python "$tmp/fork.py" >"$tmp/forked" & pid=$!
pids="$pids $pid"
wait_for "$tmp/forked"
kid=$(cat "/proc/$pid/task/$pid/children")
pids="$pids $kid"
# shellcheck disable=SC2086
$bin record -p $kid -d 2 --format folded -o "$tmp/kid" 2>/dev/null
check a-child-without-exec-is-served grep -q ';child ' "$tmp/kid"
# shellcheck disable=SC2086
kill $kid

# The daemon, as its configuration says.
$python tests/live/wall.py 2 0 1 >"$tmp/ready2" & pid=$!
pids="$pids $pid"
wait_for "$tmp/ready2"
configure() { # NAME INTERVAL KEY...
    name=$1 interval=$2
    shift 2
    {
        printf '[ebpf_profiler]\nenabled = true\nupload_interval_s = %s\noffcpu = false\ncpu_budget = 50\n' "$interval"
        for key; do echo "$key"; done
        printf '[store]\npath = %s/%s\n[upload]\nurl =\n' "$tmp" "$name"
    } >"$tmp/$name.ini"
    mkdir -p "$tmp/$name"
}
daemon() { # NAME KEY...: runs it for two windows
    name=$1
    shift
    configure "$name" 3 "$@"
    $bin run -c "$tmp/$name.ini" 2>"$tmp/$name.log" & daemon=$!
    sleep 8
    kill $daemon
    wait $daemon
}
names() { # NAME TYPE: functions in its profiles of that type
    for f in $(find "$tmp/$1" -name "*$2*.pb.gz"); do go tool pprof -top -nodecount=500 "$f" 2>/dev/null; done
}
daemon usual 'runtime_stacks = python_legacy'
names usual cpu >"$tmp/names"
check the-daemon-shows-functions-of-programs grep -q ' spinner$' "$tmp/names"
# Before a process is known to be one of the runtime's its stacks are native ones: a second or so.
loop_share() { # in the profile that has the spinner
    for f in $(find "$tmp/$1" -name '*cpu*.pb.gz'); do
        go tool pprof -top -nodecount=500 "$f" 2>/dev/null >"$tmp/top"
        grep -q ' spinner$' "$tmp/top" || continue
        awk '$6 == "_PyEval_EvalFrameDefault" { sub("%", "", $5); if ($5 > most) most = $5 }
            END { print most + 0 }' "$tmp/top"
    done | sort -rn | head -n 1
}
share=$(loop_share usual)
echo "the loop's share of the spinner's profile: $share %"
check and-hides-the-loop awk "BEGIN { exit !($share < 30) }"
names usual python_wall >"$tmp/names"
check the-daemon-writes-the-runtimes-own-type grep -q ' hold$' "$tmp/names"
daemon inside 'runtime_stacks = python_legacy' 'runtime_internals = true'
names inside cpu >"$tmp/names"
check internals-show-the-loop-as-well sh -c "grep -q '_PyEval_EvalFrameDefault' '$tmp/names' && grep -q ' spinner\$' '$tmp/names'"
daemon off 'python_stacks = false' 'runtime_stacks ='
names off cpu >"$tmp/names"
check switched-off-is-off sh -c "grep -q '_PyEval_EvalFrameDefault' '$tmp/names' && ! grep -q ' spinner\$' '$tmp/names'"

# A runtime's own rate wins over the general one: each look at a process is an iterator that is made.
looks() { # NAME HZ: BPF_ITER_CREATE in 4 s
    configure "$1" 60 'runtime_stacks = python_legacy' 'runtime_hz = 19'
    printf '[runtime.cpython]\nhz = %s\n' "$2" >>"$tmp/$1.ini"
    $bin run -c "$tmp/$1.ini" 2>"$tmp/$1.log" & daemon=$!
    sleep 6
    perf stat -x ';' -e syscalls:sys_enter_bpf --filter 'cmd==33' -p $daemon -- sleep 4 2>&1 | sed -n 's/^\([0-9]*\);.*/\1/p'
    kill $daemon
    wait $daemon
}
slow=$(looks slow 2) fast=$(looks fast 100)
echo "looks in 4 s: $slow at 2 Hz, $fast at 100 Hz"
check a-runtimes-own-rate-is-kept sh -c "[ '$slow' -gt 0 ] && [ '$fast' -gt $((3 * ${slow:-1000}))  ]"
