#!/bin/sh
# `record --format perfetto|firefox`: an event for each sample and each wait, at its time, of its thread. What is true of them
# programs say themselves; the Firefox Profiler's own code reads its profile, where npm can fetch it.
: "${B:=build}"
bin=$B/ebpfprofiler
tmp=$(mktemp -d)
daemon=
trap '[ -z "$daemon" ] || kill -9 $daemon 2>/dev/null; rm -rf "$tmp"' EXIT
check() { name=$1; shift; if "$@" >"$tmp/out" 2>&1; then echo "ok $name"; else echo "not ok $name"; fi; tail -5 "$tmp/out"; }
judge() { python3 tests/live/timeline_judge.py "$@"; }
gcc -O0 -fno-omit-frame-pointer -o "$tmp/ratio" tests/live/ratio.c
gcc -O2 -fno-omit-frame-pointer -pthread -o "$tmp/naps" tests/live/naps.c
for f in perfetto firefox; do
    $bin record --format $f -o "$tmp/ratio.$f.gz" -- "$tmp/ratio" 4 2>"$tmp/err"
    kept=$(sed -n 's/.* due, \([0-9]*\) kept.*/\1/p' "$tmp/err" | head -1)
    check "$f-has-each-sample-at-its-time" judge $f "$tmp/ratio.$f.gz" ratio "$kept"
    $bin record --format $f -e cpu,offcpu -o "$tmp/naps.$f.gz" -- "$tmp/naps" 4 20000 3 2>"$tmp/err" >"$tmp/said"
    # shellcheck disable=SC2046
    check "$f-has-each-wait-as-long-as-it-was" judge $f "$tmp/naps.$f.gz" naps $(tr -dc '0-9 ' <"$tmp/said")
    check "$f-says-what-is-not-in-it" sh -c "! grep 'not in it' '$tmp/err'"
done

# --- runtimes' frames stand in both
python3 tests/live/wall.py 0 0 1 & py=$!
sleep 1
for f in perfetto firefox; do
    $bin record -d 2 --format $f -p $py -o "$tmp/py.$f" 2>/dev/null
    check "$f-has-functions-of-an-interpreter" grep -a -q spinner "$tmp/py.$f"
done
kill $py
check other-types-are-refused sh -c "$bin record -d 1 --format firefox -e lock 2>&1 | grep -q 'shows cpu and offcpu'"
$bin record -d 1 --format firefox -p $$ -o - 2>/dev/null >"$tmp/stdout"
check stdout-is-plain-json python3 -m json.tool "$tmp/stdout"

# --- by the daemon, for one process, while it profiles all
cat >"$tmp/c.ini" <<INI
[ebpf_profiler]
enabled = true
sample_hz = 99
upload_interval_s = 3
cpu_budget = 100
[web]
listen = 127.0.0.1:0
[store]
path = $tmp/store
INI
chmod 600 "$tmp/c.ini"
$bin -c "$tmp/c.ini" 2>"$tmp/log" & daemon=$!
url=
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    url=$(sed -n 's/.*page: \(http[^ ]*\).*/\1/p' "$tmp/log") && grep -q 'sampling at' "$tmp/log" && break
    sleep 0.5
done
ask() { curl -s -m 50 "${url}api/timeline?$1"; }
for f in perfetto firefox; do
    # It ends while it is recorded: then there is what there is. Over the ends of windows, too.
    "$tmp/naps" 4 20000 8 >"$tmp/said" & naps=$!
    began=$(date +%s)
    ask "pid=$naps&seconds=20&format=$f" >"$tmp/daemon.$f.gz"
    # shellcheck disable=SC2046
    check "daemon-$f-has-each-wait-as-long-as-it-was" judge $f "$tmp/daemon.$f.gz" naps $(tr -dc '0-9 ' <"$tmp/said")
    check "daemon-$f-ends-with-the-process" test $(($(date +%s) - began)) -lt 12
