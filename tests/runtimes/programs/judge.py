#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Judges stacks of a churn program against the calls that its source allows.

    judge.py [-v N] [-c] PROGRAM <STACKS     counts; exit code 0 when there are stacks, all legal
    judge.py --edges PROGRAM                 the graph: "caller line via callee", a row each

A stack is a line: {"frames": [{"func", "file", "line"}, ... leaf first], ...}; more fields are let
be. A frame without a file (null, "" or "<...>") is one of the interpreter's own functions; line 0 or
null: not known. "cut": true says that the walk ended early and knows it; such a stack needs no root.

legal        every frame is where its function is, and each caller's line holds the call of the next
edge         illegal: no line of the caller calls the function that it is said to have called
line         illegal: it calls it, but not on that line
place        illegal: the frame's line is not in its function, or the program has no such function
root         illegal: the outermost frame is not the program's first one
elsewhere    has frames of other files: the program was starting or ending
empty        no frame

-v N prints the first N stacks of each illegal kind; -c names the calls of the graph that no stack
showed. How the marks in PROGRAM are written stands at its head.
"""
import argparse
import collections
import json
import os
import re
import sys

KINDS = ('legal', 'cut', 'edge', 'line', 'place', 'root', 'elsewhere', 'empty')
ILLEGAL = ('edge', 'line', 'place', 'root')
ROOTS = ('<module>', '{main}', '<main>', 'main')


def plain(name):
    """A function's name without what releases differ in: class, quotes, where a closure is."""
    name = name.strip("'`\"")
    name = re.sub(r'^\{closure:.*\}$', '{closure}', name)
    if name.startswith('<') or name.startswith('{'):
        return name
    block = re.match(r'((?:block(?: \(\d+ levels\))?|rescue|ensure) in )(.*)', name)
    head, name = block.groups() if block else ('', name)
    if block and re.match(r'(block|rescue|ensure)\b', name):
        return head + plain(name)
    tail = re.split(r'::|->|#|\.(?=[^.>])', name)[-1]
    return head + (tail or name)


class Graph:
    """The marks of a program."""

    def __init__(self, path):
        self.base = os.path.basename(path)
        self.functions = [()]                          # of each line
        self.calls = collections.defaultdict(list)     # (caller, callee) -> [(line, via)]
        self.leaf_calls = collections.defaultdict(list)  # caller -> [(line, via)]
        self.inner = set()                             # names of the interpreter's own functions
        self.anywhere = set()                          # those that may end a stack anywhere
        self.root = []
        self.bases = set(ROOTS)
        here = ()
        with open(path, encoding='utf-8') as f:
            for number, text in enumerate(f, 1):
                marks = re.findall(r'#([=>~])((?:(?!#[=>~]).)*)', text) \
                    if not text.startswith('# ') else []
                for kind, value in marks:
                    if kind == '=':
                        here = tuple(value.strip().split('|'))
                for kind, value in marks:
                    if kind == '~':
                        self.directive(value.split())
                    elif kind == '>':
                        for item in value.split(','):
                            self.add(number, here, item.strip())
                self.functions.append(here)
        self.known = {f for fs in self.functions for f in fs}

    def directive(self, words):
        if words[0] == 'root':
            self.root = words[1:]
        elif words[0] == 'base':
            self.bases.add(' '.join(words[1:]))
        elif words[0] == 'inner':
            self.inner.update(words[1:])
            self.anywhere.update(words[1:])

    def add(self, number, here, item):
        caller, arrow, rest = item.partition(' -> ')
        if not arrow:
            caller, rest = here[0], item
        via = []
        while rest.startswith('!'):
            name, _, rest = rest.partition(' ')
            via.append(name[1:])
        via, callee = tuple(via), rest
        self.inner.update(via)
        self.calls[caller, callee].append((number, via))
        self.leaf_calls[caller].append((number, via))

    def rows(self):
        for (caller, callee), places in sorted(self.calls.items()):
            for number, via in places:
                yield caller, number, via, callee or '-'


def is_part(some, whole):
    """Whether some's items stand in whole, in that order."""
    whole = iter(whole)
    return all(s in whole for s in some)


