#!/bin/sh
# Who is profiled and under which name: real control groups of version 1 and 2 laid out as container
# engines do, the names that lie on a host beside them, a process's own word, rules, filters, the
# wish to be left out, hashed pids; and every byte that is sent is searched for what must stay here.
: "${B:=build}"
bin=$PWD/$B/ebpfprofiler
tmp=$(mktemp -d)
home=/home/live-identity.$$
id1=$(printf '%064x' $$) id2=$(printf '1%063x' $$) id3=$(printf '2%063x' $$)
uid=6ee16f3a-1b5c-4f2e-9e4b-$(printf '%012x' $$)
daemon= server= loads= groups= made=
cleanup() {
    for p in $daemon $server $loads; do kill -9 "$p" 2>/dev/null; done
    sleep 0.2
    for g in $groups; do rmdir "$g" 2>/dev/null; done
    for f in $made; do rm -f "$f"; rmdir -p --ignore-fail-on-non-empty "$(dirname "$f")" 2>/dev/null; done
    rm -rf "$tmp" "$home"
}
trap cleanup EXIT
trap 'exit 1' INT TERM
check() { name=$1; shift; if "$@"; then echo "ok $name"; else echo "not ok $name"; echo "$@"; tail -5 "$tmp/log"; fi; }
wait_for() { # seconds command...
    end=$(($(date +%s) + $1)); shift
    while ! "$@" >/dev/null 2>&1; do [ "$(date +%s)" -lt $end ] || return 1; sleep 0.2; done
}
# Is there a service of that name with a sample that carries the labels?
has() {
    ls "$tmp/store/profiles" | grep -qE -- "-cpu-$1(-[0-9]+)?\.pb\.gz" || return 1
    [ $# -eq 1 ] || PYTHONPATH=tests/live python3 tests/live/labels.py "$tmp/store/profiles" "$@"
}
has_not() { ! has "$@"; }
logged() { grep -q "$1" "$tmp/log"; }
windows() { [ "$(grep -c 'window of' "$tmp/log")" -ge "$1" ]; }
conf() { # lines...
    printf '[ebpf_profiler]\nenabled = true\nsample_hz = 99\nupload_interval_s = 1\ncpu_budget = 100\n' >"$tmp/c.ini"
    printf '%s\n' "$@" "[store]" "path = $tmp/store" "[web]" "listen =" >>"$tmp/c.ini"
}
start() { "$bin" -c "$tmp/c.ini" 2>"$tmp/log" & daemon=$!; wait_for 20 logged 'sampling at'; }
stop() { kill -TERM "$daemon" 2>/dev/null; wait "$daemon"; daemon=; }
# A control group, and the process that comes last in it.
group() { # directory command...
    mkdir -p "$1" || return
    groups="$1 $groups"
    g=$1; shift
    sh -c 'echo $$ >"$0/cgroup.procs"; exec "$@"' "$g" "$@" & loads="$loads $!"; last=$!
}
place() { # file text: on the host, taken away afterwards
    [ -e "$1" ] && return
    mkdir -p "$(dirname "$1")" && echo "$2" >"$1" && made="$made $1"
}

gcc -O1 -o "$tmp/publish" tests/live/publish.c
cp "$tmp/publish" "$tmp/spin"
v2=$(awk '$3 == "cgroup2" && $2 ~ /^\/sys\// { print $2; exit }' /proc/mounts)
v1=$(awk '$3 == "cgroup" && $4 ~ /name=systemd|pids/ && $2 ~ /^\/sys\// { print $2; exit }' /proc/mounts)

# --- containers by their control groups, names by files
place "/var/log/containers/web-7d4f_live-shop_front-$id1.log" x
place "/var/lib/docker/containers/$id2/config.v2.json" "{\"Name\":\"/live-docker\",\"Config\":{\"Labels\":{}}}"
if [ -n "$v2" ]; then
    pod=$v2/kubepods-live$$.slice/kubepods-live$$-pod$(echo "$uid" | tr - _).slice
    mkdir -p "$pod"; groups="$pod $v2/kubepods-live$$.slice"
    group "$pod/cri-containerd-$id1.scope" "$tmp/spin" x 999999
    group "$v2/live$$.service" "$tmp/spin" x 999999; unit=$last
    group "$v2/libpod-$id3.scope" "$tmp/spin" x 999999
    # In a control group namespace of its own.
    group "$v2/lxc.payload.live$$" unshare -C "$tmp/spin" x 999999
fi
if [ -n "$v1" ]; then
    mkdir -p "$v1/docker-live$$"; groups="$groups $v1/docker-live$$"
    group "$v1/docker-live$$/$id2" "$tmp/spin" x 999999
fi
# --- its own word, at once and late; the wish to be left out
OTEL_SERVICE_NAME=live-env OTEL_RESOURCE_ATTRIBUTES=service.version=4.5 "$tmp/spin" x 999999 & loads="$loads $!"
OTEL_SERVICE_NAME=live-before "$tmp/publish" live-context 0 & loads="$loads $!"
EBPFPROFILER_SERVICE=live-own OTEL_SERVICE_NAME=not-this "$tmp/spin" x 999999 & loads="$loads $!"
EBPFPROFILER_SERVICE=live-out EBPFPROFILER=off "$tmp/spin" x 999999 & out=$!; loads="$loads $!"
EBPFPROFILER_SERVICE=live-excluded "$tmp/spin" x 999999 & loads="$loads $!"
cp "$tmp/spin" "$tmp/ruled"; "$tmp/ruled" x 999999 & loads="$loads $!"
echo "exe:ruled = live-{exe}" >"$tmp/rules"; chmod 600 "$tmp/rules"
sleep 0.5
conf "offcpu = false" "[service]" "rules = $tmp/rules" "[filter]" "exclude = service:nobody, exe:no-such-thing"
start
OTEL_SERVICE_NAME=live-before "$tmp/publish" live-late 2500 & late=$!; loads="$loads $!"
wait_for 40 windows 6
if [ -n "$v2" ]; then
    check kubernetes-by-the-kubelets-logs has front container="$id1" k8s.pod=web-7d4f k8s.namespace=live-shop k8s.container=front
    check unit-is-a-label has spin systemd.unit="live$$.service" container=
    check podman-without-its-files-goes-by-id has "$(echo "$id3" | cut -c1-60).*" container="$id3"
    check lxc-in-a-cgroup-namespace has "live$$" container="live$$"
else
    echo "skip containers-of-version-2: no cgroup2 is mounted"
fi
if [ -n "$v1" ]; then
    check docker-on-version-1 has live-docker container="$id2" container.name=live-docker
else
    echo "skip containers-of-version-1: none is mounted"
fi
check service-of-the-environment has live-env service.version=4.5
check service-of-the-process-context has live-context
check context-wins-over-the-environment has_not live-before pid="$(pgrep -f 'publish live-context 0' | head -1)"
check own-variable-wins has live-own
check rule-wins has live-ruled
wait_for 30 has live-late
check late-publication has live-late pid="$late"
check left-out-by-its-own-wish has_not live-out
counted() { grep -o "samples_passed_over [0-9]*" "$tmp/log" | grep -q '[1-9]'; }
check left-out-in-the-kernel counted
due() { ! grep 'window of' "$tmp/log" | tail -3 | grep -q ' lost'; }
check nothing-counts-as-lost due
stop

# --- filters
rm -rf "$tmp/store"
conf "offcpu = false" "[filter]" "include = exe:spin, exe:ruled" "exclude = service:live-env, unit:live$$.service"
start
wait_for 30 windows 4
check included has live-own
check not-included has_not live-context
check excluded-by-service has_not live-env
[ -z "$v2" ] || check excluded-by-unit has_not spin systemd.unit="live$$.service"
check kernel-threads-are-not-included has_not '.*kernel.*'
# One that is wanted only once it has another image: it is not lost.
sh -c "sleep 1.5; exec '$tmp/ruled' x 999999" & loads="$loads $!"; changed=$!
wait_for 20 has ruled pid="$changed"
check wanted-after-an-exec has ruled pid="$changed"
stop
rm -rf "$tmp/store"
conf "offcpu = false" "[filter]" "min_age_s = 15"
start
EBPFPROFILER_SERVICE=live-young "$tmp/spin" x 999999 & loads="$loads $!"
wait_for 10 windows 3
check too-young has_not live-young
check old-enough has live-own
wait_for 60 has live-young
check of-age-by-now has live-young
stop

# --- what leaves the host: each byte is looked at
rm -rf "$tmp/store"
for p in $loads; do kill -9 "$p" 2>/dev/null; done
mkdir -m 755 "$home" && cp "$tmp/spin" "$home/planted"
LIVE_SECRET=planted-environment-value "$home/planted" planted-argument 999999 & planted=$!; loads=$planted
mkdir "$tmp/sink"
mkfifo "$tmp/in"
python3 tests/server.py "$tmp/sink" <"$tmp/in" >"$tmp/port" & server=$!
exec 9>"$tmp/in"
wait_for 5 grep -q port "$tmp/port"
sent() { [ "$(ls "$tmp/sink" | grep -c body)" -ge "$1" ]; }
send() { # settings...
    rm -f "$tmp"/sink/*.body "$tmp"/sink/*.query "$tmp"/sink/*.headers
    conf "$@" "[upload]" "url = http://127.0.0.1:$(sed 's/port //' "$tmp/port")" "symbolize = host"
    start
    wait_for 40 windows 4
    wait_for 10 sent 4
    stop
}
bytes() { for f in "$tmp"/sink/*.body; do gzip -dc "$f"; done; cat "$tmp"/sink/*.query "$tmp"/sink/*.headers; }
finds() { bytes | grep -qaF "$1"; }
finds_not() { ! finds "$1"; }
hash_of() { PYTHONPATH=tests/live python3 - "$tmp"/sink/*.body <<'P'
import sys
from pprof import Profile
print(sorted({l["pid"] for f in sys.argv[1:] for _, _, l in Profile(f).samples
              if l.get("process.executable") == "planted"}))
P
}
send
check the-planted-process-was-sent finds planted
check no-argument-is-sent finds_not planted-argument
check no-environment-is-sent finds_not planted-environment
check no-variable-is-sent finds_not LIVE_SECRET
check no-home-directory-is-sent finds_not "$home"
check no-part-of-it-is-sent finds_not live-identity
first=$(hash_of)
check pid-is-not-sent test "$first" != "[$planted]" -a "$first" != "[]"
check key-is-private test "$(stat -c %a "$tmp/store/pid.key")" = 600
send
check hash-is-the-same-after-a-restart test "$(hash_of)" = "$first"
rm "$tmp/store/pid.key"
send
check hash-is-another-with-another-key test "$(hash_of)" != "$first"
send "home_paths = true" "strip_process_args = false" "plain_pid = true"
check home-directory-when-switched-on finds "$home/planted"
check arguments-when-switched-on finds planted-argument
check never-the-environment finds_not planted-environment
check plain-pid-when-switched-on test "$(hash_of)" = "[$planted]"
exec 9>&-
