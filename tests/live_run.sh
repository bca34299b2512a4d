#!/bin/sh
# The daemon's life: windows, store, reload, a second daemon, CPUs that come and go, a server that
# is down, SIGTERM, SIGKILL.
: "${B:=build}"
bin=$PWD/$B/ebpfprofiler
tmp=$(mktemp -d)
daemon= server= load=
cleanup() {
    for p in $daemon $server $load; do kill -9 $p 2>/dev/null; done
    [ -e /sys/devices/system/cpu/cpu1/online ] && echo 1 >/sys/devices/system/cpu/cpu1/online
    rm -rf "$tmp"
}
trap cleanup EXIT
umask 077
check() { name=$1; shift; if "$@"; then echo "ok $name"; else echo "not ok $name"; echo "$@"; tail -20 "$tmp/log"; fi; }
wait_for() { # seconds command...
    n=$(($1 * 10)); shift
    while [ $n -gt 0 ]; do "$@" >/dev/null 2>&1 && return 0; sleep 0.1; n=$((n - 1)); done
    return 1
}
conf() { # hz interval extra...
    printf '[ebpf_profiler]\nenabled = true\nsample_hz = %s\nupload_interval_s = %s\ncpu_budget = 100\n' "$1" "$2" >"$tmp/c.ini"
    shift 2
    printf '%s\n' "[store]" "path = $tmp/store" "$@" >>"$tmp/c.ini"
}
profiles() { ls "$tmp/store/profiles" 2>/dev/null | grep -c 'pb.gz$'; }
some() { [ "$(profiles)" -gt 0 ]; }
logged() { grep -q "$1" "$tmp/log"; }
bpf_objects() { bpftool prog list 2>/dev/null | grep -c 'sample_cpu'; }

gcc -O0 -fno-omit-frame-pointer -o "$tmp/ratio" tests/live/ratio.c
"$tmp/ratio" & load=$!

# --- windows into the store
conf 49 1
before=$(bpf_objects)
"$bin" -c "$tmp/c.ini" 2>"$tmp/log" & daemon=$!
check first-window-within-5-s wait_for 5 some
check profile-of-the-load wait_for 5 sh -c "ls $tmp/store/profiles | grep -q -- '-cpu-ratio.pb.gz'"
f=$(ls "$tmp"/store/profiles/*-cpu-ratio.pb.gz | head -1)
check go-tool-pprof-reads-it sh -c "go tool pprof -top '$f' 2>/dev/null | grep -q heavy"
check private-files test "$(stat -c %a "$f")" = 600

# --- a second daemon on the same store says so and ends
"$bin" -c "$tmp/c.ini" 2>"$tmp/second"
check second-daemon-refuses sh -c "[ $? -ne 0 ] && grep -q 'another ebpfprofiler' $tmp/second"

# --- reload: good, then bad
conf 97 1
kill -HUP $daemon
check reload-takes-the-new-rate wait_for 5 logged 'sampling at 97 Hz'
echo 'nonsense = 1' >>"$tmp/c.ini"
kill -HUP $daemon
check bad-reload-keeps-the-old wait_for 5 logged 'keeping the configuration in force'
check still-running kill -0 $daemon

# --- the rate limit of the kernel is honoured while running
max=$(cat /proc/sys/kernel/perf_event_max_sample_rate)
echo 50 >/proc/sys/kernel/perf_event_max_sample_rate 2>/dev/null
check rate-limit-is-followed wait_for 5 logged 'was lowered'
echo "$max" >/proc/sys/kernel/perf_event_max_sample_rate

# --- frozen: SIGSTOP for a while is no burst of windows afterwards
n=$(grep -c 'window of' "$tmp/log")
kill -STOP $daemon; sleep 4; kill -CONT $daemon; sleep 0.5
check no-burst-after-a-stop test $(($(grep -c 'window of' "$tmp/log") - n)) -le 2

# --- CPUs come and go
if [ -w /sys/devices/system/cpu/cpu1/online ] && echo 0 >/sys/devices/system/cpu/cpu1/online 2>/dev/null; then
    check cpu-leaves wait_for 5 logged '1 are sampled now'
    echo 1 >/sys/devices/system/cpu/cpu1/online
    check cpu-joins wait_for 5 logged '2 are sampled now'
else
    echo "ok cpu-hotplug-not-offered-by-this-machine"
fi

# --- SIGTERM flushes the window and ends at once
conf 49 3600
kill -HUP $daemon; wait_for 5 logged 'every 3600 s'
sleep 1
rm -f "$tmp"/store/profiles/*
start=$(date +%s%N)
kill -TERM $daemon; wait $daemon; rc=$?
took=$((($(date +%s%N) - start) / 1000000))
check sigterm-exit-0 test $rc -eq 0
check sigterm-flushes-the-window some
check sigterm-within-2-s test $took -le 2000

# --- a server that is down for three windows loses nothing
mkdir "$tmp/sink"
python3 - "$tmp" <<'EOF'
import socket, sys
s = socket.socket(); s.bind(('127.0.0.1', 0)); open(sys.argv[1] + '/port', 'w').write(str(s.getsockname()[1]))
EOF
port=$(cat "$tmp/port")
conf 49 1 '[upload]' "url = http://127.0.0.1:$port"
rm -rf "$tmp/store/profiles"
"$bin" -c "$tmp/c.ini" 2>"$tmp/log" & daemon=$!
windows() { [ "$(grep -c 'window of' "$tmp/log")" -ge "$1" ]; }
check three-windows-without-a-server wait_for 10 windows 4
python3 tests/live/sink.py "$port" "$tmp/sink" & server=$!
all_there() {
    # The last window may be on its way: what was stored before it must have arrived.
    stored=$(ls "$tmp/store/profiles" | wc -l) sent=$(ls "$tmp/sink" | grep -c pb.gz)
    [ "$sent" -gt 0 ] && [ -z "$(ls "$tmp/store/spool")" ] && [ "$sent" -ge $((stored - 40)) ]
}
wait_for 20 all_there
kill -TERM $daemon; wait $daemon; daemon=
complete() { [ "$(ls "$tmp/sink" | grep -c pb.gz)" -eq "$(ls "$tmp/store/profiles" | wc -l)" ]; }
check nothing-lost-when-the-server-was-down complete
echo "stored $(ls "$tmp/store/profiles" | wc -l), sent $(ls "$tmp/sink" | grep -c pb.gz)"
check envelope sh -c "cat $tmp/sink/*.query | grep -q 'service.name=ratio.*source=ebpf'"
check pid-is-hashed sh -c "! go tool pprof -raw $tmp/sink/*-ratio.pb.gz 2>/dev/null | grep -q 'pid:\[$load\]'"
check uploads-are-bare sh -c "! go tool pprof -raw $tmp/sink/*-ratio.pb.gz 2>/dev/null | grep -qw heavy"

# --- SIGKILL leaves nothing in the kernel, and the next start is clean
conf 49 1
"$bin" -c "$tmp/c.ini" 2>"$tmp/log" & daemon=$!
wait_for 5 logged 'sampling at'
kill -9 $daemon; wait $daemon 2>/dev/null
sleep 0.5
check sigkill-leaves-no-program test "$(bpf_objects)" -le "$before"
"$bin" -c "$tmp/c.ini" 2>"$tmp/log" & daemon=$!
check restart-after-sigkill wait_for 5 windows 1
kill -TERM $daemon; wait $daemon; daemon=

"$bin" doctor >"$tmp/doctor"
check doctor-exit-0 test $? -eq 0
check doctor-says-ok grep -q ok "$tmp/doctor"
