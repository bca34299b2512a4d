# SPDX-License-Identifier: Apache-2.0
"""What the judges of runtimes' stacks have in common: cpython.py, ruby.py, php.py, merge.py."""
import collections
import gzip
import json
import re
import sys

from pprof import fields, packed

NAME_BYTES = 511  # of a function or file: what is longer is cut
CUT_AT_LEAST = 60  # frames of a stack that is cut; each may have a second node

Frame = collections.namedtuple('Frame', 'func file line runtime')  # runtime: of no mapping, at no address
NATIVE = Frame('', '', 0, False)  # one without a name


class Stacks:
    """(count, [Frame] leaf first, whether the leaf is marked as unsure) of each sample that has some of
    `sample_type`, else of the default one. Unlike pprof.Profile with lines, and every function of a place."""

    def __init__(self, path, sample_type=None):
        top = list(fields(gzip.open(path).read()))
        s = [v.decode(errors='replace') for k, v in top if k == 6]
        self.comments = [s[i] for k, v in top if k == 13 for i in packed(v)]
        types = [s[dict(fields(v))[1]] for k, v in top if k == 1]
        default = [s[v] for k, v in top if k == 14]
        index = types.index(sample_type or (default[0] if default else types[0]))
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
            locations[d[1]] = [Frame(*functions[x[1]], x.get(2, 0), runtime) for x in lines] or [NATIVE]
        self.samples = []
        for k, v in top:
            if k != 2:
                continue
            stack, value, unsure = [], 0, False
            for n, x in fields(v):
                if n == 1:
                    for i in packed(x):
                        stack += locations[i]
                elif n == 2:
                    value = packed(x)[index]
                elif n == 3:
                    label = dict(fields(x))
                    unsure |= s[label.get(1, 0)] == 'runtime.leaf' and s[label.get(2, 0)] == 'unsure'
            if value:
                self.samples.append((round(value / max(period, 1)), stack, unsure))


def is_cut(frame):
    return frame.func.startswith('[cut')


def apart(stack):
    """Of one that could not be merged the runtime's part, which follows the native one."""
    names = [f.func for f in stack]
    return stack[names.index('[not merged]') + 1:] if '[not merged]' in names else stack


def tell(times, stack, frames):
    """Lines for judge.py: those frames of a stack that it shall look at."""
    text = json.dumps({'frames': [{'func': f.func, 'file': f.file, 'line': f.line} for f in frames],
                       'cut': any(is_cut(f) for f in stack)})
    for _ in range(times):
        print(text)


def shares(path):
    text = ''.join(c for c in Stacks(path).comments if c.startswith("interpreters' stacks"))

    def share(name):
        found = re.search(name + r'[^%]*? ([0-9.]+) %', text)
        return float(found.group(1)) if found else 0.0
    print(share('merged with') + share('merged, but cut'), share('refused'), share('kept apart'))


def cut(text):
    return text.encode(errors='replace')[:NAME_BYTES].decode(errors='ignore')


def reached(want, got, ours):
    """What it told, as far as a list of the kernel's limits reaches."""
    return want[:len(got)] if ours.get('cut') and len(got) >= CUT_AT_LEAST else want


def dumped(dump):
    with open(dump) as f:
        return {t['ns_tid']: t for t in json.load(f)['threads']}


def equal(own, threads, expected):
    """Whether the dumped threads have what a park program told of its own, by expected(thread of its
    own, frames that we say, our thread) as [(function, file, line)]. Prints figures and differences."""
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
        ' '.join(own[k] for k in ('version', 'sapi') if k in own), len(own['threads']), frames, wrong))
    return frames > 0 and not wrong


def main(*commands):
    """Calls the one of these functions that the command line names with what follows."""
    sys.exit({f.__name__: f for f in commands}[sys.argv[1]](*sys.argv[2:]))
