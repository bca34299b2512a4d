#!/bin/sh
# What sampling costs: BPF nanoseconds per sample (the kernel's own run-time statistics) and user
# CPU, at 19 and 99 Hz, beside `perf record -g` on the same load. Needs root.
: "${B:=build}"
tmp=$(mktemp -d)
loads=
stats=$(cat /proc/sys/kernel/bpf_stats_enabled)
trap 'kill $loads 2>/dev/null; echo $stats >/proc/sys/kernel/bpf_stats_enabled; rm -rf "$tmp"' EXIT
secs=${SECONDS_EACH:-20}
gcc -O1 -fno-omit-frame-pointer -o "$tmp/ratio" tests/live/ratio.c
for i in $(seq "$(nproc)"); do "$tmp/ratio" & loads="$loads $!"; done
echo 1 >/proc/sys/kernel/bpf_stats_enabled
umask 077
cpu() { cat /proc/"$1"/task/*/schedstat 2>/dev/null | awk '{ s += $1 } END { print s / 1e9 }'; }
# Of this daemon: the youngest program of the name.
prog() { bpftool prog list | awk '/name sample_cpu/ { a = b = 0; for (i = 1; i <= NF; i++) { if ($i == "run_time_ns") a = $(i + 1); if ($i == "run_cnt") b = $(i + 1) } } END { print a, b }'; }

printf '%s, %s CPUs, Linux %s; %s busy processes, %s s each\n' \
    "$(sed -n 's/model name.*: //p' /proc/cpuinfo | head -1)" "$(nproc)" "$(uname -r)" "$(nproc)" "$secs"
printf '%-24s %14s %16s %12s %12s\n' '' 'BPF ns/sample' 'user CPU ms/s' 'samples' 'bytes/sample'
for hz in 19 99; do
    printf '[ebpf_profiler]\nenabled = true\nsample_hz = %s\nupload_interval_s = %s\ncpu_budget = 100\n[store]\npath = %s/store\n' \
        $hz "$secs" "$tmp" >"$tmp/c.ini"
    "$B/ebpfprofiler" run -c "$tmp/c.ini" 2>"$tmp/log" & d=$!
    sleep 3
    c0=$(cpu $d); set -- $(prog); t0=$1 n0=$2
    sleep "$secs"
    c1=$(cpu $d); set -- $(prog); t1=$1 n1=$2
    kill $d; wait $d
    bytes=$(cat "$tmp"/store/profiles/* | wc -c)
    rm -rf "$tmp/store"
    ours=$(echo "$c0 $c1 $secs" | awk '{ print ($2 - $1) / $3 * 1000 }')
    echo "$t0 $t1 $n0 $n1 $ours $bytes" | awk -v hz=$hz \
        '{ printf "%-24s %14.0f %16.2f %12d %12.1f\n", "ebpfprofiler " hz " Hz", ($2 - $1) / ($4 - $3), $5, $4 - $3, $6 / ($4 - $3) }'
    perf record -q -a -e cpu-clock -F $hz -g -o "$tmp/perf.data" sleep "$((secs + 3))" 2>/dev/null & p=$!
    sleep 3
    c0=$(cpu $p)
    sleep "$((secs - 1))"
    c1=$(cpu $p)
    wait $p
    # The samples are only written by it; turning them into stacks costs again.
    start=$(awk '{print $1}' /proc/uptime)
    post=$( { /usr/bin/env time -f '%U %S' perf script -i "$tmp/perf.data" >"$tmp/script"; } 2>&1 | tail -1)
    n=$(grep -c cpu-clock "$tmp/script")
    theirs=$(echo "$c0 $c1 $((secs - 1))" | awk '{ print ($2 - $1) / $3 * 1000 }')
    echo "$theirs $n $(stat -c %s "$tmp/perf.data")" | awk -v hz=$hz \
        '{ printf "%-24s %14s %16.2f %12d %12.1f\n", "perf record -g " hz " Hz", "-", $1, $2, $3 / ($2 ? $2 : 1) }'
    echo "$ours $theirs" | awk '{ printf "  ratio of user CPU, ours to record alone: %.2f\n", ($2 > 0) ? $1 / $2 : 0 }'
    echo "  perf script on top, once: $post (user, system seconds)"
    : "$start"
done
