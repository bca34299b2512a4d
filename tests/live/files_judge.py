#!/usr/bin/env python3
"""Judges stored profiles against what the test programs were built to do.

files_judge.py STORE CASES PREFIX [MIN]: CASES has a line "name|executable|frames, leaf first" per
program. Each of its samples (at least MIN, 15) must show exactly these frames on top of each other
and end in _start; one in a hundred may not.
"""
import glob
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from pprof import Profile

store, cases, prefix = sys.argv[1:4]
least = int(sys.argv[4]) if len(sys.argv) > 4 else 15
period = 1e9 / 199
seen = {}
for name in glob.glob(store + '/profiles/*.pb.gz'):
    service = name.split('-cpu-')[1]
    if prefix not in service and len(service) != 64 + len('.pb.gz'):
        continue  # another program's; protoc takes its time
    for value, stack, labels in Profile(name).samples:
        user = [f for f in stack if f[1] != '[kernel.kallsyms]']
        seen.setdefault(labels.get('process.executable'), []).append((value / period, user))
for line in open(cases, encoding='utf-8'):
    name, exe, frames = line.rstrip('\n').split('|')
    exe = exe.encode().decode('unicode_escape')
    want = frames.split()
    right = total = 0
    wrong = {}
    for n, user in seen.get(exe, []):
        names = [f[0] or '?' for f in user]
        good = names[:len(want)] == want and names[-1] == '_start'
        total += n
        right += n * good
        if not good:
            key = ' '.join('%s@%s' % (f[0], f[1][-40:]) for f in user[:9])
            wrong[key] = wrong.get(key, 0) + n
    ok = total >= least - 0.5 and right >= 0.99 * total
    print('%s %s-%s' % ('ok' if ok else 'not ok', prefix, name))
    print('    %d of %d samples right' % (round(right), round(total)))
    for key, n in sorted(wrong.items(), key=lambda x: -x[1])[:3]:
        print('    %d wrong: %s' % (round(n), key))
