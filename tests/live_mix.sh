#!/bin/sh
# Real programs, built without frame pointers, under the daemon: how their stacks end. At least
# 99 % of each program's samples from its second second on must reach the thread's first frame.
: "${B:=build}"
tmp=$(mktemp -d)
pids= daemon=
trap 'kill -9 $pids $daemon 2>/dev/null; rm -rf "$tmp"' EXIT
umask 077
cat >"$tmp/exc.cc" <<'EOF'
#include <stdexcept>
#include <string>
#include <vector>
volatile unsigned long sink;
static void __attribute__((noinline)) thrower(int n) { if (n <= 0) throw std::runtime_error("x"); thrower(n - 1); sink += n; }
struct S { std::string s; ~S() { sink += s.size(); } };
static int __attribute__((noinline)) catcher(int i) { S s{std::string(40, 'a')}; try { thrower(i % 12); } catch (const std::exception &e) { return (int)sizeof(e); } return 0; }
int main() { std::vector<int> v(1000); for (;;) for (auto &x : v) { x += catcher(x); for (int k = 0; k < 2000; k++) sink += k; } }
EOF
cat >"$tmp/go.go" <<'EOF'
package main

import ("crypto/sha256"; "sort"; "sync")

func work(n int) []int { a := make([]int, n); h := sha256.Sum256([]byte("seed")); for i := range a { if i%64 == 0 { h = sha256.Sum256(h[:]) }; a[i] = int(h[i%32]) * (i % 977) }; sort.Ints(a); return a }
func spawn(n int) { var w sync.WaitGroup; w.Add(n); for i := 0; i < n; i++ { go func() { w.Done() }() }; w.Wait() }
func main() { for { work(20000); spawn(200) } }
EOF
cat >"$tmp/r.rs" <<'EOF'
use std::collections::HashMap;
fn work(n: u64) -> u64 { let mut m = HashMap::new(); for i in 0..n { *m.entry(format!("k{}", i % 1000)).or_insert(0u64) += i; } let mut v: Vec<_> = m.into_iter().collect(); v.sort(); v.iter().map(|x| x.1).sum() }
fn main() { let mut s = 0u64; loop { s = s.wrapping_add(work(20000)); if s == 1 { println!("{}", s); } } }
EOF
cat >"$tmp/J.java" <<'EOF'
import java.util.*;
public class J { static int f(int n) { List<String> l = new ArrayList<>(); for (int i = 0; i < n; i++) l.add("k" + i * 31 % 977); Collections.sort(l); return l.get(n / 2).hashCode(); }
  public static void main(String[] a) { int s = 0; for (;;) s += f(20000); } }
EOF
g++ -O2 -fomit-frame-pointer -o "$tmp/exceptions" "$tmp/exc.cc"
names="exceptions sort sqlite3 python3.11 gzip"
command -v node >/dev/null && names="$names node"
(cd "$tmp" && go build -o gobinary go.go 2>/dev/null) && names="$names gobinary"
command -v rustc >/dev/null && rustc -O -o "$tmp/rustbinary" "$tmp/r.rs" 2>/dev/null && names="$names rustbinary"
command -v javac >/dev/null && javac -d "$tmp" "$tmp/J.java" 2>/dev/null && names="$names java"

printf '[ebpf_profiler]\nenabled = true\nsample_hz = 199\nupload_interval_s = 8\nmax_frames = 512\ncpu_budget = 100\n[store]\npath = %s/store\n' \
    "$tmp" >"$tmp/c.ini"
