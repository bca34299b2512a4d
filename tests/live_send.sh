#!/bin/sh
# Eight servers at once, each protocol among them, one that is dead and one that hangs: what arrives keeps
# every rule of tests/fleet/judge.py; servers that answer badly in every way cost nobody else anything, and
# what was handed over is, to the last profile, sent, in a spool, or dropped by name.
: "${B:=build}"
bin=$PWD/$B/ebpfprofiler
tmp=$(mktemp -d)
daemon= servers= load=
cleanup() {
    for p in $daemon $servers $load; do kill -9 $p 2>/dev/null; done
    umount "$tmp/store/spool.full" 2>/dev/null
    rm -rf "$tmp"
}
trap cleanup EXIT
umask 077
check() { name=$1; shift; if "$@"; then echo "ok $name"; else echo "not ok $name"; echo "$@"; tail -30 "$tmp/log"; fi; }
wait_for() { # seconds command...
    n=$(($1 * 10)); shift
    while [ $n -gt 0 ]; do "$@" >/dev/null 2>&1 && return 0; sleep 0.1; n=$((n - 1)); done
    return 1
}
# A server NAME with options; its port in NAME.port. Debian's Python has the libraries.
serve() {
    name=$1; shift
    mkdir -p "$tmp/$name"
    mkfifo "$tmp/$name.life"
    /usr/bin/python3 -B tests/server.py "$tmp/$name" --judge "$@" <"$tmp/$name.life" >"$tmp/$name.port" 2>"$tmp/$name.err" &
    eval "pid_$name=$!"
    servers="$servers $!"
    # Ends the server when this script does.
    sleep 600 >"$tmp/$name.life" & servers="$servers $!"
}
port() { sed -n 's/^port //p' "$tmp/$1.port"; }
listens() { [ -n "$(port "$1")" ]; }
mode() { echo "$2" >"$tmp/$1/mode.part"; mv "$tmp/$1/mode.part" "$tmp/$1/mode"; }
arrived() { ls "$tmp/$1" | grep -c '\.body$'; }
has() { [ "$(arrived "$1")" -ge "$2" ]; }
windows() { [ "$(grep -c 'window of' "$tmp/log")" -ge "$1" ]; }
keeps_the_rules() { ! [ -e "$tmp/$1/broken" ] || { sort "$tmp/$1/broken" | uniq -c | head -5; false; }; }
spooled() { ls "$tmp/store/spool$1" 2>/dev/null | grep -c '\.spool$'; }
no_spool() { [ "$(spooled "$1")" -eq 0 ]; }
stop() { kill -TERM $daemon; wait $daemon; rc=$?; daemon=; return $rc; }

good="coroot collector pyroscope parca otlp grpc"
for s in coroot collector pyroscope parca otlp slow; do serve $s; done
serve grpc --grpc
for s in $good slow; do wait_for 20 listens $s || { echo "not ok server $s: $(cat "$tmp/$s.err")"; exit 1; }; done
mode slow hang
# A port where nobody listens: of a server that has gone.
serve dead; wait_for 20 listens dead; dead=$(port dead); kill -9 $pid_dead
echo s3cret >"$tmp/token"

web=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
metrics() { curl -s -m 10 "http://127.0.0.1:$web/metrics" >"$tmp/metrics"; }
metric() { /usr/bin/python3 tests/metrics.py --get "ebpfprofiler_server_$1" <"$tmp/metrics"; }
conf() { # extra sections
    cat >"$tmp/c.ini" <<END
[ebpf_profiler]
enabled = true
sample_hz = 49
upload_interval_s = 5
cpu_budget = 100
[store]
path = $tmp/store
[web]
listen = 127.0.0.1:$web
[labels]
cluster = east-1
[upload]
url = http://127.0.0.1:$(port coroot)
token_file = $tmp/token
symbolize = host
headers = X-Api-Key: k
[upload.collector]
url = http://127.0.0.1:$(port collector)
protocol = otel-pprof
[upload.pyroscope]
url = http://127.0.0.1:$(port pyroscope)
protocol = pyroscope
headers = X-Scope-OrgID: tenant-1
[upload.parca]
url = http://127.0.0.1:$(port parca)
protocol = parca
symbolize = host
[upload.otlp]
url = http://127.0.0.1:$(port otlp)
protocol = otlp
[upload.grpc]
url = http://127.0.0.1:$(port grpc)
protocol = otlp-grpc
symbolize = host
[upload.dead]
url = http://127.0.0.1:$dead
[upload.slow]
url = http://127.0.0.1:$(port slow)
END
    "$bin" check-config "$tmp/c.ini" >/dev/null || echo "not ok config"
}

