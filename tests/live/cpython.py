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
import json

from stacks import Stacks, apart, cut, dumped, equal, main, reached, shares, tell


def stacks(path):
    for count, stack, _ in Stacks(path).samples:
        frames = [f for f in apart(stack) if f.file.endswith('.py') or f.file.startswith('<')]
        if frames:
            tell(count, stack, frames)


def expected(thread, got, ours):
    want = [(cut(f['func']), cut(f['file']), f['line'] or 0) for f in thread['frames']]
    return reached(want, got, ours)


def compare(park, dump):
    with open(park) as f:
        return 0 if equal(json.load(f), dumped(dump), expected) else 1


if __name__ == '__main__':
    main(stacks, shares, compare)
