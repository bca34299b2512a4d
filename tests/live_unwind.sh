#!/bin/sh
# Whole stacks in BPF, live: known chains of 5, 50 and 120 frames built without frame pointers come
# out whole and in order; a process that starts after the daemon has whole stacks within a second;
# deep recursion is cut at the limit and says so; signal handlers, alternate stacks, coroutines.
: "${B:=build}"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
gcc -O2 -fomit-frame-pointer -o "$tmp/deep" tests/live/deep.c
gcc -O2 -fomit-frame-pointer -o "$tmp/switch" tests/live/switch.c
for depth in 5 50 120; do
    "$B/ebpfprofiler" record -d 3 -F 199 -o "$tmp/$depth.pb.gz" -- "$tmp/deep" $depth 0 4 2>"$tmp/err"
    python3 - "$tmp/$depth.pb.gz" $depth <<'EOF'
import sys
sys.path.insert(0, 'tests/live')
from pprof import Profile
depth = int(sys.argv[2])
chain, n = [], 0
for i in range(depth):
    chain.append('level%d' % n)
    n = (n + 7) % 16
period = 1e9 / 199
right = wrong = early = 0
for value, stack, labels in Profile(sys.argv[1]).samples:
    names = [f[0] for f in stack if f[1] != '[kernel.kallsyms]']
    if 'busy' not in names:
        early += value      # starting or ending, or a stack from before the tables
        continue
    up = names[names.index('busy') + 1:]
    # from the leaf: the chain, main, then the C library and the program's start
    good = up[:depth] == chain[::-1] and up[depth] == 'main' and up[-1] == '_start'
    right += value * good
    wrong += value * (not good)
r, w, e = right / period, wrong / period, early / period
print('depth %d: %d right, %d wrong, %d elsewhere' % (depth, r, w, e))
# At most the first second may come from before the tables; it is a few samples.
print(('ok' if r > 100 and w + e <= 20 else 'not ok') + ' chain-of-%d-frames' % depth)
EOF
done

"$B/ebpfprofiler" record -d 2 -F 199 -o "$tmp/cut.pb.gz" -- "$tmp/deep" 700 0 3 2>"$tmp/err"
python3 - "$tmp/cut.pb.gz" <<'EOF'
import re, sys
sys.path.insert(0, 'tests/live')
from pprof import Profile
p = Profile(sys.argv[1])
line = [c for c in p.comments if c.startswith('user stacks')][0]
cut = float((re.search(r'cut at the frame limit ([\d.]+)', line) or [0, 0])[1])
longest = max(len([f for f in s if f[1] != '[kernel.kallsyms]']) for v, s, l in p.samples)
print(line, 'longest', longest)
print(('ok' if cut > 90 and longest == 512 else 'not ok') + ' recursion-of-700-is-cut-at-512-and-says-so')
EOF

for mode in signal altstack coroutine longjmp thread vdso; do
    "$B/ebpfprofiler" record -d 2 -F 199 -o "$tmp/$mode.pb.gz" -- "$tmp/switch" $mode 2>"$tmp/err"
    python3 - "$tmp/$mode.pb.gz" $mode <<'EOF'
import sys
sys.path.insert(0, 'tests/live')
from pprof import Profile
mode = sys.argv[2]
# What must stand above each sample in work(), leaf first; the root that ends the walk.
want = {'signal': ['work', 'handler', 'interrupted', 'outer', 'main'],
        'altstack': ['work', 'handler', 'interrupted', 'outer', 'main'],
        'coroutine': ['work', 'inner', 'coroutine'],
        'longjmp': ['work', 'after_jump', 'main'],
        'thread': ['work', 'inner', 'thread_main'],
        'vdso': ['work', 'main']}[mode]
good = total = 0
for value, stack, labels in Profile(sys.argv[1]).samples:
    names = [f[0] for f in stack if f[1] != '[kernel.kallsyms]' and f[0]]
    if 'work' not in names:
        continue
    total += value
    at = iter(names[names.index('work'):])
    good += value * all(w in at for w in want)
period = 1e9 / 199
print('%s: %d of %d' % (mode, good / period, total / period))
print(('ok' if good / period > 50 and (total - good) / period <= 20 else 'not ok') + ' stack-through-' + mode)
EOF
done

# Processes of one stack each, in pairs, so that the second of each begins while the daemon is not to
# be woken by anything new, and never sends another stack: its tables come soon after all.
gcc -O2 -fomit-frame-pointer -o "$tmp/still" tests/live/still.c
cat >"$tmp/pairs" <<EOF
for i in 1 2 3 4 5 6 7 8; do
    "$tmp/still" & a=\$!
    sleep 0.03
    "$tmp/still" & b=\$!
    sleep 0.4
    kill \$a \$b
    wait
done 2>/dev/null
EOF
"$B/ebpfprofiler" record -d 5 -F 199 -o "$tmp/pairs.pb.gz" -- sh "$tmp/pairs" 2>"$tmp/err"
python3 - "$tmp/pairs.pb.gz" <<'EOF'
import sys
sys.path.insert(0, 'tests/live')
from pprof import Profile
bad = total = 0
for value, stack, labels in Profile(sys.argv[1]).samples:
    names = [f[0] for f in stack]
    if 'still' in names:
        total += value
        bad += value * (names[-1] != '_start')
print('pairs: %d bad of %d' % (bad * 199 / 1e9, total * 199 / 1e9))
# Up to 14 for one: half a period, 50 ms of pause, and the time that the tables take.
print(('ok' if total > 1e9 and bad * 199 / 1e9 <= 8 * 22 else 'not ok') + ' tables-of-whom-nothing-new-is-heard')
EOF

# A return probe on a function of the program: the kernel has replaced its return address.
gcc -O2 -o "$tmp/uret" tests/live/uret.c
gcc -O1 -no-pie -fomit-frame-pointer -o "$tmp/ratio" tests/live/ratio.c
"$tmp/ratio" 8 & p=$!
at=$(printf '%x' $((0x$(nm "$tmp/ratio" | sed -n 's/ T heavy$//p') - 0x400000)))
"$tmp/uret" "$tmp/ratio" "$at" $p 6 >"$tmp/attached" & u=$!
while [ ! -s "$tmp/attached" ] && kill -0 $u 2>/dev/null; do sleep 0.1; done
"$B/ebpfprofiler" record -d 2 -F 199 -p $p -o "$tmp/u.pb.gz" 2>"$tmp/err"
kill $p $u 2>/dev/null
python3 - "$tmp/u.pb.gz" <<'EOF'
import sys
sys.path.insert(0, 'tests/live')
from pprof import Profile
whole = total = 0
for value, stack, labels in Profile(sys.argv[1]).samples:
    names = [f[0] for f in stack]
    if 'heavy' in names:
        total += value
        whole += value * (names[names.index('heavy') + 1] == 'main' if names[-1] == '_start' else 0)
print('uretprobe: %.1f %% of %d samples whole' % (100 * whole / max(total, 1), total * 199 / 1e9))
print(('ok' if total > 0.2e9 and whole >= 0.95 * total else 'not ok') + ' stack-through-a-return-probe')
EOF
