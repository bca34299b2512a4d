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
import json
import re

from stacks import Stacks, dumped, equal, is_cut, main, reached, shares, tell

NO_NAME = ('[gone]', '[too many names]')


def name(func):
    # PHP keeps the place of an anonymous class behind a NUL in its name, and shows what is before it.
    return re.sub(r'\0.*?:\d+\$[0-9a-f]+', '', func)


def judged(stack):
    """What judge.py can know of a stack: it has marks in place of frames."""
    frames = [f._replace(file=f.file or None) for f in stack if not is_cut(f)]
    # A program of ours that embeds PHP includes the script from a line of its own (embed_php.c).
    if [f.func for f in frames[-2:]] == ['include', '{main}'] and 'php-embed' in (frames[-1].file or ''):
        frames[-2:] = [frames[-2]._replace(func='{main}')]
    # What was freed before it was named says so, and what there were too many of: callers remain.
    gone = [i for i, f in enumerate(frames) if f.func in NO_NAME]
    frames = frames[gone[-1] + 1:] if gone else frames
    # It stands for the generators that delegate; in churn.php that can only be one.
    return [f._replace(func='twice', file=frames[-1].file) if f.func == '(yield from)' else f for f in frames]


def stacks(path):
    for count, stack, _ in Stacks(path, 'php_wall').samples:
        tell(max(count, 1), stack, judged(stack))


def marks(path):
    samples = Stacks(path, 'php_wall').samples
    total = sum(n for n, _, _ in samples) or 1

    def share(name):
        return 100 * sum(n for n, stack, _ in samples if any(f.func == name for f in stack)) / total
    unsure = 100 * sum(n for n, _, leaf_unsure in samples if leaf_unsure) / total
    print('unsure %.2f %%, not named %.2f %%, with generators not told %.2f %%' %
          (unsure, sum(share(name) for name in NO_NAME), share('(yield from)')))


def expected(thread, got, ours):
    return reached([(name(f['func']), f['file'] or '', f['line'] or 0) for f in thread['frames']], got, ours)


def compare(park, dump):
    with open(park) as f:
        own = json.loads(f.readline())
    threads = dumped(dump)
    others = [t for tid, t in threads.items()
              if tid not in [o['tid'] for o in own['threads']] and
              any(f['kind'] == 'runtime' for f in t['frames'])]
    for t in others:
        print('%d: runs no PHP, but we say %s' % (t['ns_tid'], t['frames'][0]['func']))
    return 0 if equal(own, threads, expected) and not others else 1


def order(dump, *names):
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
    main(stacks, shares, marks, compare, order)
