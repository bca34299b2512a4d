#!/bin/sh
# What profiling costs, and what the daemon does about it: figures in the log, in comments and in
# `doctor --cost`; the guard with a budget that no daemon can keep, and with one that it can keep
# again when the load is gone.
: "${B:=build}"
bin=$PWD/$B/ebpfprofiler
tmp=$(mktemp -d)
daemon= loads=
cleanup() { for p in $daemon $loads; do kill -9 "$p" 2>/dev/null; done; rm -rf "$tmp"; }
trap cleanup EXIT
umask 077
check() { name=$1; shift; if "$@"; then echo "ok $name"; else echo "not ok $name"; echo "$@"; tail -4 "$tmp/log" | cut -c1-400; fi; }
wait_for() { # seconds command...
    left=$(($1 * 10)); shift
    while [ $left -gt 0 ]; do "$@" >/dev/null 2>&1 && return 0; sleep 0.1; left=$((left - 1)); done
    return 1
}
conf() { # budget keys...
    printf '[ebpf_profiler]\nenabled = true\nupload_interval_s = 1\ncpu_budget = %s\n' "$1" >"$tmp/c.ini"
    shift
    printf '%s\n' "$@" '[store]' "path = $tmp/store" >>"$tmp/c.ini"
}
start() { "$bin" run -c "$tmp/c.ini" 2>"$tmp/log" & daemon=$!; wait_for 10 logged 'sampling at'; }
stop() { kill -TERM "$daemon"; wait "$daemon"; daemon=; }
logged() { grep -q -- "$1" "$tmp/log"; }
windows() { [ "$(grep -c 'window of' "$tmp/log")" -ge "$1" ]; }
latest() { ls "$tmp"/store/profiles/*"$1"* | tail -1; }
comments() { go tool pprof -comments "$(latest "$1")" 2>/dev/null; }

gcc -O0 -fno-omit-frame-pointer -o "$tmp/ratio" tests/live/ratio.c
gcc -O2 -fno-omit-frame-pointer -pthread -o "$tmp/naps" tests/live/naps.c
"$tmp/ratio" & loads=$!

# --- the figures of a running daemon
conf 100 'sample_hz = 49' 'offcpu = false'
start
wait_for 10 windows 2
"$bin" doctor --cost -c "$tmp/c.ini" >"$tmp/cost" 2>"$tmp/err"
check doctor-shows-the-daemons-last-window sh -c "[ $? -eq 0 ] && grep -q '^daemon $daemon: window of [0-9.]* s on' $tmp/cost"
"$bin" doctor --cost --json -c "$tmp/c.ini" >"$tmp/json"
check the-figures-agree-with-what-the-kernel-says python3 - "$tmp/json" "$daemon" <<'EOP'
import json, os, sys, time
d = json.load(open(sys.argv[1]))
pid = sys.argv[2]
def cpu():
    return sum(int(open(f'/proc/{pid}/task/{t}/schedstat').read().split()[0]) for t in os.listdir(f'/proc/{pid}/task')) / 1e9
c, t = cpu(), time.monotonic()
time.sleep(3)
now = 100 * (cpu() - c) / (time.monotonic() - t)
own = d['user_percent'] + d['system_percent']
print(d)
print('own threads by schedstat afterwards:', now)
ok = d['pid'] == int(pid) and d['samples_due'] >= d['samples_kept'] > 0 and d['rss_bytes'] > 1e6 and d['map_bytes'] > 1e5
ok &= abs(d['total_percent'] - own - d['cpu_programs_percent']) < 1e-3 * d['total_percent']
# One busy CPU of those there are is sampled at 49 Hz, at least.
ok &= 30 < d['samples_due'] / d['seconds'] < 49 * os.cpu_count() * 1.5 and d['cpu_programs_percent'] > 0.001
ok &= 0.1 * now < own < 10 * max(now, 0.1)
sys.exit(0 if ok else 1)
EOP
check one-log-line-says-what-a-window-cost logged 'window of [0-9.]* s: .* samples.*; cost [0-9.]* % of a CPU (user [0-9.]*, kernel [0-9.]*, BPF [0-9.]*)'
comments -cpu-ratio >"$tmp/comments"
check comments-say-it grep -q '^cost [0-9.]* % of a CPU (user' "$tmp/comments"
# The kernel's statistics are on for a second of a minute: else a program's runs are not counted.
runs() { bpftool prog list | awk '/name sample_cpu/ { for (i = 1; i <= NF; i++) if ($i == "run_cnt") n = $(i + 1) } END { print n + 0 }'; }
grew=0 polls=0 last=$(runs)
while [ $polls -lt 30 ]; do sleep 0.1; now=$(runs); [ "$now" = "$last" ] || grew=$((grew + 1)); last=$now; polls=$((polls + 1)); done
echo "statistics seen to grow in $grew of $polls tenths of a second"
if [ "$(cat /proc/sys/kernel/bpf_stats_enabled)" = 0 ]; then
    check statistics-are-on-in-slices-only test $grew -le 20
fi
stop
"$bin" doctor --cost -c "$tmp/c.ini" -d 2 >"$tmp/cost" 2>"$tmp/err"
check doctor-measures-by-itself-when-no-daemon-runs sh -c "[ $? -eq 0 ] && grep -q '^a run of [23]' $tmp/cost && grep -q '^total ' $tmp/cost"
check doctor-names-each-program awk '/^  sample_cpu / { ok = $2 > 0 && $3 > 20 && $4 > 500 } END { exit !ok }' "$tmp/cost"

# --- a budget that nobody can keep
conf 0.01 'sample_hz = 64' 'offcpu = false' 'python_stacks = false'
start
wait_for 30 logged 'samples as little as it can'
check rate-is-halved-down-to-1-hz-with-a-warning sh -c "sed -n 's/.*warning: profiling used [0-9.]* % of a CPU, more than cpu_budget = 0.01; sampling at \([0-9]*\) Hz from now on/\1/p' $tmp/log | tr '\n' ' ' | grep -qx '32 16 8 4 2 1 '"
n=$(grep -c 'window of' "$tmp/log")
wait_for 10 windows $((n + 3))
check never-under-1-hz-and-told-once sh -c "[ \$(grep -c 'as little as it can' $tmp/log) -eq 1 ] && ! grep -q 'at 0 Hz' $tmp/log"
check comments-say-both-rates sh -c "go tool pprof -comments \$(ls $tmp/store/profiles/*-cpu-* | tail -1) 2>/dev/null | grep -q '^1 Hz per CPU by .*, 64 configured'"
check log-line-says-both-rates logged 'files; 1 Hz of 64'
check period-is-the-real-one sh -c "go tool pprof -raw \$(ls $tmp/store/profiles/*-cpu-* | tail -1) 2>/dev/null | grep -q '^Period: 1000000000'"

# --- the budget is raised
conf 100 'sample_hz = 64' 'offcpu = false'
kill -HUP "$daemon"
check full-rate-after-a-reload-with-a-budget wait_for 10 logged 'sampling at 64 Hz per CPU'
n=$(grep -c 'window of' "$tmp/log")
wait_for 10 windows $((n + 2))
check period-follows sh -c "go tool pprof -raw \$(ls $tmp/store/profiles/*-cpu-ratio* | tail -1) 2>/dev/null | grep -q '^Period: 15625000'"
stop

# --- a load that comes and goes: storms of processes, which cost the daemon whatever its rate is
cat >"$tmp/storm.c" <<'EOC'
#include <spawn.h>
#include <sys/wait.h>
int main(void) { char *argv[] = { "true", 0 }; pid_t p;
  for (;;) { if (!posix_spawn(&p, "/bin/true", 0, 0, argv, 0)) waitpid(p, 0, 0); } }
EOC
gcc -O1 -o "$tmp/storm" "$tmp/storm.c"
costs() { sed -n 's/.*; cost \([0-9.]*\) %.*/\1/p' "$tmp/log" | tail -n +2 | sort -n; }
conf 100 'sample_hz = 1' 'offcpu = false' 'python_stacks = false'
start
wait_for 30 windows 8
stop
base=$(costs | sed -n 5p)
for _ in 1 2; do "$tmp/storm" & loads="$loads $!"; done
start
wait_for 30 windows 8
full=$(costs | sed -n 3p)
stop
budget=$(echo "$base $full" | awk '{ b = $2 / 2; if (b < 3 * $1) b = 3 * $1; print (b < 0.3 ? 0.3 : (b > 90 ? 90 : b)) }')
echo "cost without the load $base %, with it $full %; budget $budget %"
conf "$budget" 'sample_hz = 64' 'offcpu = false' 'python_stacks = false'
start
check rate-falls-under-load wait_for 30 logged 'more than cpu_budget'
low=$(sed -n 's/.*sampling at \([0-9]*\) Hz from now on/\1/p' "$tmp/log" | tail -1)
wait_for 10 windows 8
kill $loads 2>/dev/null; loads=
check rate-rises-when-the-load-is-gone wait_for 90 logged 'Hz again'
again=$(sed -n 's/.*sampling at \([0-9]*\) Hz again/\1/p' "$tmp/log" | head -1)
echo "fell to $low Hz or less, first step back $again Hz"
grep -E 'Hz from now on|Hz again' "$tmp/log"
check each-step-back-is-a-doubling python3 - "$tmp/log" <<'EOP'
import re, sys
rate, ok, calm = 64, True, 0
for line in open(sys.argv[1]):
    down = re.search(r'sampling at (\d+) Hz from now on', line)
    up = re.search(r'sampling at (\d+) Hz again', line)
    calm = calm + 1 if 'window of' in line else 0 if down or up else calm
    if down:
        ok &= int(down[1]) == rate // 2
        rate = int(down[1])
    if up:
        ok &= int(up[1]) == min(2 * rate, 64)
        rate = int(up[1])
sys.exit(0 if ok else 1)
EOP
stop

# --- off CPU: a flood of short waits, and T
conf 100 'sample_hz = 1' 'offcpu = true' 'offcpu_min_ms = 1' 'python_stacks = false'
start
wait_for 20 windows 4
stop
base=$(costs | sed -n 2p)
"$tmp/naps" 40 1500 300 >/dev/null & loads=$!
start
wait_for 20 windows 4
stop
full=$(costs | sed -n 2p)
# Far under what taking every wait costs, over what there is without any.
budget=$(echo "$base $full" | awk '{ b = $1 + ($2 - $1) / 6; print (b < 0.05 ? 0.05 : (b > 100 ? 100 : b)) }')
echo "cost without short waits $base %, with all of them $full %; budget $budget %"
conf "$budget" 'sample_hz = 1' 'offcpu = true' 'offcpu_min_ms = 1' 'python_stacks = false'
rm -rf "$tmp/store/profiles"
start
steps() { [ "$(grep -c 'sampling waits shorter than' "$tmp/log")" -ge "$1" ]; }
check t-is-raised-in-steps wait_for 60 steps 2
check t-begins-at-twice-the-minimum-and-doubles sh -c "sed -n 's/.*sampling waits shorter than \([0-9.]*\) ms from now on/\1/p' $tmp/log | head -2 | tr '\n' ' ' | grep -qx '2 4 '"
n=$(grep -c 'window of' "$tmp/log")
wait_for 20 windows $((n + 5))
"$bin" doctor --cost -c "$tmp/c.ini" >"$tmp/cost"
check doctor-says-t grep -q 'waits shorter than [0-9.]* ms are sampled' "$tmp/cost"
check comments-say-t sh -c "go tool pprof -comments \$(ls $tmp/store/profiles/*-offcpu-naps* | tail -1) 2>/dev/null | grep -q '^off CPU: .*those shorter than T = [0-9.]* ms sampled'"
grep -o 'sampling waits.*' "$tmp/log"
tail -1 "$tmp/cost"
# 40 threads that do nothing but wait, and one that waits for them, whatever T is.
check sums-stay-right-when-short-waits-are-sampled python3 - "$tmp/store/profiles" <<'EOP'
import glob, re, sys
sys.path.insert(0, 'tests/live')
from pprof import Profile
total = seconds = windows = 0
for f in sorted(glob.glob(sys.argv[1] + '/*-offcpu-naps*'))[1:]:
    p = Profile(f)
    T = [float(m[1]) for m in (re.search(r'T = ([0-9.]+) ms', c) for c in p.comments) if m]
    # One sample stands for T: enough of them to tell the mean from chance.
    if not T or T[0] > 64:
        continue
    ns = sum(v for v, s, l in p.samples)
    total, seconds, windows = total + ns, seconds + p.duration / 1e9, windows + 1
    print('T %g ms: %.3f of %.3f thread seconds' % (T[0], ns / 1e9, 41 * p.duration / 1e9))
share = total / 1e9 / 41 / seconds if seconds else 0
print('%d windows: %.4f of all time' % (windows, share))
sys.exit(0 if windows >= 3 and 0.93 < share < 1.04 else 1)
EOP
kill $loads; loads=
check t-falls-when-the-waits-are-gone wait_for 90 logged 'sampling waits shorter than .* again\|keeping every wait again'
stop

# --- where looking at each switch is too much by itself, off-CPU profiling pauses
conf 0.01 'sample_hz = 1' 'offcpu = true' 'offcpu_min_ms = 10000' 'python_stacks = false'
gcc -O2 -pthread -o "$tmp/pingpong" tests/live/pingpong.c
"$tmp/pingpong" 100000000 0 0 >/dev/null & loads=$!
start
check switches-over-the-budget-pause-it wait_for 30 logged 'off-CPU profiling pauses'
check log-line-says-so wait_for 10 logged '; off CPU paused'
n=$(grep -c 'window of' "$tmp/log")
wait_for 20 windows $((n + 1))
before=$(sed -n 's/.* \([0-9]*\) waits.*/\1/p' "$tmp/log" | tail -1)
check nothing-is-looked-at-meanwhile test "$before" = 0
conf 100 'sample_hz = 1' 'offcpu = true' 'python_stacks = false'
kill -HUP "$daemon"
sleep 1
n=$(grep -c 'window of' "$tmp/log")
check waits-again-after-a-reload-with-a-budget wait_for 30 sh -c "tail -n +$((n + 1)) $tmp/log | grep -q ' [1-9][0-9]* waits'"
stop
