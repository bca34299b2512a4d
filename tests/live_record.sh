#!/bin/sh
# `record` on real programs: shares of two known functions, exit codes, nothing half-written.
: "${B:=build}"
bin=$B/ebpfprofiler
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
ok() { echo "ok $1"; }
no() { echo "not ok $1"; shift; echo "$@"; }
check() { name=$1; shift; if "$@"; then ok "$name"; else no "$name" "$@"; fi; }

gcc -O0 -fno-omit-frame-pointer -o "$tmp/ratio" tests/live/ratio.c

$bin record -d 10 -o "$tmp/out.pb.gz" -- "$tmp/ratio" 2>"$tmp/err"
check record-ends-a-command-that-outlives-it test $? -eq 0
cat "$tmp/err"
go tool pprof -top -cum "$tmp/out.pb.gz" 2>/dev/null | tee "$tmp/top"
check shares-70-30-within-3-points python3 - "$tmp/top" <<'EOF'
import re, sys
cum = {l.split()[-1]: float(l.split()[-2].rstrip('%')) for l in open(sys.argv[1]) if re.search(r'% +\S+$', l)}
print(cum)
sys.exit(0 if abs(cum['heavy'] - 70) <= 3 and abs(cum['light'] - 30) <= 3 else 1)
EOF
check root-is-main-or-libc python3 - "$tmp/out.pb.gz" <<'EOF'
import sys
sys.path.insert(0, 'tests/live')
from pprof import Profile
p = Profile(sys.argv[1])
good = sum(v for v, s, l in p.samples if s[-1][0] in ('main', '_start') or 'libc' in s[-1][1])
everything = sum(v for v, s, l in p.samples)
print(good, everything)
sys.exit(0 if good >= 0.99 * everything else 1)
EOF
check due-is-kept-plus-losses python3 - "$tmp/out.pb.gz" <<'EOF'
import re, sys
sys.path.insert(0, 'tests/live')
from pprof import Profile
p = Profile(sys.argv[1])
line = [c for c in p.comments if 'due' in c][0]
due, kept = map(int, re.search(r'(\d+) due, (\d+) kept', line).groups())
lost = sum(int(n) for n in re.findall(r'_full (\d+)|busy (\d+)', line) for n in n if n)
in_file = sum(v for v, s, l in p.samples) / 10101010
print(line, in_file)
sys.exit(0 if due == kept + lost and due > 500 and abs(in_file - kept) < 1 else 1)
EOF

$bin record -o "$tmp/status.pb.gz" -- "$tmp/ratio" 1 7 2>/dev/null
check status-of-the-command-is-passed-on test $? -eq 7
check profile-of-a-failing-command-is-kept test -s "$tmp/status.pb.gz"

"$tmp/ratio" 30 & pid=$!
$bin record -d 1 -p $pid --format folded -o - 2>/dev/null >"$tmp/folded"
check folded-on-stdout grep -q '^ratio;.*main;heavy;spin [0-9]*$' "$tmp/folded"
check pid-and-children-only sh -c "! grep -v '^ratio;' '$tmp/folded'"
kill $pid

$bin record -d 1 -o "$tmp/host.pb.gz" 2>/dev/null
check whole-host test -s "$tmp/host.pb.gz"

# --- waits: beside samples on CPU in one file, and as folded lines
gcc -O2 -fno-omit-frame-pointer -pthread -o "$tmp/naps" tests/live/naps.c
$bin record -d 4 -e cpu,offcpu --no-runtimes -o "$tmp/both.pb.gz" -- "$tmp/naps" 10 20000 60 2>"$tmp/err"
check waits-and-samples-in-one-file python3 - "$tmp/both.pb.gz" <<'EOF'
import sys
sys.path.insert(0, 'tests/live')
from pprof import Profile
p, w = Profile(sys.argv[1]), Profile(sys.argv[1], 'offcpu')
waited = sum(v for v, s, l in w.samples)
# Ten threads that nap all the time, and the main one, which waits for them.
print(p.types, sum(v for v, s, l in p.samples), waited, p.duration)
print({l.get('wait') for v, s, l in w.samples if v}, [c for c in p.comments if 'wait' in c])
nap = sum(v for v, s, l in w.samples if any(f[0] == 'sleeper' for f in s))
sys.exit(0 if p.types == ['cpu', 'waits', 'offcpu'] and 0.9 < waited / 11 / p.duration < 1.03 and nap > 0.8 * waited
         and {l['thread.state'] for v, s, l in w.samples if v} == {'S'} else 1)
EOF
$bin record -d 3 -e offcpu --no-runtimes --format folded -o - -- "$tmp/naps" 10 20000 60 2>/dev/null >"$tmp/folded"
check folded-waits-are-nanoseconds awk '/sleeper/ { n += $NF } END { print n / 1e9 " s"; exit !(n > 20e9 && n < 36e9) }' "$tmp/folded"
(cd "$tmp" && "$OLDPWD/$bin" record -d 0.5 --offcpu --offcpu-min-ms 5 --no-runtimes 2>/dev/null)
check file-name-says-the-types sh -c "ls $tmp | grep -q '^host-cpu+offcpu-.*pb.gz'"

err() { # name code pattern command...
    name=$1 code=$2 pattern=$3
    shift 3
    "$@" >"$tmp/o" 2>"$tmp/e"
    rc=$?
    if [ $rc -eq "$code" ] && grep -q "$pattern" "$tmp/e" && [ "$(wc -l <"$tmp/e")" -eq 1 ]; then
        ok "$name"
    else
        no "$name" "exit $rc, want $code: $(cat "$tmp/e")"
    fi
}
mkdir "$tmp/d"
cd "$tmp/d" || exit 1
bin=$OLDPWD/$bin
err missing-pid 1 'no such process' "$bin" record -p 4194303 -d 1
err command-cannot-be-executed 1 "cannot execute 'nonexistent-x': No such file" "$bin" record -d 1 -- nonexistent-x
err unwritable-output 1 "cannot write '/nonexistent/x.pb.gz': No such file" "$bin" record -d 1 -o /nonexistent/x.pb.gz
err output-is-a-directory 1 'Is a directory' "$bin" record -d 1 -o "$tmp"
err unknown-type 2 'expected a list of cpu, offcpu, lock' "$bin" record -e cpu,wall
err type-given-twice 2 'expected a list of cpu, offcpu, lock' "$bin" record -e cpu,cpu
err folded-holds-one-type 2 'give one type' "$bin" record -e cpu,offcpu --format folded
err bad-minimum 2 'expected milliseconds' "$bin" record -e offcpu --offcpu-min-ms -1
err tables-without-tables 2 'exclude each other' "$bin" record -e offcpu --offcpu-dwarf --frame-pointers
err bad-rate 2 'expected a rate' "$bin" record -F 0
err pid-and-command 2 'exclude each other' "$bin" record -p 1 -- true
chmod 755 "$tmp" "$tmp/d"
chmod 777 "$tmp/d"
cp "$bin" "$tmp/d-bin" && chmod 755 "$tmp/d-bin"
err too-few-privileges 3 'CAP_' setpriv --reuid=65534 --regid=65534 --clear-groups "$tmp/d-bin" record -d 1
check nothing-left-behind test -z "$(ls -A "$tmp/d")"