done
"$tmp/ratio" 60 & ratio=$!
sleep 0.3
for f in perfetto firefox; do
    before=$(cut -d' ' -f1 /proc/$ratio/schedstat)
    ask "pid=$ratio&seconds=4&format=$f" >"$tmp/busy.$f.gz"
    check "daemon-$f-has-a-sample-a-period" judge $f "$tmp/busy.$f.gz" busy $(($(cut -d' ' -f1 /proc/$ratio/schedstat) - before)) 99
done
kill $ratio
# No event is missing, and for none of them a stack of others.
curl -s "${url}metrics" | grep -E '^ebpfprofiler_(marks_lost_total|samples_lost_total.*ring_full)' >"$tmp/lost"
check daemon-lost-nothing-by-it sh -c "[ \$(grep -c ' 0$' '$tmp/lost') = 3 ] || ! cat '$tmp/lost'"
# A long file leaves nothing behind, and says what it has no room for.
"$tmp/naps" 60 1100 8 >"$tmp/said" & naps=$!
sleep 2
rss() { awk '/VmRSS/ { print $2 }' /proc/$daemon/status; }
before=$(rss)
ask "pid=$naps&seconds=5&format=firefox" >"$tmp/large.gz"
sleep 1
after=$(rss)
check daemon-gives-memory-back sh -c "echo $before kB, then $after, a file of \$(gzip -dc '$tmp/large.gz' | wc -c); [ $after -lt $((before + 10000)) ]"
wait $naps
# A thread that waits all the time is in it; one that is left out is not, nor is one that is not there.
sleep 50 & sleeper=$!
ask "pid=$sleeper&seconds=2" >"$tmp/sleep.gz"
check daemon-has-a-wait-that-does-not-end judge firefox "$tmp/sleep.gz" asleep 2
EBPFPROFILER=off sleep 50 & hidden=$!
sleep 1
check daemon-records-nobody-who-is-left-out sh -c "curl -s '${url}api/timeline?pid=$hidden&seconds=1' | grep -q 'left out'"
check daemon-says-that-nobody-is-there sh -c "curl -s '${url}api/timeline?pid=4194305' | grep -q 'no such process'"
ask "pid=$sleeper&seconds=30" >"$tmp/cut.gz" & asking=$!
sleep 1
kill -TERM $daemon
wait $daemon
check daemon-ends-well-while-it-records test $? -eq 0
kill $sleeper $hidden $asking 2>/dev/null

# --- the viewer's own code
: "${FXCLI:=${XDG_CACHE_HOME:-$HOME/.cache}/ebpfprofiler/firefox}"
cli=$FXCLI/node_modules/.bin/profiler-cli
if [ ! -e "$cli" ] && command -v npm >/dev/null; then
    timeout 60 npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$FXCLI" @firefox-devtools/profiler-cli@0.10.0 >"$tmp/npm" 2>&1
fi
if [ -e "$cli" ] && node -e 'process.exit(parseInt(process.versions.node) >= 20 ? 0 : 1)'; then
    export HOME="$tmp"
    node "$cli" load "$tmp/naps.firefox.gz" >"$tmp/load" 2>&1
    for i in 1 2 3 4 5 6 7 8 9 10; do node "$cli" profile info >"$tmp/info" 2>&1 && break; sleep 0.5; done
    cat "$tmp/info"
    check firefox-profiler-reads-processes-and-threads sh -c "grep -q '5 threads across 1 process' '$tmp/info' && grep -q 'naps \[pid' '$tmp/info'"
    node "$cli" thread select t-1 >/dev/null 2>&1
    node "$cli" thread markers >"$tmp/markers" 2>&1
    cat "$tmp/markers"
    check firefox-profiler-reads-waits-with-stacks grep -q 'm-[0-9]* ✓ (2[0-9]\.' "$tmp/markers"
    node "$cli" stop --all >/dev/null 2>&1
else
    echo "skip firefox-profiler-reads-it: npm could not fetch profiler-cli, or node is older than 20"
fi
