#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Helper of live_ruby*.sh.

    ruby.py stacks PROFILE         the cpu samples as judge.py reads them, a line each, Ruby's frames
                                   alone, without the collector and innermost ones that are marked as
                                   unsure
    ruby.py shares PROFILE         "merged refused apart", shares of 100 of the samples that have a
                                   stack of Ruby
    ruby.py unsure PROFILE         share of 100 whose innermost frame is marked as unsure
    ruby.py collecting PROFILE FRAME
                                   "share samples": of the samples whose stack of Ruby has that frame,
                                   share of 100 whose innermost one is the collector
    ruby.py compare PARK DUMP      thread by thread: what park.rb told of itself against `dump
                                   --json`; a line of figures, exit code 1 when not all is equal
    ruby.py has PROFILE NAME...    whether some sample has these frames in this order, leaf first,
                                   whatever is between them; "(native)": any native one
"""
import json

from stacks import Stacks, apart, cut, dumped, equal, is_cut, main, reached, shares, tell


COLLECTOR = '(garbage collection)'


def stacks(path):
    for count, stack, leaf_unsure in Stacks(path).samples:
        frames = [f for f in apart(stack) if f.runtime and not is_cut(f) and f.func != COLLECTOR][leaf_unsure:]
        if frames:
            tell(count, stack, frames)


def unsure(path):
    samples = Stacks(path).samples
    total = sum(count for count, _, _ in samples)
    print('%.1f' % (100 * sum(count for count, _, leaf in samples if leaf) / max(total, 1)))


def collecting(path, name):
    total = collects = 0
    for count, stack, _ in Stacks(path).samples:
        names = [f.func for f in apart(stack) if f.runtime]
        if name not in names:
            continue
        total += count
        if COLLECTOR in names[1:]:
            print('the collector is in the middle of', names)
        collects += count * (names[0] == COLLECTOR)
    print('%.2f %d' % (100 * collects / max(total, 1), total))


def expected(thread, got, ours):
    """What is in C has no place."""
    want = [(cut(f['full']), '' if f['c'] else cut(f['file']), 0 if f['c'] else f['line'] or 0)
            for f in thread['frames']]
    return reached(want, got, ours)


def compare(park, dump):
    with open(park) as f:
        return 0 if equal(json.load(f), dumped(dump), expected) else 1


def has(path, *names):
    for _, stack, _ in Stacks(path).samples:
        rest = iter(f.func if f.runtime else '(native)' for f in stack)
        if all(name in rest for name in names):
            return 0
    print('no stack has %s' % ' < '.join(names))
    return 1


if __name__ == '__main__':
    main(stacks, shares, unsure, collecting, compare, has)