gcc -O0 -fno-omit-frame-pointer -o "$tmp/ratio" tests/live/ratio.c
"$tmp/ratio" & load=$!
conf
"$bin" -c "$tmp/c.ini" 2>"$tmp/log" & daemon=$!
check windows-go-on-beside-servers-that-are-dead-or-hang wait_for 30 windows 2
for s in $good; do check "$s-has-profiles" wait_for 20 has $s 8; done
check coroot-knows-the-key grep -q '^X-Api-Key: k' "$tmp/coroot/000000.headers"
check coroot-knows-the-token grep -q '^Authorization: Bearer s3cret' "$tmp/coroot/000000.headers"
check pyroscope-knows-the-tenant grep -q '^X-Scope-OrgID: tenant-1' "$tmp/pyroscope/000000.headers"

# --- each of them answers badly in a way of its own, all at once, then in the next
tries() { wc -l <"$tmp/$1/attempts"; }
# In the order of $good. Until each was asked: the pauses between two tries grow to a minute.
bad() {
    for s in $good; do eval "before_$s=$(tries "$s")"; mode $s "$1"; shift; done
    w=$(grep -c 'window of' "$tmp/log")
    for s in $good; do
        eval "n=\$before_$s"
        check "$s-is-asked-and-answers-$what" wait_for 150 sh -c "[ \$(wc -l <'$tmp/$s/attempts') -gt $n ]"
    done
    check "windows-go-on-while-servers-answer-$what" wait_for 30 windows $((w + 1))
}
what=errors; bad 500 "429 retry_after=1" reset half 503 "grpc 14 later"
what=nothing; bad silent hang drop drip slow hang
what=too-much; bad huge headers "redirect http://127.0.0.1:$dead/x" "200 type=text/html" "413 over=1200" \
    "grpc over=1500 8 received message larger than max"
in_parts() { grep -q " $2 " "$tmp/$1/attempts"; }
check otlp-said-413 wait_for 60 in_parts otlp 413
check grpc-said-too-large wait_for 60 in_parts grpc grpc8
for s in $good; do mode $s 200; done
drained() { for q in "" .collector .pyroscope .parca .otlp .grpc; do no_spool "$q" || return 1; done; }
check all-is-sent-once-servers-are-well wait_for 300 drained

# --- what is refused goes by name
mode parca 400; mode otlp 401; mode grpc "grpc 3 bad"
check parca-refuses wait_for 30 in_parts parca 400
check otlp-refuses wait_for 30 in_parts otlp 401
check grpc-refuses wait_for 30 in_parts grpc grpc3
for s in $good; do mode $s 200; done
w=$(grep -c 'window of' "$tmp/log"); wait_for 30 windows $((w + 1))

# --- /metrics by server, held against what the servers and spools have
wait_for 60 drained
metrics
/usr/bin/python3 tests/metrics.py <"$tmp/metrics" || echo "not ok metrics-are-prometheus"
adds_up() { metrics; [ "$(metric "profiles_due_total{server=$1}")" -eq $(($(metric "profiles_sent_total{server=$1}") + $(metric "profiles_dropped_total{server=$1}") + $(metric "profiles_waiting{server=$1}"))) ]; }
for s in "" collector pyroscope parca otlp grpc; do
    n=$(metric "profiles_sent_total{server=$s}")
    check "metrics-of-${s:-coroot}-are-of-what-arrived" [ "$n" -gt 0 -a "$n" -le "$(arrived "${s:-coroot}")" ]
    check "metrics-of-${s:-coroot}-add-up" wait_for 5 adds_up "$s"
    check "metrics-of-${s:-coroot}-know-of-failed-attempts" [ "$(metric "attempts_failed_total{server=$s}")" -gt 0 ]
