#!/bin/sh
# The page in a browser (Chromium by its own protocol, tests/live/browser.mjs), asking a real daemon that profiles real programs:
# each of its functions, hostile names, a day of windows of 50 services. Pictures stay in $B/page.
: "${B:=build}"
bin=$PWD/$B/ebpfprofiler
tmp=$(mktemp -d)
daemon= loads= living= big= cgroups=
cleanup() {
    for p in $daemon $loads $living $big; do kill -9 $p 2>/dev/null; done
    [ -z "$cgroups" ] || { sleep 0.2; rmdir "$cgroups"/*/ "$cgroups"; }
    rm -rf "$tmp"
}
trap cleanup EXIT
umask 077
check() { name=$1; shift; if "$@"; then echo "ok $name"; else echo "not ok $name"; echo "$@"; tail -5 "$tmp/log"; fi; }
wait_for() { # seconds command...
    n=$(($1 * 10)); shift
    while [ $n -gt 0 ]; do "$@" >/dev/null 2>&1 && return 0; sleep 0.1; n=$((n - 1)); done
    return 1
}
address() { sed -n 's/.*page: \(http[^ ]*\).*/\1/p' "$1" | tail -1; }

# --- programs to look at: shares of 70 to 30, the light half alone, naps, a fought-for lock, Python
gcc -O0 -fno-omit-frame-pointer -o "$tmp/ratio" tests/live/ratio.c
sed 's/\theavy();/\tlight();/' tests/live/ratio.c >"$tmp/other.c"
gcc -O0 -fno-omit-frame-pointer -Wno-unused-function -o "$tmp/other" "$tmp/other.c"
gcc -O2 -fno-omit-frame-pointer -pthread -o "$tmp/naps" tests/live/naps.c
gcc -O2 -fno-omit-frame-pointer -pthread -o "$tmp/waits" tests/live/waits.c
# Names that are markup, escapes, no UTF-8, 64 KB long: of functions, threads, files, containers.
evil="$tmp/<img src=x onerror=alert(1)>$(printf '\033[31m\a\377')"
gcc -O0 -fno-omit-frame-pointer -o "$evil" tests/live/hostile.c
cp "$tmp/ratio" "$tmp/boxed"
id=$(printf 'c0ffee%058d' 0)
contain() { # PID NAME: puts the process into a cgroup of that name
    [ -n "$cgroups" ] && mkdir "$cgroups/$2" && echo "$1" >"$cgroups/$2/cgroup.procs"
}
for d in $(awk '$3 == "cgroup2" || ($3 == "cgroup" && $4 ~ /pids/) { print $2 }' /proc/mounts); do
    mkdir "$d/page-$$" 2>/dev/null && cgroups="$d/page-$$" && break
done
cat >"$tmp/c.ini" <<INI
[ebpf_profiler]
enabled = true
sample_hz = 97
upload_interval_s = 2
cpu_budget = 100
offcpu_dwarf = true
lock = true
runtime_stacks = python_legacy
[web]
listen = 127.0.0.1:0
[store]
path = $tmp/store
INI
"$tmp/ratio" 600 & loads="$loads $!"
"$tmp/other" 600 --password=not-for-others & loads="$loads $!"
"$tmp/naps" 4 20000 60 >/dev/null & loads="$loads $!"
"$evil" & loads="$loads $!"
"$tmp/boxed" 600 & loads="$loads $!"
contain $! "docker-<img src=x onerror=alert(2)>-$id.scope"
python3 tests/live/wall.py 1 1 1 & loads="$loads $!"
"$tmp/waits" lock 600 >/dev/null & loads="$loads $!"
# One that goes on, for what is recorded later.
cp "$tmp/naps" "$tmp/living"
"$tmp/living" 2 20000 600 >/dev/null & living=$!
began=$(date +%s%N)
"$bin" -c "$tmp/c.ini" 2>"$tmp/log" & daemon=$!
check page-answers wait_for 10 grep -q 'page: http' "$tmp/log"
url=$(address "$tmp/log")
api() { curl -s -m 30 "$url$1"; }
first() { api 'api/flame?service=ratio' | grep -q '"heavy"'; }
check first-flame-graph-within-10-s wait_for 10 first
echo "# first flame graph with names after $((($(date +%s%N) - began) / 1000000)) ms"
windows() { [ "$(grep -c 'window of' "$tmp/log")" -ge 6 ]; }
wait_for 30 windows
for p in $loads; do kill "$p"; done
loads=
sleep 2.5 # the window with them ends

# --- what tools make of the downloads
api 'api/download?service=ratio&format=pprof' >"$tmp/down.pb.gz"
check go-tool-pprof-reads-a-merged-download sh -c "go tool pprof -top '$tmp/down.pb.gz' 2>/dev/null | grep -q heavy"
# The same shares as the tool computes from the files themselves.
check shares-equal-those-of-go-tool-pprof python3 - "$tmp" "$bin" <<'PY'
import glob, json, re, subprocess, sys
tmp = sys.argv[1]
files = sorted(glob.glob(tmp + '/store/profiles/*-cpu-ratio.pb.gz'))
out = subprocess.run(['go', 'tool', 'pprof', '-top', '-cum', '-nodefraction=0', '-unit=ns', *files], capture_output=True, text=True).stdout
go = {}
for l in out.splitlines():
    m = re.match(r' *([\d.]+)(?:ns)? +\S+ +\S+ +([\d.]+)(?:ns)? +\S+ +(\S.*)$', l)
    if m and m[3] in ('heavy', 'light', 'spin', 'main'): go[m[3]] = (float(m[1]), float(m[2]))
tree = subprocess.run([sys.argv[2], 'folded', *files], capture_output=True, text=True).stdout
ours = {}
for l in tree.splitlines():
    stack, n = l.rsplit(' ', 1)
    frames = stack.split(';')
    for f in set(frames) & set(go):
        s, t = ours.get(f, (0, 0))
        ours[f] = (s + (int(n) if frames[-1] == f else 0), t + int(n))
print(go, ours)
sys.exit(0 if len(go) >= 4 and all(abs(go[f][k] - ours[f][k]) <= 1e-4 * max(go[f][k], 1e6) for f in go for k in (0, 1)) else 1)
PY
check tree-of-a-running-service sh -c "'$bin' tree -s ratio -c '$tmp/c.ini' | grep -q 'heavy > spin'"
evil_service=$(api api/services | python3 -c 'import json, sys; print([s["key"] for s in json.load(sys.stdin)["services"] if "onerror" in s["name"]][0])')
"$bin" tree -s "$evil_service" -c "$tmp/c.ini" >"$tmp/tree"
check row-62-tree-names-hostile-functions sh -c "grep -q 'onerror' '$tmp/tree' && grep -q 'red.*\[31m' '$tmp/tree' && grep -q 'turned' '$tmp/tree' && grep -q 'long_sixteen' '$tmp/tree'"
"$bin" tree -s '*' -c "$tmp/c.ini" >>"$tmp/tree"
"$bin" top -d 1 -n 2 >"$tmp/top" 2>&1
# Nothing but text: no control byte, no mark that turns the direction, no byte that is no UTF-8.
check row-62-no-escape-reaches-terminal-or-log python3 - "$tmp" <<'PY'
import sys
tmp = sys.argv[1]
for name in ('tree', 'top', 'log'):
    text = open(f'{tmp}/{name}', 'rb').read().decode()
    bad = sorted({hex(ord(c)) for c in text if (c < ' ' and c not in '\t\n') or c in '\x7f\u202e\u2028' or '\x80' <= c < '\xa0'})
    if bad or max(map(len, text.split('\n'))) > 8192:
        sys.exit(f'{name}: {bad}, longest line {max(map(len, text.split(chr(10))))}')
PY
check row-65-command-lines-are-not-kept sh -c "! { cat '$tmp'/store/profiles/*.pb.gz | gzip -dc; cat '$tmp/store/catalog'; } | grep -a -q not-for-others"

# --- a day of one-minute windows of 50 services, 72,000 files, opens within a second
python3 tests/live/page_day.py "$tmp" && {
    sed "s|$tmp/store|$tmp/day|; s/interval_s = 2/interval_s = 3600/" "$tmp/c.ini" >"$tmp/day.ini"
    "$bin" -c "$tmp/day.ini" 2>"$tmp/daylog" & big=$!
    check page-of-a-day-answers wait_for 20 grep -q 'page: http' "$tmp/daylog"
    check a-day-of-50-services-within-1-s python3 - "$(address "$tmp/daylog")" "$big" <<'PY'
import json, sys, time, urllib.request
url, pid = sys.argv[1:]
def get(path):
    best = 99
    for i in range(3):
        t = time.time(); data = json.load(urllib.request.urlopen(url + path)); best = min(best, time.time() - t)
    return best, data
now = int(time.time() * 1000)
day = f'from={now - 86400000}&to={now}'
t, s = get('api/services?' + day)
f, flame = get('api/flame?service=svc07&' + day)
rss = [int(l.split()[1]) for l in open(f'/proc/{pid}/status') if l.startswith(('VmRSS', 'VmHWM'))]
print(f'# services {t * 1000:.0f} ms of {len(s["services"])}; flame graph of a day of one {f * 1000:.0f} ms, {flame["files"]} files; VmHWM, VmRSS {rss} kB')
sys.exit(0 if t < 1 and f < 1 and flame['files'][0] > 1300 and rss[0] < 300000 else 1)
PY
    wide=$(address "$tmp/daylog")
}

# --- and the browser
mkdir -p "$B/page"
: "${CHROMIUM:=$(command -v chromium || command -v chromium-browser)}"
if [ -n "$CHROMIUM" ] && command -v node >/dev/null; then
    CHROMIUM=$CHROMIUM CONTAINERS=$cgroups node tests/live/page.mjs "$(address "$tmp/log")" "$B/page" "$wide" 2>&1
else
    echo "skip page-in-a-browser: chromium and nodejs are missing: sh dist/deps.sh live"
fi
kill -TERM $daemon; wait $daemon; check daemon-ends-well test $? -eq 0
daemon=