class Judge:
    def __init__(self, graph):
        self.graph = graph
        self.counts = collections.Counter()
        self.frames = self.lineless = 0
        self.seen = set()
        self.examples = collections.defaultdict(list)

    def own(self, name, frame):
        """An interpreter's function: in no file, or shown at the place that called it."""
        file = frame.get('file') or ''
        return not file or file.startswith('<') or \
            name in self.graph.inner and not self.place(name, frame.get('line') or 0)

    def place(self, name, line):
        if name not in self.graph.known:
            return False
        if not line:
            return True
        at = self.graph.functions[line] if line < len(self.graph.functions) else ()
        return name in at

    def step(self, caller, line, via, callee):
        """None when the caller's line holds the call, else what is wrong. callee None: a leaf."""
        if callee is None:
            places = self.graph.leaf_calls[caller]
            while via and via[-1] in self.graph.anywhere:
                via = via[:-1]
            if not via:
                return None
        else:
            places = self.graph.calls.get((caller, callee), ())
        wrong = 'edge'
        for at, by in places:
            if not is_part(via, by):
                continue
            if not line or at == line:
                self.seen.add((caller, at, callee))
                return None
            wrong = 'line'
        return wrong

    def verdict(self, stack):
        frames = stack.get('frames') or []
        if not frames:
            return 'empty'
        frames = [(plain(f['func']), f.get('line') or 0, f) for f in frames]
        frames = [(name, line, self.own(name, f), f) for name, line, f in frames]
        self.frames += len(frames)
        root = self.graph.root
        if root and len(frames) > len(root) and [f[0] for f in frames[-len(root):]] == root and \
                os.path.basename(frames[-1][3].get('file') or '') != self.graph.base:
            frames = frames[:-len(root)]
            rooted = True
        else:
            rooted = frames[-1][0] in self.graph.bases
        for name, line, own, frame in frames:
            if not own and os.path.basename(frame.get('file') or '') != self.graph.base:
                return 'elsewhere'
        below, via = None, []
        for name, line, own, frame in frames:
            if own:
                if name not in self.graph.inner:
                    return 'place'
                via.insert(0, name)
                continue
            self.lineless += not line
            if not self.place(name, line):
                return 'place'
            wrong = self.step(name, line, via, below) if below or via else None
            if wrong:
                return wrong
            below, via = name, []
        if via or below is None:
            return 'root'
        return 'legal' if rooted else 'cut' if stack.get('cut') else 'root'

    def feed(self, text):
        stack = json.loads(text)
        kind = self.verdict(stack)
        self.counts[kind] += 1
        if kind in ILLEGAL or kind == 'elsewhere':
            self.examples[kind].append(stack) if len(self.examples[kind]) < 100 else None


def report(judge, options):
    for kind in KINDS:
        print('%-10s %d' % (kind, judge.counts[kind]))
    print('illegal    %d of %d stacks, %d frames, %d without a line' % (
        sum(judge.counts[k] for k in ILLEGAL), sum(judge.counts.values()), judge.frames,
        judge.lineless))
    for kind, stacks in judge.examples.items():
        for stack in stacks[:options.v]:
            print('%s: %s' % (kind, ' < '.join('%s:%s' % (f['func'], f.get('line'))
                                               for f in stack['frames'])))
    if options.c:
        for caller, number, _, callee in judge.graph.rows():
            if (caller, number, callee) not in judge.seen and callee != '-':
                print('never seen: %s:%d -> %s' % (caller, number, callee))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--edges', action='store_true')
    parser.add_argument('-v', type=int, default=0, metavar='N')
    parser.add_argument('-c', action='store_true')
    parser.add_argument('program')
    options = parser.parse_args()
    graph = Graph(options.program)
    if options.edges:
        for caller, number, via, callee in graph.rows():
            print('%s\t%d\t%s\t%s' % (caller, number, ' '.join(via) or '-', callee))
        return 0
    judge = Judge(graph)
    for text in sys.stdin:
        if text.startswith('{'):
            judge.feed(text)
    report(judge, options)
    return 0 if judge.counts['legal'] and not sum(judge.counts[k] for k in ILLEGAL) else 1


if __name__ == '__main__':
    sys.exit(main())