done
for s in parca otlp grpc; do check "metrics-know-what-$s-refused" [ "$(metric "profiles_dropped_total{server=$s,reason=refused}")" -gt 0 ]; done
spool_size() { metrics; [ "$(metric "spool_bytes{server=dead}")" -eq "$(cat "$tmp"/store/spool.dead/*.spool | wc -c)" ]; }
check metrics-know-the-size-of-the-spool wait_for 5 spool_size
check metrics-say-that-the-dead-got-none [ "$(metric "profiles_sent_total{server=dead}")" -eq 0 ]
check stop-with-a-server-that-hangs stop

# --- due = sent + refused + dropped ... + spooled, for each, and nothing was dropped for want of room
number() { python3 tests/live/accounts.py "$tmp/log" "$@"; }
sums() { python3 tests/live/accounts.py "$tmp/log"; }
check accounts-add-up sums
sums
stored=$(ls "$tmp/store/profiles" | wc -l)
for s in $good dead slow; do
    p=$dead; [ $s = dead ] || p=$(port $s)
    check "$s-was-handed-every-profile" [ "$(number $p due)" -eq "$stored" ]
    check "$s-lost-none" [ "$(number $p dropped)$(number $p old)$(number $p damaged)" = 000 ]
done
# Of the two that took next to nothing, single samples were too large, too.
for s in coroot collector pyroscope parca; do check "$s-found-none-too-large" [ "$(number "$(port $s)" large)" -eq 0 ]; done
for s in coroot collector pyroscope; do check "$s-refused-none" [ "$(number "$(port $s)" refused)" -eq 0 ]; done
for s in parca otlp grpc; do check "$s-refused-some" [ "$(number "$(port $s)" refused)" -gt 0 ]; done
check otlp-took-some-in-parts [ "$(number "$(port otlp)" parts)" -gt 0 ]
check grpc-took-some-in-parts [ "$(number "$(port grpc)" parts)" -gt 0 ]
# A profile whose answer was lost is sent again, so more may arrive than are counted; never fewer.
for s in $good; do check "$s-got-what-is-counted-as-sent" [ "$(arrived $s)" -ge "$(number "$(port $s)" sent)" ]; done
for s in $good; do check "$s-broke-no-rule" keeps_the_rules $s; done
check dead-has-all-in-its-spool [ "$(spooled .dead)" -eq "$stored" ]
check spools-are-private [ "$(stat -c %a "$tmp/store/spool.dead")" = 700 ]

# --- the dead one comes back with the next run; a damaged file of its spool is set aside
victim=$(ls "$tmp/store/spool.dead"/*.spool | head -1)
printf x | dd of="$victim" bs=1 seek=200 conv=notrunc 2>/dev/null
mkfifo "$tmp/back.life"; mkdir "$tmp/back"
/usr/bin/python3 -B tests/server.py "$tmp/back" --judge --port "$dead" <"$tmp/back.life" >"$tmp/back.port" & servers="$servers $!"
sleep 600 >"$tmp/back.life" & servers="$servers $!"
wait_for 20 listens back
# And one whose disk is full.
mkdir -p "$tmp/store/spool.full"
full=0
if mount -t tmpfs -o size=64k,mode=700 none "$tmp/store/spool.full" 2>/dev/null; then full=1; fi
conf
sed -i "s/^\[upload.slow\]/[upload.full]/; s/url = .*:$(port slow)$/url = http:\/\/127.0.0.1:1/" "$tmp/c.ini"
"$bin" -c "$tmp/c.ini" 2>"$tmp/log" & daemon=$!
check dead-one-gets-all-when-it-is-back wait_for 120 has back $((stored - 1))
check spool-of-it-is-empty wait_for 20 no_spool .dead
[ $full = 0 ] || check row-60-windows-go-on-with-a-full-disk wait_for 60 windows 3
check stop-again stop
check accounts-add-up-again sums
sums
check damaged-file-is-named grep -q "spool.dead/.*cannot be sent: damaged; renamed to" "$tmp/log"
check damaged-file-is-counted [ "$(number "$dead" damaged)" -eq 1 ]
check back-broke-no-rule keeps_the_rules back
if [ $full = 1 ]; then
    check row-60-full-disk-is-counted [ "$(number 1 dropped)" -gt 0 ]
    check row-60-what-it-had-room-for-is-kept [ "$(number 1 spool)" -gt 0 ]
else
    echo "skip row-60-full-disk: no tmpfs can be mounted"
fi
