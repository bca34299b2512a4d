#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Helper of live_php*.sh.

    php.py stacks PROFILE          the php_wall samples as judge.py reads them, a line each
    php.py shares PROFILE          "merged refused apart", shares of 100 of the samples that have
                                   an interpreter's stack
    php.py marks PROFILE           shares of stacks that say that something of them is not known
    php.py compare PARK DUMP       what park.php told of itself against `dump --json`; a line of
                                   figures, exit code 1 when not all is equal
    php.py order DUMP NAME...      functions of `dump --native`, which have to stand in that order,
                                   leaf first, each after the one before; "(native)" is any native
                                   one. Exit code 1 when they do not
"""
import gzip
import json
import re
import sys

sys.path.insert(0, 'tests/live')
from cpython import Stacks, shares  # noqa: E402
from pprof import fields, packed  # noqa: E402

NO_NAME = ('[gone]', '[too many names]')
CUT_AT_LEAST = 60  # frames of a stack that is cut


def name(func):
    # PHP keeps the place of an anonymous class behind a NUL in its name, and shows what is before it.
    return re.sub(r'\0.*?:\d+\$[0-9a-f]+', '', func)


class Wall(Stacks):
    """The samples of php_wall alone, in a profile that may have other types as well."""

    def __init__(self, path):
        super().__init__(path)
        top = list(fields(gzip.open(path).read()))
        s = [v.decode(errors='replace') for k, v in top if k == 6]
        types = [s[dict(fields(v))[1]] for k, v in top if k == 1]
        values = [[packed(x) for n, x in fields(v) if n == 2][0] for k, v in top if k == 2]
        period = sum(v for k, v in top if k == 12)
        at = types.index('php_wall')
        labels = [{s[x.get(1, 0)]: s[x.get(2, 0)] for x in
                   (dict(fields(x)) for n, x in fields(v) if n == 3)} for k, v in top if k == 2]
        each = [(round(v[at] / max(period, 1)), label, stack) for v, label, (_, stack)
                in zip(values, labels, self.samples) if v[at]]
        self.samples = [(n, stack) for n, _, stack in each]
        self.unsure = [(n, label.get('runtime.leaf') == 'unsure') for n, label, _ in each]


def judged(stack):
    """A stack as judge.py reads it. What it cannot know: marks in place of frames."""
    cut = any(func.startswith('[cut') for func, _, _ in stack)
    frames = [{'func': func, 'file': file or None, 'line': line} for func, file, line in stack
              if not func.startswith('[cut')]
    # What was freed before it was named says so, and what there were too many of: callers remain.
    gone = [i for i, f in enumerate(frames) if f['func'] in NO_NAME]
    frames = frames[gone[-1] + 1:] if gone else frames
    # It stands for the generators that delegate; in churn.php that can only be one.
    for f in frames:
        if f['func'] == '(yield from)':
            f.update(func='twice', file=frames[-1]['file'])
    return {'frames': frames, 'cut': cut}


def stacks(path):
    for count, stack in Wall(path).samples:
        text = json.dumps(judged(stack))
        for _ in range(max(count, 1)):
            print(text)


def marks(path):
    samples = Wall(path).samples
    total = sum(n for n, _ in samples) or 1

    def share(name):
        return 100 * sum(n for n, stack in samples if any(f[0] == name for f in stack)) / total
    unsure = 100 * sum(n for n, u in Wall(path).unsure if u) / total
    print('unsure %.2f %%, not named %.2f %%, with generators not told %.2f %%' %
          (unsure, sum(share(name) for name in NO_NAME), share('(yield from)')))


def compare(park, dump):
    with open(park) as f:
        own = json.loads(f.readline())
    with open(dump) as f:
        threads = {t['ns_tid']: t for t in json.load(f)['threads']}
    frames = wrong = 0
    for thread in own['threads']:
        ours = threads.get(thread['tid'], {})
        got = [(f['func'], f.get('file') or '', f.get('line') or 0)
               for f in ours.get('frames', []) if f['kind'] == 'runtime']
        want = [(name(f['func']), f['file'] or '', f['line'] or 0) for f in thread['frames']]
        if ours.get('cut') and len(got) >= CUT_AT_LEAST:
            want = want[:len(got)]
        frames += len(want)
        if want == got:
            continue
        wrong += 1
        print('%d: differs%s' % (thread['tid'], '' if ours else ': not there'))
        for i in range(max(len(want), len(got))):
            a = want[i] if i < len(want) else None
            b = got[i] if i < len(got) else None
            if a != b:
                print('  frame %d: %s, but we say %s' % (i, a, b))
                break
    others = [t for tid, t in threads.items()
              if tid not in [o['tid'] for o in own['threads']] and
              any(f['kind'] == 'runtime' for f in t['frames'])]
    for t in others:
        print('%d: runs no PHP, but we say %s' % (t['ns_tid'], t['frames'][0]['func']))
    print('%s %s: %d threads, %d frames, %d threads differ' % (
        own['version'], own['sapi'], len(own['threads']), frames, wrong))
    return 1 if wrong or others or not frames else 0


def order(dump, names):
    with open(dump) as f:
        threads = json.load(f)['threads']
    frames = threads[0]['frames']
    at = 0
    for wanted in names:
        while at < len(frames):
            f = frames[at]
            at += 1
            if f['func'] == wanted and f['kind'] == 'runtime' or \
                    wanted == '(native)' and f['kind'] == 'native':
                break
        else:
            print('no %s at its place in' % wanted)
            print('\n'.join('  %s %s' % (f['kind'], f['func']) for f in frames))
            return 1
    return 0


if __name__ == '__main__':
    if sys.argv[1] == 'stacks':
        stacks(sys.argv[2])
    elif sys.argv[1] == 'shares':
        shares(sys.argv[2])
    elif sys.argv[1] == 'marks':
        marks(sys.argv[2])
    elif sys.argv[1] == 'order':
        sys.exit(order(sys.argv[2], sys.argv[3:]))
    else:
        sys.exit(compare(sys.argv[2], sys.argv[3]))
