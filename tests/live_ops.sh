#!/bin/sh
# The daemon as its operator sees it: what it tells the service manager, reload, the switch,
# metrics, and its end while the server is dead.
: "${B:=build}"
bin=$PWD/$B/ebpfprofiler
tmp=$(mktemp -d)
daemon= ear= server= load= life= say=
cleanup() {
    for p in $daemon $ear $server $load $life $say; do kill -9 $p 2>/dev/null; done
    rm -rf "$tmp"
}
trap cleanup EXIT
umask 077
check() { name=$1; shift; if "$@"; then echo "ok $name"; else echo "not ok $name"; echo "$@"; tail -20 "$tmp/log"; tail -5 "$tmp/heard"; fi; }
wait_for() { # seconds command...
    n=$(($1 * 10)); shift
    while [ $n -gt 0 ]; do "$@" >/dev/null 2>&1 && return 0; sleep 0.1; n=$((n - 1)); done
    return 1
}
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
conf() { # lines of [ebpf_profiler], joined by |; then whole lines
    printf '[ebpf_profiler]\nupload_interval_s = 1\ncpu_budget = 100\n' >"$tmp/c.ini"
    echo "$1" | tr '|' '\n' >>"$tmp/c.ini"; shift
    printf '%s\n' "[store]" "path = $tmp/store" "[web]" "listen = 127.0.0.1:$port" "$@" >>"$tmp/c.ini"
}
logged() { grep -q "$1" "$tmp/log"; }
heard() { grep -q "$1" "$tmp/heard"; }
seen() { grep -c "$1" "$tmp/heard"; }
more_than() { [ "$(seen "$1")" -gt "$2" ]; }
# Ids of the BPF programs that the daemon holds: others than before have been loaded anew.
programs() { cat /proc/$daemon/fdinfo/* 2>/dev/null | sed -n 's/^prog_id:[^0-9]*//p' | sort -un | tr '\n' ' '; }
metrics() { curl -s "http://127.0.0.1:$port/metrics"; }
metric() { metrics | /usr/bin/python3 tests/metrics.py --get "$1"; }
is() { [ "$(metric "$1")" = "$2" ]; }
profiles() { ls "$tmp/store/profiles" 2>/dev/null | grep -c 'pb.gz$'; }
more_profiles() { n0=$(profiles); wait_for 10 eval '[ "$(profiles)" -gt $n0 ]'; }
reload() { r=$(seen READY=1); kill -HUP $daemon; wait_for 10 more_than READY=1 "$r"; }

python3 tests/live/notify.py "$tmp/socket" "$tmp/heard" & ear=$!
wait_for 5 test -S "$tmp/socket"
gcc -O0 -fno-omit-frame-pointer -o "$tmp/ratio" tests/live/ratio.c
"$tmp/ratio" & load=$!

# --- what the service manager is told
conf 'enabled = true|sample_hz = 49'
NOTIFY_SOCKET=$tmp/socket WATCHDOG_USEC=2000000 "$bin" -c "$tmp/c.ini" 2>"$tmp/log" & daemon=$!
check ready-is-told wait_for 20 heard 'READY=1 STATUS=sampling at 49 Hz'
check ready-when-it-samples logged 'sampling at 49 Hz'
check status-of-each-window wait_for 5 heard ' STATUS=sampling at 49 Hz; last window: cost [0-9.]* % of a CPU'
before=$(seen WATCHDOG=1); sleep 4; now=$(($(seen WATCHDOG=1) - before))
check signs-of-life-twice-in-the-time-given sh -c "[ $now -ge 3 ] && [ $now -le 6 ]"

# --- a loop that is stuck gives no sign, though the other threads live
python3 tests/live/freeze.py $daemon 4 >"$tmp/frozen" & freezer=$!
wait_for 10 grep -q frozen "$tmp/frozen"
sleep 0.2; before=$(seen WATCHDOG=1); sleep 3; now=$(seen WATCHDOG=1)
check stuck-loop-gives-no-sign test "$now" -eq "$before"
wait $freezer
check signs-come-again-when-it-turns wait_for 5 more_than WATCHDOG=1 "$now"

# --- metrics
check metrics-are-read-by-prometheus-own-parser sh -c "curl -s http://127.0.0.1:$port/metrics | /usr/bin/python3 tests/metrics.py"
wait_for 5 eval 'metric ebpfprofiler_rate_hertz'
check metrics-rate is ebpfprofiler_rate_hertz 49
sums() {
    metrics >"$tmp/m"
    due=$(/usr/bin/python3 tests/metrics.py --get 'ebpfprofiler_samples_due_total{type=cpu}' <"$tmp/m")
    kept=$(/usr/bin/python3 tests/metrics.py --get 'ebpfprofiler_samples_total{type=cpu}' <"$tmp/m")
    lost=$(/usr/bin/python3 tests/metrics.py --get 'ebpfprofiler_samples_lost_total{type=cpu}' <"$tmp/m")
    echo "due $due kept $kept lost $lost"
    # What was due since the last window closed is in none yet.
    [ "$kept" -gt 0 ] && [ $((due - kept - lost)) -ge 0 ] && [ $((due - kept - lost)) -le 400 ]
}
check metrics-due-is-kept-and-lost sums
status() { curl -s -o /dev/null -w '%{http_code}' "$@" "http://127.0.0.1:$port/metrics"; }
check metrics-of-a-foreign-name-are-refused test "$(status -H 'Host: evil.example')" = 403
check metrics-of-another-site-are-refused test "$(status -H 'Sec-Fetch-Site: cross-site')" = 403

# --- reload in place
id=$(programs)
conf 'enabled = true|sample_hz = 97|upload_interval_s = 2' && sed -i '0,/upload_interval_s = 1/{//d}' "$tmp/c.ini"
check reload-is-told reload
check reload-says-so-first sh -c "grep -A1 'RELOADING=1 MONOTONIC_USEC=[0-9]' $tmp/heard | tail -1 | grep -q READY=1"
check reload-in-place test "$(programs)" = "$id"
check reload-takes-the-new-rate wait_for 10 is ebpfprofiler_rate_hertz 97
check reload-takes-the-new-window is ebpfprofiler_window_seconds 2
check reload-is-counted is ebpfprofiler_config_reloads_total 1

# --- what cannot be changed in place is made anew
conf 'enabled = true|sample_hz = 49|max_frames = 32'
check reload-anew reload
check reload-loads-anew sh -c "[ '$(programs)' != '$id' ] && [ -n '$(programs)' ]"
check reload-goes-on more_profiles

# --- a wrong file changes nothing
echo 'nonsense = 1' >>"$tmp/c.ini"
id=$(programs)
check wrong-file-reload-ends reload
check wrong-file-is-named logged "c.ini:[0-9]*: \[web\] nonsense: unknown key"
check wrong-file-keeps-the-old sh -c "[ '$(programs)' = '$id' ] && grep -q 'keeping the configuration in force' $tmp/log"
check wrong-file-is-counted is ebpfprofiler_config_refused_total 1
: >"$tmp/c.ini"; chmod 666 "$tmp/c.ini"
check untrusted-file-reload-ends reload
check untrusted-file-is-refused logged 'refused as root; run: chmod go-w'
chmod 600 "$tmp/c.ini"; mv "$tmp/c.ini" "$tmp/away"
check missing-file-reload-ends reload
check missing-file-changes-nothing is ebpfprofiler_config_refused_total 3

# --- nor does one that reads well and cannot be done
conf 'enabled = true|sample_hz = 23'
sed -i "s|^path = .*|path = /dev/null/store|" "$tmp/c.ini"
check impossible-store-reload-ends reload
check impossible-store-is-named logged '/dev/null/store'
check impossible-store-keeps-the-old is ebpfprofiler_config_refused_total 4
check impossible-store-goes-on more_profiles
conf 'enabled = true|sample_hz = 23'
sed -i "s|^listen = .*|listen = 0.0.0.0:$port|" "$tmp/c.ini"
check unsafe-page-reload-ends reload
check unsafe-page-keeps-the-old is ebpfprofiler_config_refused_total 5
check unsafe-page-keeps-the-rate wait_for 10 is ebpfprofiler_rate_hertz 49
check unsafe-page-goes-on more_profiles

# --- off and on
conf 'enabled = false|max_frames = 32'
check off-reload-ends reload
check off-is-told heard 'READY=1 STATUS=profiling is off'
check off-leaves-nothing-in-the-kernel test -z "$(programs)"
check off-keeps-the-page is ebpfprofiler_profiling 0
before=$(seen WATCHDOG=1)
check off-gives-signs-of-life wait_for 5 more_than WATCHDOG=1 "$((before + 1))"
conf 'enabled = true|max_frames = 32'
check on-reload-ends reload
check on-profiles-again more_profiles
check on-is-in-metrics is ebpfprofiler_profiling 1

# --- a server that has a say
cat >"$tmp/say.py" <<'EOS'
import hashlib, http.server, sys
class Say(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = open(sys.argv[1] + "/answer", "rb").read()
        tag = '"%s"' % hashlib.sha1(body).hexdigest()
        same = self.headers["If-None-Match"] == tag
        open(sys.argv[1] + "/asked", "a").write("304\n" if same else "200\n")
        self.send_response(304 if same else 200)
        self.send_header("ETag", tag)
        self.end_headers()
        if not same:
            self.wfile.write(body)
    def log_message(self, *args): pass
s = http.server.HTTPServer(("127.0.0.1", 0), Say)
print(s.server_address[1], flush=True)
s.serve_forever()
EOS
echo '{}' >"$tmp/answer"
rm -f "$tmp/say"; python3 "$tmp/say.py" "$tmp" >"$tmp/say" & say=$!
wait_for 5 test -s "$tmp/say"
remote="url = http://127.0.0.1:$(cat "$tmp/say")/"
conf 'enabled = false' '[remote]' "$remote" 'poll_s = 1'
check remote-reload reload
check remote-is-asked wait_for 5 test -s "$tmp/asked"
check remote-without-a-word-the-file-holds is ebpfprofiler_profiling 0
echo '{"enabled": true, "upload_interval_s": 12, "sample_hz": 1000, "store": "/"}' >"$tmp/answer"
check remote-switches-on wait_for 20 is ebpfprofiler_profiling 1
check remote-sets-the-window is ebpfprofiler_window_seconds 12
check remote-sets-nothing-else logged 'sampling at 19 Hz'
check remote-counts-what-it-ignores wait_for 5 is ebpfprofiler_remote_ignored_total 2
check remote-is-asked-with-the-etag wait_for 10 grep -q 304 "$tmp/asked"
echo '{"enabled": false, "upload_interval_s": 0}' >"$tmp/answer"
check remote-wrong-answer-is-counted wait_for 10 sh -c "[ \$(curl -s http://127.0.0.1:$port/metrics | /usr/bin/python3 tests/metrics.py --get ebpfprofiler_remote_failed_total) -gt 0 ]"
check remote-wrong-answer-changes-nothing is ebpfprofiler_profiling 1
check remote-wrong-answer-is-told logged 'the answer is refused: upload_interval_s: expected a whole number 10..3600'
echo '{"enabled": false}' >"$tmp/answer"
check remote-switches-off wait_for 10 is ebpfprofiler_profiling 0
check remote-leaves-the-window-to-the-file is ebpfprofiler_window_seconds 1
check remote-off-leaves-nothing test -z "$(programs)"
# Its word holds over a reload, and without the server.
kill $say; wait $say 2>/dev/null
conf 'enabled = true' '[remote]' "$remote" 'poll_s = 1'
check remote-word-holds-reload reload
check remote-word-holds is ebpfprofiler_profiling 0
# What the file does not have, nobody switches on.
echo '{"enabled": true}' >"$tmp/answer"
rm -f "$tmp/say"; python3 "$tmp/say.py" "$tmp" >"$tmp/say" & say=$!
wait_for 5 test -s "$tmp/say"
printf '%s\n' "[store]" "path = $tmp/store" "[web]" "listen = 127.0.0.1:$port" '[remote]' "url = http://127.0.0.1:$(cat "$tmp/say")/" 'poll_s = 1' >"$tmp/c.ini"
check remote-undefined-reload reload
check remote-undefined-is-told wait_for 10 logged 'the file has no profiler to switch on'
check remote-undefined-stays-off is ebpfprofiler_profiling 0
kill $say; wait $say 2>/dev/null
conf 'enabled = true'
check remote-gone-the-file-holds reload
check remote-gone-is-on is ebpfprofiler_profiling 1

# --- the end, in time
check stop sh -c "kill -TERM $daemon"
wait $daemon; check stop-exit-0 test $? -eq 0
check stop-is-told heard STOPPING=1
end_with() { # name, extra lines of the configuration
    conf 'enabled = true|sample_hz = 49|upload_interval_s = 3600' "$2" "$3" && sed -i '0,/upload_interval_s = 1/{//d}' "$tmp/c.ini"
    rm -rf "$tmp/store"
    "$bin" -c "$tmp/c.ini" 2>"$tmp/log" & daemon=$!
    wait_for 20 logged 'sampling at'; sleep 1
    start=$(date +%s%N)
    kill -TERM $daemon; wait $daemon; rc=$?
    took=$((($(date +%s%N) - start) / 1000000)); daemon=
    echo "$1: ended in $took ms"
    check "$1-within-5-s" sh -c "[ $rc -eq 0 ] && [ $took -lt 5000 ]"
    check "$1-window-is-stored" test "$(profiles)" -gt 0
    [ -z "$4" ] || check "$1-was-asked" grep -q " $4 " "$tmp/server/attempts"
    check "$1-window-is-spooled" test "$(find "$tmp/store/spool" -name '*.spool' | wc -l)" -ge 1
}
mkdir "$tmp/server"; echo silent >"$tmp/server/mode"
# It ends when its input does.
mkfifo "$tmp/life"; sleep 600 >"$tmp/life" & life=$!
python3 tests/server.py "$tmp/server" <"$tmp/life" >"$tmp/server/port" & server=$!
wait_for 5 grep -q port "$tmp/server/port"
end_with silent-server '[upload]' "url = http://127.0.0.1:$(sed 's/port //' "$tmp/server/port")" silent
echo hang >"$tmp/server/mode"
end_with hanging-server '[upload]' "url = http://127.0.0.1:$(sed 's/port //' "$tmp/server/port")" hang
end_with no-server '[upload]' "url = http://127.0.0.1:1"
# A name server that never answers, in a mount namespace of its own (row 56).
printf 'nameserver 192.0.2.1\noptions timeout:30\n' >"$tmp/resolv.conf"
real=$bin
cat >"$tmp/deaf" <<EOS
#!/bin/sh
exec unshare -m sh -c 'mount --bind "$tmp/resolv.conf" "\$(realpath /etc/resolv.conf)" && exec "$real" "\$@"' sh "\$@"
EOS
chmod 700 "$tmp/deaf"
bin=$tmp/deaf
end_with deaf-name-server '[upload]' "url = http://profiles.example/"