"$B/ebpfprofiler" run -c "$tmp/c.ini" 2>"$tmp/log" & daemon=$!
while ! grep -q 'sampling at' "$tmp/log"; do sleep 0.1; done
n=0
for name in $names; do
    rm -rf "$tmp/store/profiles"/*
    case $name in
    exceptions | gobinary | rustbinary) "$tmp/$name" & ;;
    sort) (seq 3000000 | /usr/bin/sort -R >"$tmp/s"; while :; do /usr/bin/sort -S 2G --parallel=1 "$tmp/s" >/dev/null; done) & ;;
    sqlite3) sqlite3 :memory: 'with recursive c(x) as (select 1 union all select x+1 from c where x<2000000000) select count(distinct x%1000), sum(x*3) from c;' >/dev/null & ;;
    python3.11) /usr/bin/python3 -c 'import json,re
while True:
    d=json.loads(json.dumps([{"a":i,"b":str(i)} for i in range(2000)])); re.findall("[0-9]+",str(d)); sorted(d,key=lambda x:x["b"])' & ;;
    gzip) (head -c 400000000 /dev/urandom | base64 | gzip -9 >/dev/null) & ;;
    node) node -e 'let a=[];for(;;){a=[];for(let i=0;i<1e5;i++)a.push({x:Math.sin(i),s:"k"+i});a.sort((p,q)=>p.x-q.x);JSON.stringify(a)}' & ;;
    java) java -Xmx256m -cp "$tmp" J & ;;
    esac
    p=$!
    pids="$pids $p"
    # The window that the program starts in does not count; the first whole one after it does.
    n=$(grep -c 'window of' "$tmp/log")
    while [ "$(grep -c 'window of' "$tmp/log")" -le "$n" ]; do sleep 0.2; done
    rm -rf "$tmp/store/profiles"/*
    while [ "$(grep -c 'window of' "$tmp/log")" -le $((n + 1)) ]; do sleep 0.2; done
    pkill -9 -P $p 2>/dev/null; kill -9 $p 2>/dev/null; wait $p 2>/dev/null
    mkdir -p "$tmp/kept/$name"
    mv "$tmp"/store/profiles/*-cpu-$name.pb.gz "$tmp/kept/$name/" 2>/dev/null
done
kill $daemon; wait $daemon
python3 - "$tmp/kept" $names <<'EOF'
import glob, re, sys
sys.path.insert(0, 'tests/live')
from pprof import Profile
first = r'runtime\.(goexit|clone|rt0_go|systemstack|mcall|asmcgocall|morestack|gogo)(\.abi0)?$'
for name in sys.argv[2:]:
    shares, total, roots, leftover = {}, 0, {}, False
    for f in glob.glob('%s/%s/*' % (sys.argv[1], name)):
        p = Profile(f)
        n = sum(v for v, s, l in p.samples)
        total += n
        for v, s, l in p.samples:
            user = [f[0] for f in s if f[1] != '[kernel.kallsyms]']
            if user:
                roots[user[-1]] = roots.get(user[-1], 0) + v
            leftover |= 'runtime.newproc.abi0' in user
        line = [c for c in p.comments if c.startswith('user stacks of this profile')][0]
        for m in re.finditer(r'([a-z][^%:]*?) ([\d.]+) %', line.split(':', 1)[1]):
            shares[m.group(1)] = shares.get(m.group(1), 0) + n * float(m.group(2)) / 100
    samples = total * 199 / 1e9
    # Or end in code made at run time that has no map: nobody can tell its frames from outside.
    whole = (shares.get('complete', 0) + shares.get('ended in code made at run time, without frame pointers', 0)) / total if total else 0
    print('%-12s %6.0f samples: %s' % (name, samples, ', '.join('%s %.2f %%' % (k, 100 * v / total) for k, v in sorted(shares.items(), key=lambda x: -x[1]))))
    if name == 'gobinary':
        # Where Go's runtime switches stacks a walk ends, or follows the frame pointer to the other one.
        whole = sum(v for s, v in roots.items() if re.match(first, s or '')) / total if total else 0
        print('first frames: %s' % ', '.join('%s %.2f %%' % (s, 100 * v / total) for s, v in sorted(roots.items(), key=lambda x: -x[1])[:6]))
        # What the stack switched to has left of the program's start: nobody else calls that wrapper.
        print('%s no-caller-is-left-over-on-another-stack' % ('not ok' if leftover else 'ok'))
    least = {'java': 0.9}.get(name, 0.99)
    good = samples > 200 and whole >= least
    print('%s whole-stacks-%s' % ('ok' if good else 'not ok', name))
EOF
