#!/bin/sh
# What it costs, in one run on one machine: sampling beside `perf record -g`, unwind tables, walks
# of known depth beside frame pointers and `perf record --call-graph dwarf`; stacks of interpreters
# (bench_stacks.py); and what each of several profilers costs fixed work on the host (bench_cost.py).
# Needs root.
# BENCH=sampling|tables|walk|stacks|cost runs one part; SECONDS_EACH sets the length of each measurement,
# BLOCKS the number of measurements of the last part (about 50 s a block and kind of work).
: "${B:=build}" "${BENCH:=sampling tables walk stacks cost}" "${SECONDS_EACH:=10}"
tmp=$(mktemp -d)
loads= stats=$(cat /proc/sys/kernel/bpf_stats_enabled)
trap 'kill $loads 2>/dev/null; echo $stats >/proc/sys/kernel/bpf_stats_enabled; rm -rf "$tmp"' EXIT
secs=$SECONDS_EACH
umask 077
echo 1 >/proc/sys/kernel/bpf_stats_enabled

# CPU seconds of a process, all threads, to the nanosecond.
cpu() { cat /proc/"$1"/task/*/schedstat 2>/dev/null | awk '{ s += $1 } END { print s / 1e9 }'; }
# Run time and runs of our program (the youngest of its name), as the kernel counts them.
prog() { bpftool prog list | awk '/name sample_cpu/ { a = b = 0; for (i = 1; i <= NF; i++) { if ($i == "run_time_ns") a = $(i + 1); if ($i == "run_cnt") b = $(i + 1) } } END { print a, b }'; }
# ns per sample between two prog() lines
per_sample() { echo "$1 $2" | awk '{ printf "%.0f", ($4 > $2) ? ($3 - $1) / ($4 - $2) : 0 }'; }

conf() { # hz
    printf '[ebpf_profiler]\nenabled = true\nsample_hz = %s\nupload_interval_s = %s\ncpu_budget = 100\nmax_frames = 512\n[store]\npath = %s/store\n' \
        "$1" "$secs" "$tmp" >"$tmp/c.ini"
}

bench_sampling() {
    printf '\n## Sampling: %s busy processes, %s s each\n' "$(nproc)" "$secs"
    printf '%-24s %14s %16s %10s %13s\n' '' 'BPF ns/sample' 'user CPU ms/s' samples bytes/sample
    gcc -O1 -o "$tmp/ratio" tests/live/ratio.c
    for _ in $(seq "$(nproc)"); do "$tmp/ratio" & loads="$loads $!"; done
    for hz in 19 99; do
        conf $hz
        "$B/ebpfprofiler" run -c "$tmp/c.ini" 2>"$tmp/log" & d=$!
        sleep 3
        c0=$(cpu $d) p0=$(prog)
        sleep "$secs"
        c1=$(cpu $d) p1=$(prog)
        kill $d; wait $d
        bytes=$(cat "$tmp"/store/profiles/* | wc -c)
        rm -rf "$tmp/store/profiles"
        ours=$(echo "$c0 $c1 $secs" | awk '{ print ($2 - $1) / $3 * 1000 }')
        n=$(echo "$p0 $p1" | awk '{ print $4 - $2 }')
        printf '%-24s %14s %16.2f %10d %13.1f\n' "ebpfprofiler $hz Hz" "$(per_sample "$p0" "$p1")" "$ours" "$n" \
            "$(echo "$bytes $n" | awk '{ print $1 / $2 }')"
        perf record -q -a -e cpu-clock -F $hz -g -o "$tmp/perf.data" sleep "$((secs + 3))" 2>/dev/null & p=$!
        sleep 3; c0=$(cpu $p); sleep "$((secs - 1))"; c1=$(cpu $p); wait $p
        post=$( { env TIMEFORMAT='%U %S' bash -c "time perf script -i $tmp/perf.data >$tmp/script"; } 2>&1 | tail -1)
        n=$(grep -c cpu-clock "$tmp/script")
        theirs=$(echo "$c0 $c1 $((secs - 1))" | awk '{ print ($2 - $1) / $3 * 1000 }')
        printf '%-24s %14s %16.2f %10d %13.1f\n' "perf record -g $hz Hz" - "$theirs" "$n" \
            "$(echo "$(stat -c %s "$tmp/perf.data") $n" | awk '{ print $1 / $2 }')"
        echo "$ours $theirs $post $secs" | awk '{ printf "  ours / perf record: %.2f; with perf script (%.2f s for %d s), which ours needs not: %.2f\n", ($2 > 0) ? $1 / $2 : 0, $3 + $4, $5 + 3, $1 / ($2 + ($3 + $4) / ($5 + 3) * 1000) }'
    done
    kill $loads; loads=
}

bench_tables() {
    printf '\n## Unwind tables: compiled from .eh_frame, nothing cached\n'
    printf '%-14s %10s %10s %8s %11s %10s %10s %12s\n' file 'text MB' rows rules bytes/row 'CPU s' 'us/row' 'peak heap MB'
    base=$("$B/ebpfprofiler" tables --json /bin/true | sed 's/.*"peak_kib":\([0-9]*\).*/\1/')
    for f in /lib/*-linux-gnu/libc.so.6 "$(find /usr/lib/jvm -name libjvm.so 2>/dev/null | head -1)" \
        "$(readlink -f "$(command -v node)")" "$(ls /usr/lib/*-linux-gnu/libLLVM-*.so.1 2>/dev/null | head -1)"; do
        [ -e "$f" ] || continue
        "$B/ebpfprofiler" tables --json "$f" | python3 -c '
import json, os, sys
d = json.load(sys.stdin)
print("%-14s %10.1f %10d %8d %11.2f %10.4f %10.3f %12.1f" % (os.path.basename(d["file"])[:14], d["text_bytes"] / 1e6,
      d["rows"], d["rules"], d["bytes_per_row"], d["cpu_s"], d["cpu_s"] * 1e6 / d["rows"], (d["peak_kib"] - int(sys.argv[1])) / 1024))' "$base"
    done
    echo 'peers, by their own figures: 8 B a row and slack (OTel), 8 B (lightswitch), 16 B (Parca)'
}

walk() { # label depth mib hz binary [record options]
    label=$1 depth=$2 mib=$3 hz=$4 binary=$5
    shift 5
    taskset -c 0 "$binary" "$depth" "$mib" $((secs + 6)) >/dev/null & l=$!
    "$B/ebpfprofiler" record -d $((secs + 4)) -F "$hz" -p $l "$@" -o "$tmp/w.pb.gz" 2>"$tmp/err" & r=$!
    sleep 2; p0=$(prog); sleep "$secs"; p1=$(prog)
    wait $r; kill $l 2>/dev/null; wait $l 2>/dev/null
    printf '%-34s %6s %6s %14s   %s\n' "$label" "$depth" "$( [ "$mib" = 0 ] && echo hot || echo cold)" "$(per_sample "$p0" "$p1")" \
        "$(sed -n 's/^user stacks of the host: //p' "$tmp/err")"
}

bench_walk() {
    printf '\n## Walks: BPF ns per sample, everything included; hot: 999 Hz, quiet caches; cold: 19 Hz, %s MiB written at random between samples\n' 32
    printf '%-34s %6s %6s %14s   %s\n' '' depth caches 'BPF ns/sample' stacks
    gcc -O2 -fomit-frame-pointer -o "$tmp/deep" tests/live/deep.c
    gcc -O2 -fno-omit-frame-pointer -mno-omit-leaf-frame-pointer -o "$tmp/deepfp" tests/live/deep.c
    for depth in 8 32 128; do
        walk 'tables' $depth 0 999 "$tmp/deep"
        walk 'frame pointers' $depth 0 999 "$tmp/deepfp" --frame-pointers
        walk 'tables' $depth 32 19 "$tmp/deep"
        walk 'frame pointers' $depth 32 19 "$tmp/deepfp" --frame-pointers
    done
    printf '\n%-34s %14s %16s %14s\n' 'the same program, 128 frames, 99 Hz' 'recording ms/s' 'post-process ms/sample' bytes/sample
    taskset -c 0 "$tmp/deep" 128 0 $((secs * 3 + 20)) >/dev/null & l=$!
    loads=$l
    "$B/ebpfprofiler" record -d "$secs" -F 99 -p $l -o "$tmp/w.pb.gz" 2>"$tmp/err" & r=$!
    sleep 2; c0=$(cpu $r); sleep $((secs - 4)); c1=$(cpu $r); wait $r
    n=$(sed -n 's/.* \([0-9]*\) kept.*/\1/p' "$tmp/err")
    echo "$c0 $c1 $((secs - 4)) $n $(stat -c %s "$tmp/w.pb.gz")" | awk '{ printf "%-34s %14.2f %16s %14.1f\n", "ebpfprofiler (stacks are walked)", ($2 - $1) / $3 * 1000, "0", $5 / $4 }'
    for dump in 8192 65528; do
        perf record -q -e cpu-clock -F 99 --call-graph dwarf,$dump -p $l -o "$tmp/perf.data" sleep "$secs" 2>/dev/null & p=$!
        sleep 2; c0=$(cpu $p); sleep $((secs - 4)); c1=$(cpu $p); wait $p
        post=$( { env TIMEFORMAT='%U %S' bash -c "time perf script -i $tmp/perf.data >$tmp/script"; } 2>&1 | tail -1)
        n=$(grep -c cpu-clock "$tmp/script")
        echo "$c0 $c1 $((secs - 4)) $n $(stat -c %s "$tmp/perf.data") $post" | awk -v d=$dump '{ printf "%-34s %14.2f %16.2f %14.1f\n", "perf --call-graph dwarf," d, ($2 - $1) / $3 * 1000, ($6 + $7) / $4 * 1000, $5 / $4 }'
    done
    kill $l
}

bench_stacks() {
    printf '\n## Stacks of interpreters\n'
    python3 tests/bench_stacks.py "$tmp"
}

bench_cost() {
    printf '\n## What profiling costs a host: slowdown of fixed work, paired and randomised\n'
    gcc -O2 -fomit-frame-pointer -o "$tmp/work" tests/live/work.c
    gcc -O2 -fomit-frame-pointer -pthread -o "$tmp/pingpong" tests/live/pingpong.c
    # The statistics of BPF programs would be a part of what is measured.
    echo "$stats" >/proc/sys/kernel/bpf_stats_enabled
    python3 tests/bench_cost.py "$tmp"
    echo 1 >/proc/sys/kernel/bpf_stats_enabled
}

printf '%s, %s CPUs, Linux %s, load %s\n' "$(sed -n 's/model name.*: //p' /proc/cpuinfo | head -1)" "$(nproc)" \
    "$(uname -r | cut -d- -f1)" "$(cut -d' ' -f1-3 /proc/loadavg)"
for part in $BENCH; do bench_$part; done
