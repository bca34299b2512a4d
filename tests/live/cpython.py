#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Helper of live_cpython*.sh.

    cpython.py stacks PROFILE      the cpu samples as judge.py reads them, a line each, frames of the
                                   interpreter alone
    cpython.py shares PROFILE      "merged refused apart", shares of 100 of the samples that have an
                                   interpreter's stack
    cpython.py compare PARK DUMP   thread by thread: what park.py told of itself against `dump
                                   --json`; a line of figures, exit code 1 when not all is equal
"""
import gzip
import json
import re
import sys

sys.path.insert(0, 'tests/live')
from pprof import fields, packed  # noqa: E402

NAME_BYTES = 511  # of a function or file: what is longer is cut
CUT_AT_LEAST = 60  # frames of a stack that is cut; each may have a second node


class Stacks:
    """(count, [(function, file, line)] leaf first) of the default sample type."""

    def __init__(self, path):
        top = list(fields(gzip.open(path).read()))
        s = [v.decode(errors='replace') for k, v in top if k == 6]
        self.comments = [s[i] for k, v in top if k == 13 for i in packed(v)]
        types = [s[dict(fields(v))[1]] for k, v in top if k == 1]
        default = [s[v] for k, v in top if k == 14]
        index = types.index(default[0]) if default else 0
        period = sum(v for k, v in top if k == 12)
        functions, locations = {}, {}
        for k, v in top:
            if k == 5:
                f = dict(fields(v))
                functions[f[1]] = (s[f.get(2, 0)], s[f.get(4, 0)])
        for k, v in top:
            if k != 4:
                continue
            f = list(fields(v))
            lines = [dict(fields(x)) for n, x in f if n == 4]
            locations[dict(f)[1]] = [functions[x[1]] + (x.get(2, 0),) for x in lines]
        self.samples = []
        for k, v in top:
            if k != 2:
                continue
            stack, value = [], 0
            for n, x in fields(v):
                if n == 1:
                    for i in packed(x):
                        stack += locations[i] or [('', '', 0)]
                elif n == 2:
                    value = packed(x)[index]
            self.samples.append((round(value / max(period, 1)), stack))


def stacks(path):
    for count, stack in Stacks(path).samples:
        if any(func == '[not merged]' for func, _, _ in stack):
            at = [func for func, _, _ in stack].index('[not merged]')
            stack = stack[at + 1:]
        frames = [{'func': func, 'file': file, 'line': line} for func, file, line in stack
                  if file and (file.endswith('.py') or file.startswith('<'))]
        cut = any(func.startswith('[cut') for func, _, _ in stack)
        if frames:
            text = json.dumps({'frames': frames, 'cut': cut})
            for _ in range(count):
                print(text)


def shares(path):
    text = ''.join(c for c in Stacks(path).comments if c.startswith("interpreters' stacks"))

    def share(name):
        found = re.search(name + r'[^%]*? ([0-9.]+) %', text)
        return float(found.group(1)) if found else 0.0
    print(share('merged with') + share('merged, but cut'), share('refused'), share('kept apart'))


def cut(text):
    return text.encode(errors='replace')[:NAME_BYTES].decode(errors='ignore')


def expected(thread, got, ours):
    """What it told, as far as a list of the kernel's limits reaches; the inner interpreter's alone."""
    want = [(cut(f['func']), cut(f['file']), f['line'] or 0) for f in thread['frames']]
    if 'within' in thread:
        return want[:thread['within']]
    return want[:len(got)] if ours.get('cut') and len(got) >= CUT_AT_LEAST else want


def compare(park, dump):
    with open(park) as f:
        own = json.load(f)
    with open(dump) as f:
        threads = {t['ns_tid']: t for t in json.load(f)['threads']}
    frames = wrong = 0
    for thread in own['threads']:
        ours = threads.get(thread['tid'], {})
        got = [(f['func'], f.get('file') or '', f.get('line') or 0)
               for f in ours.get('frames', []) if f['kind'] == 'runtime']
        want = expected(thread, got, ours)
        frames += len(want)
        if want == got:
            continue
        wrong += 1
        print('%s (%d): differs%s' % (thread['name'], thread['tid'], '' if ours else ': not there'))
        for i in range(max(len(want), len(got))):
            a = want[i] if i < len(want) else None
            b = got[i] if i < len(got) else None
            if a != b:
                print('  frame %d: %s, but we say %s' % (i, a, b))
                break
    print('%s: %d threads, %d frames, %d threads differ' % (
        own['version'], len(own['threads']), frames, wrong))
    return 1 if wrong or not frames else 0


if __name__ == '__main__':
    if sys.argv[1] == 'stacks':
        stacks(sys.argv[2])
    elif sys.argv[1] == 'shares':
        shares(sys.argv[2])
    else:
        sys.exit(compare(sys.argv[2], sys.argv[3]))
