#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Helper of live_ruby*.sh.

    ruby.py stacks PROFILE         the cpu samples as judge.py reads them, a line each, Ruby's frames
                                   alone, without innermost ones that are marked as unsure
    ruby.py shares PROFILE         "merged refused apart", shares of 100 of the samples that have a
                                   stack of Ruby
    ruby.py unsure PROFILE         share of 100 whose innermost frame is marked as unsure
    ruby.py compare PARK DUMP      thread by thread: what park.rb told of itself against `dump
                                   --json`; a line of figures, exit code 1 when not all is equal
    ruby.py has PROFILE NAME...    whether some sample has these frames in this order, leaf first,
                                   whatever is between them; "(native)": any native one
"""
import gzip
import json
import sys

sys.path.insert(0, 'tests/live')
from cpython import CUT_AT_LEAST, cut, shares  # noqa: E402
from pprof import fields, packed  # noqa: E402


def samples(path):
    """(count, [(function, file, line, of the runtime)] leaf first, unsure) of the default type."""
    top = list(fields(gzip.open(path).read()))
    s = [v.decode(errors='replace') for k, v in top if k == 6]
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
        d = dict(f)
        lines = [dict(fields(x)) for n, x in f if n == 4]
        runtime = not d.get(2) and not d.get(3)
        locations[d[1]] = [functions[x[1]] + (x.get(2, 0), runtime) for x in lines]
    for k, v in top:
        if k != 2:
            continue
        stack, value, unsure = [], 0, False
        for n, x in fields(v):
            if n == 1:
                for i in packed(x):
                    stack += locations[i] or [('', '', 0, False)]
            elif n == 2:
                value = packed(x)[index]
            elif n == 3:
                label = dict(fields(x))
                unsure |= s[label.get(1, 0)] == 'runtime.leaf' and s[label.get(2, 0)] == 'unsure'
        yield round(value / max(period, 1)), stack, unsure


def stacks(path):
    for count, stack, unsure in samples(path):
        names = [f[0] for f in stack]
        if '[not merged]' in names:
            stack = stack[names.index('[not merged]') + 1:]
        is_cut = any(name.startswith('[cut') for name in names)
        frames = [{'func': func, 'file': file, 'line': line} for func, file, line, runtime in stack
                  if runtime and not func.startswith('[cut')][unsure:]
        if frames:
            text = json.dumps({'frames': frames, 'cut': is_cut})
            for _ in range(count):
                print(text)


def unsure_share(path):
    all_of_them = list(samples(path))
    unsure = sum(count for count, _, unsure in all_of_them if unsure)
    print('%.1f' % (100 * unsure / max(sum(count for count, _, _ in all_of_them), 1)))


def expected(thread, got, ours):
    """What it told, as far as a list of the kernel's limits reaches. What is in C has no place."""
    want = [(cut(f['full']), '' if f['c'] else cut(f['file']), 0 if f['c'] else f['line'] or 0)
            for f in thread['frames']]
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


def has(path, names):
    for _, stack, _ in samples(path):
        rest = iter(f[0] if f[3] else '(native)' for f in stack)
        if all(name in rest for name in names):
            return 0
    print('no stack has %s' % ' < '.join(names))
    return 1


if __name__ == '__main__':
    if sys.argv[1] == 'stacks':
        stacks(sys.argv[2])
    elif sys.argv[1] == 'shares':
        shares(sys.argv[2])
    elif sys.argv[1] == 'unsure':
        unsure_share(sys.argv[2])
    elif sys.argv[1] == 'has':
        sys.exit(has(sys.argv[2], sys.argv[3:]))
    else:
        sys.exit(compare(sys.argv[2], sys.argv[3]))
