#!/bin/sh
# In a pid namespace of its own: what that and one within it hold is profiled, under its numbers; of
# what runs outside not a byte, but how many samples that were. By `record`, by `dump`, and by the
# daemon. The truth is NSpid and the CPU time in /proc.
: "${B:=build}"
bin=$PWD/$B/ebpfprofiler
tmp=$(mktemp -d)
outer=
limit=/proc/sys/kernel/perf_event_max_sample_rate
max=$(cat $limit)
trap 'kill $outer 2>/dev/null; [ "$(cat $limit)" = "$max" ] || echo "$max" >$limit; rm -rf "$tmp"' EXIT
check() { name=$1; shift; if "$@"; then echo "ok $name"; else echo "not ok $name"; echo "$@"; cat "$tmp/log"; fi; }
gcc -O0 -fno-omit-frame-pointer -o "$tmp/outsider" tests/live/ratio.c
cp "$tmp/outsider" "$tmp/insider" && cp "$tmp/outsider" "$tmp/nested"
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
cat >"$tmp/c.ini" <<END
[ebpf_profiler]
enabled = true
sample_hz = 97
upload_interval_s = 2
cpu_budget = 100
[store]
path = $tmp/store
[web]
listen = 127.0.0.1:$port
END
"$tmp/outsider" & outer=$!
export bin tmp limit max port
timeout 90 unshare --pid --fork --mount-proc sh -c '
    ticks() { sed "s/.*) //" "/proc/$1/stat" | cut -d " " -f 12,13 | tr " " +; }
    "$tmp/insider" & inside=$!
    unshare --pid --fork --mount-proc "$tmp/nested" &
    sleep 0.5
    nested=$(pidof nested)
    "$bin" doctor >"$tmp/doctor"
    (for i in $(seq 300); do /bin/true; sleep 0.01; done) &
    "$bin" record -d 3 -e cpu,offcpu -o "$tmp/all.pb.gz" 2>>"$tmp/log"
    "$bin" record -p "$inside" -d 1 -o "$tmp/one.pb.gz" 2>>"$tmp/log"
    "$bin" dump "$nested" >"$tmp/dump" 2>>"$tmp/log"
    echo "$inside" >"$tmp/inside"; echo "$nested" >"$tmp/nested.pid"
    grep NSpid "/proc/$nested/status" >"$tmp/nspid"
    # Where the kernel holds samples back, a sample stands for what it really stood for.
    if echo 100 2>/dev/null >$limit; then
        kill -STOP "$nested" # so that half of all that runs is outside
        before=$(ticks "$inside")
        "$bin" record -F 97 -d 4 -o "$tmp/limited.pb.gz" 2>>"$tmp/log"
        echo "$(($(ticks "$inside") - ($before)))" >"$tmp/ticks"
        echo "$max" >$limit
        kill -CONT "$nested"
    fi
    "$bin" -c "$tmp/c.ini" 2>"$tmp/run.log" & daemon=$!
    n=0
    while [ "$(grep -c "window of" "$tmp/run.log")" -lt 2 ] && [ $n -lt 200 ]; do sleep 0.1; n=$((n + 1)); done
    curl -s -m 5 "http://127.0.0.1:$port/metrics" >"$tmp/metrics"
    kill -TERM $daemon; wait $daemon; echo $? >"$tmp/rc"
    kill $inside $nested'
tags() { go tool pprof -tags "$tmp/all.pb.gz" 2>/dev/null; }
holds() { zcat "$tmp/$1" | grep -aq "$2"; }
lacks() { [ -s "$tmp/$1" ] && ! holds "$1" "$2"; }
pid_of() { go tool pprof -tags -tagfocus "process.executable=^$1\$" "$tmp/all.pb.gz" 2>/dev/null | sed -n '/ pid:/,/^$/p' | grep -qE ": $2\$"; }
check doctor-says-what-is-out-of-reach grep -q 'pid namespace.*the rest of the host is out of reach' "$tmp/doctor"
check inside-is-profiled holds all.pb.gz insider
check nested-is-profiled holds all.pb.gz nested
check outside-is-in-no-byte lacks all.pb.gz outsider
check inside-has-its-number pid_of insider "$(cat "$tmp/inside")"
check nested-has-the-number-of-ours pid_of nested "$(cat "$tmp/nested.pid")"
check nested-has-one-more-of-its-own grep -qE '	[0-9]+	1$' "$tmp/nspid"
check record-by-number holds one.pb.gz insider
check record-by-number-takes-no-other lacks one.pb.gz nested
check dump-by-number grep -q "heavy\|light\|main" "$tmp/dump"

# --- CPU time of one process, by the kernel's account of it, which begins a little before sampling does
profiled() { # milliseconds
    go tool pprof -top -unit ms -sample_index=cpu -tagfocus "process.executable=^insider\$" "$tmp/limited.pb.gz" 2>/dev/null |
        sed -n 's/^Showing nodes accounting for \([0-9.]*\)ms.*/\1/p'
}
if [ -s "$tmp/ticks" ]; then
    real=$(($(cat "$tmp/ticks") * 1000 / $(getconf CLK_TCK)))
    told=$(profiled)
    echo "insider ran for $real ms; the profile says ${told:-nothing}"
    check time-is-right-where-the-kernel-limits-the-rate awk "BEGIN { exit !(${told:-0} > 0.5 * $real && ${told:-0} < 1.5 * $real) }"
else
    echo "skip time-is-right-where-the-kernel-limits-the-rate: $limit cannot be written"
fi

# --- the daemon
mv "$tmp/run.log" "$tmp/log"
stored() { for f in "$tmp"/store/profiles/*; do zcat "$f"; done; }
says() { stored | grep -aq "$1"; }
says_not() { [ -n "$(ls "$tmp/store/profiles")" ] && ! says "$1"; }
metric() { /usr/bin/python3 tests/metrics.py --get "$1" <"$tmp/metrics"; }
check run-ends-well [ "$(cat "$tmp/rc")" = 0 ]
check run-profiles-inside says insider
check run-profiles-nested says nested
check run-stores-no-byte-of-outside says_not outsider
check run-says-what-samples-are-of says 'samples of our pid namespace: [0-9]* due'
check run-says-it-of-stacks says 'user stacks of our pid namespace: '
check run-speaks-of-no-host says_not 'of the host'
check run-says-what-was-outside says 'samples outside our pid namespace: [1-9][0-9]*, not taken'
check run-logs-what-was-outside grep -q 'window of.*; [1-9][0-9]* outside our pid namespace; ' "$tmp/log"
check run-counts-what-was-outside [ "$(metric ebpfprofiler_samples_outside_total)" -gt 0 ]
