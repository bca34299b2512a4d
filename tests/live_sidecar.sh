#!/bin/sh
# In a pid namespace of its own: what that and one within it hold is profiled, under its numbers; of
# what runs outside not a byte. The truth is NSpid of /proc/PID/status.
: "${B:=build}"
bin=$PWD/$B/ebpfprofiler
tmp=$(mktemp -d)
outer=
trap 'kill $outer 2>/dev/null; rm -rf "$tmp"' EXIT
check() { name=$1; shift; if "$@"; then echo "ok $name"; else echo "not ok $name"; echo "$@"; cat "$tmp/log"; fi; }
gcc -O0 -fno-omit-frame-pointer -o "$tmp/outsider" tests/live/ratio.c
cp "$tmp/outsider" "$tmp/insider" && cp "$tmp/outsider" "$tmp/nested"
"$tmp/outsider" & outer=$!
export bin tmp
timeout 60 unshare --pid --fork --mount-proc sh -c '
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
