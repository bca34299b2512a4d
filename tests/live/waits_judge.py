#!/usr/bin/env python3
"""Compares what waits.c measured of itself with a profile: waits_judge.py PROFILE JSON NAME..."""
import json
import sys

sys.path.insert(0, 'tests/live')
from pprof import Profile

# What each wait is called, and in which state; "" is anything.
WHY = {'sleep': 'sleep', 'futex': 'futex', 'pipe': 'pipe', 'socket': 'network', 'disk': 'disk',
       'churn': 'sleep', 'short': 'sleep', 'long': 'sleep', 'open': 'pipe'}


def sums(path, names, sample_type='offcpu'):
    """{name: (at the right function, with the right callers, with the right reason)}"""
    p = Profile(path, sample_type)
    out = {n: [0, 0, 0] for n in names}
    for value, stack, labels in p.samples:
        user = [f[0] for f in stack if f[1] != '[kernel.kallsyms]']
        for n in names:
            if 'wait_' + n not in user:
                continue
            at = user.index('wait_' + n)
            out[n][0] += value
            # Innermost user frame; one caller may be gone with a tail call, which is none here.
            if at == 0 and user[1:2] == ['outer_' + n]:
                out[n][1] += value
            if labels.get('wait') == WHY[n]:
                out[n][2] += value
    return out


def main():
    told = json.loads(open(sys.argv[2]).read().strip().splitlines()[-1])
    names, bad = sys.argv[3:], []
    got = sums(sys.argv[1], names)
    for n in names:
        at, chain, why = got[n]
        off = 100.0 * (at - told[n]) / max(told[n], 1)
        print('%-7s waited %8.3f s, profile %8.3f s: %+.2f %%; right callers %.1f %%, reason %.1f %%'
              % (n, told[n] / 1e9, at / 1e9, off, 100.0 * chain / max(at, 1),
                 100.0 * why / max(at, 1)))
        # Tables are made while the first waits are under way.
        # The clock is read before and after a wait: in sums under a second that tells.
        far = abs(at - told[n]) > max(0.02 * told[n], 2e7)
        if far or chain < at - max(0.01 * at, 5e8) or why < 0.98 * at or told[n] < 1e8:
            bad.append(n)
    print([c for c in Profile(sys.argv[1], 'offcpu').comments if 'wait' in c or 'off CPU' in c])
    print({k: v for k, v in told.items() if k not in names})
    sys.exit(len(bad) != 0)


if __name__ == '__main__':
    main()
