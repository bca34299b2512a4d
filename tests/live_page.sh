#!/bin/sh
# The page in a browser (Chromium by Playwright), asking a real daemon that profiles real programs:
# each of its functions, hostile names, a day of windows of 50 services. Pictures stay in $B/page.
: "${B:=build}"
bin=$PWD/$B/ebpfprofiler
tmp=$(mktemp -d)
daemon= loads= big=
cleanup() {
    for p in $daemon $loads $big; do kill -9 $p 2>/dev/null; done
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
: "${PLAYWRIGHT:=${XDG_CACHE_HOME:-$HOME/.cache}/ebpfprofiler/playwright}"
export PLAYWRIGHT
if [ ! -d "$PLAYWRIGHT/node_modules/playwright-core" ]; then
    mkdir -p "$PLAYWRIGHT"
    npm install --prefix "$PLAYWRIGHT" --no-audit --no-fund playwright-core@1 >"$tmp/npm" 2>&1 || cat "$tmp/npm"
fi
address() { sed -n 's/.*page: \(http[^ ]*\).*/\1/p' "$1" | tail -1; }

# --- programs to look at: shares of 70 to 30, the light half alone, naps, a name that is markup
gcc -O0 -fno-omit-frame-pointer -o "$tmp/ratio" tests/live/ratio.c
sed 's/\theavy();/\tlight();/' tests/live/ratio.c >"$tmp/other.c"
gcc -O0 -fno-omit-frame-pointer -Wno-unused-function -o "$tmp/other" "$tmp/other.c"
gcc -O2 -fno-omit-frame-pointer -pthread -o "$tmp/naps" tests/live/naps.c
gcc -O0 -fno-omit-frame-pointer -o "$tmp/<img src=x onerror=alert(1)>" tests/live/ratio.c
cat >"$tmp/c.ini" <<INI
[ebpf_profiler]
enabled = true
sample_hz = 97
upload_interval_s = 2
cpu_budget = 100
offcpu_dwarf = true
[web]
listen = 127.0.0.1:0
[store]
path = $tmp/store
INI
"$tmp/ratio" 600 & loads="$loads $!"
"$tmp/other" 600 --password=not-for-others & loads="$loads $!"
"$tmp/naps" 4 20000 60 & loads="$loads $!"
"$tmp/<img src=x onerror=alert(1)>" 600 & loads="$loads $!"
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
check no-escape-reaches-a-terminal sh -c "! '$bin' tree -s '*' -c '$tmp/c.ini' | grep -q '$(printf '\033')'"
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
node tests/live/page.mjs "$(address "$tmp/log")" "$B/page" "$wide" 2>&1
kill -TERM $daemon; wait $daemon; check daemon-ends-well test $? -eq 0
daemon=
