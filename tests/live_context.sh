#!/bin/sh
# What threads say that they work on is on their samples, and on those only that were taken meanwhile:
# wherever the variable lies (tests/live/context.c), on CPU and off. Off, nothing is said.
: "${B:=build}"
bin=$PWD/$B/ebpfprofiler
tmp=$(mktemp -d)
daemon= loads=
cleanup() {
    for p in $daemon $loads; do kill -9 "$p" 2>/dev/null; done
    rm -rf "$tmp"
}
trap cleanup EXIT
trap 'exit 1' INT TERM
check() { name=$1; shift; if "$@"; then echo "ok $name"; else echo "not ok $name"; echo "$@"; tail -5 "$tmp/log"; fi; }
logged() { grep -q "$1" "$tmp/log"; }
windows() { [ "$(grep -c 'window of' "$tmp/log")" -ge "$1" ]; }
wait_for() { # seconds command...
    until=$(($(date +%s) + $1)); shift
    while ! "$@" >/dev/null 2>&1; do [ "$(date +%s)" -lt $until ] || return 1; sleep 0.2; done
}
judge() { PYTHONPATH=tests/live python3 tests/live/context_judge.py "$tmp/store/profiles" "$@"; }
start() { # true|false
    printf '%s\n' '[ebpf_profiler]' 'enabled = true' 'sample_hz = 199' 'upload_interval_s = 2' 'cpu_budget = 100' 'offcpu_dwarf = true' \
        "thread_context = $1" '[filter]' 'include = exe:ctx-*' '[store]' "path = $tmp/store" '[web]' 'listen =' >"$tmp/c.ini"
    "$bin" -c "$tmp/c.ini" 2>"$tmp/log" & daemon=$!
    wait_for 20 logged 'sampling at'
}
stop() { kill -TERM "$daemon" 2>/dev/null; wait "$daemon"; daemon=; }

src=tests/live/context.c
descriptors=-mtls-dialect=gnu2 # the only ones there are on arm64
[ "$(uname -m)" = x86_64 ] || descriptors=-mtls-dialect=desc
cc="gcc -O1 -fno-omit-frame-pointer -pthread"
$cc -DPROGRAM -DVARIABLE -rdynamic $src -o "$tmp/ctx-program"
$cc -DPROGRAM $src -o "$tmp/ctx-pairs"
cp "$tmp/ctx-pairs" "$tmp/ctx-descriptors"
$cc -DVARIABLE -shared -fPIC $src -o "$tmp/libpairs.so"
$cc -DVARIABLE -shared -fPIC $descriptors $src -o "$tmp/libdescriptors.so"
$cc -DVARIABLE -shared -fPIC -ftls-model=initial-exec $src -o "$tmp/libstatic.so"
$cc -DPROGRAM $src -o "$tmp/ctx-static" -Wl,--no-as-needed "$tmp/libstatic.so"
$cc -DPROGRAM $src -o "$tmp/ctx-linked" -Wl,--no-as-needed "$tmp/libdescriptors.so"
kinds="program static linked pairs descriptors"
run() { # seconds
    for k in program static linked; do "$tmp/ctx-$k" "$1" & loads="$loads $!"; done
    for k in pairs descriptors; do "$tmp/ctx-$k" "$1" "$tmp/lib$k.so" & loads="$loads $!"; done
}

run 40
start true
wait_for 60 windows 9
stop
for k in $kinds; do
    check "on-cpu-$k" judge cpu "ctx-$k"
    [ "$k" = linked ] || check "off-cpu-$k" judge offcpu "ctx-$k"
done
check nobody-is-refused eval '! logged "is not read"'

rm -rf "$tmp/store"
start false
wait_for 30 windows 3
stop
silent() { ! judge cpu "ctx-*" | grep -v 'right 0 wrong 0'; }
check off-says-nothing silent
