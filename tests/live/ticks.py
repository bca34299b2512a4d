#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Helper of live_ticks.sh.

    ticks.py RECORD TOLD    what wake.py wrote of its threads, what ticks (tests/ticks.c) told of them

A stack that was told for a moment within a wait has to be that wait's. For moments at a wait's edge or
between two waits the program's record says nothing; such a stack has to be one that the marks in wake.py
allow. Prints figures; exit code 1 when a stack is wrong, or too little was told to say.
"""
import bisect
import collections
import json
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, 'tests/runtimes/programs')
import judge  # noqa: E402


class Record:
    """Of each thread: when it waited where."""

    def __init__(self, path):
        self.waits = collections.defaultdict(list)
        with open(path) as f:
            for line in f:
                row = json.loads(line)
                self.waits[row['tid']].append((row['from'], row['to'] or 1 << 63,
                                               [tuple(f) for f in row['frames']]))
        for waits in self.waits.values():
            waits.sort(key=lambda w: w[0])
        self.begins = {tid: [w[0] for w in waits] for tid, waits in self.waits.items()}

    def at(self, tid, since, until):
        """The stack that the thread had all the time; None: the record does not say."""
        i = bisect.bisect_right(self.begins.get(tid, []), since) - 1
        if i < 0 or self.waits[tid][i][1] < until:
            return None
        return self.waits[tid][i][2]


def short(frames):
    return ' < '.join('%s:%s' % (f[0], f[2]) for f in frames)


def main():
    record = Record(sys.argv[1])
    graph = judge.Judge(judge.Graph('tests/runtimes/programs/wake.py'))
    stacks, counts, wrong = {}, collections.Counter(), []
    for line in open(sys.argv[2]):
        words = line.split()
        if words[0] == 'stack':
            stacks[words[1]] = json.loads(line.split(' ', 2)[2])
        elif words[0] in ('moved', 'refused'):
            counts[words[0]] += 1
        elif words[0] == 'at':
            since, until, tid = (int(w) for w in words[1:4])
            told = stacks[words[4]]
            got = [(f['func'], f['file'], f['line']) for f in told['frames']]
            want = record.at(tid, since, until)
            if want is not None:
                counts['within a wait'] += 1
                if want != got:
                    wrong.append('%d: %s, but it was on %s' % (tid, short(got), short(want)))
                continue
            counts['at an edge'] += 1
            # A thread that has just begun has no frame yet, or only those of its library.
            verdict = graph.verdict(told)
            if verdict in judge.ILLEGAL:
                wrong.append('%d: %s: %s' % (tid, verdict, short(got)))
    print(', '.join('%s %d' % c for c in sorted(counts.items())) + ', wrong %d' % len(wrong))
    for text in wrong[:5]:
        print(text)
    return 1 if wrong or counts['within a wait'] < 1000 else 0


if __name__ == '__main__':
    sys.exit(main())
