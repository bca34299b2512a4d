#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests, runtimes: checks the programs and the judge themselves.

    check.py park COMMAND PROGRAM     starts it and holds what it tells of itself against /proc
    check.py judge                    stacks that are known to be right or wrong, against judge.py

Prints nothing when all is well; else what is wrong, and exits with 1.
"""
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__)) + '/programs/'
sys.dont_write_bytecode = True
sys.path.insert(0, HERE)
import judge  # noqa: E402

wrong = 0


def expect(right, what):
    global wrong
    if not right:
        wrong = 1
        print('wrong: ' + what)


def check_park(command, program):
    child = subprocess.Popen([command, program, '-d', '7'], stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL)
    try:
        line = child.stdout.readline()
        told = json.loads(line) if line else None
        expect(told, 'it tells nothing')
        if told:
            check_told(told, child.pid)
    finally:
        child.kill()


def check_told(told, pid):
    expect(told['pid'] == pid, 'pid %d is not the one that was started' % told['pid'])
    tids = [t['tid'] for t in told['threads']]
    expect(len(set(tids)) == len(tids), 'a thread stands there twice')
    tasks = {int(t) for t in os.listdir('/proc/%d/task' % pid)}
    expect(set(tids) <= tasks, 'threads %s do not exist' % (set(tids) - tasks))
    if told['runtime'] == 'cpython':
        # The one that told is ending.
        expect(len(tasks - set(tids)) <= 1, 'threads %s are not told of' % (tasks - set(tids)))
    for t in told['threads']:
        names = [f['name'].split('#')[-1] for f in t['frames']]
        expect(names, t['name'] + ' has no frame')
        for f in t['frames']:
            expect(f['func'] and (f['line'] > 0 or f.get('inner') or told['runtime'] == 'ruby'),
                   '%s: %s' % (t['name'], f))
        if t['name'] in ('sleep', 'lock', 'queue', 'pipe') or told['runtime'] == 'php':
            expect(names.count('descend') == 7, '%s: %s' % (t['name'], names))
    main = [t for t in told['threads'] if t['name'] == 'main'][0]
    expect(main['tid'] == pid, 'the main thread has another id')
    expect(main['frames'][-1]['name'] in judge.ROOTS, 'main ends in %s' % main['frames'][-1])


def line_of(program, text):
    with open(HERE + program, encoding='utf-8') as f:
        return [n for n, line in enumerate(f, 1) if line.strip().startswith(text)][0]


def stack(program, *frames):
    """Frames as "name:text that its line begins with"; text missing: of the interpreter's own."""
    made = []
    for frame in frames:
        name, _, text = frame.partition('@')
        made.append({'func': name, 'file': '/x/' + program if text else None,
                     'line': line_of(program, text) if text else 0})
    return {'frames': made}


def check_judge():
    py = ('round_of_calls@feed(3)', 'work@round_of_calls(3)', 'start@work(until)',
          '<module>@start(sys.argv')
    php = ('round_of_calls@callbacks()', 'work@round_of_calls(3)', 'start@work(microtime',
           '{main}@start($argv')
    rb = ('round_of_calls@iterators', 'work@round_of_calls(3)', 'start@work(til)', '<main>@start(ARGV)')
    cases = [
        ('legal', 'churn.py', ('feed@g.send(i)',) + py),
        ('line', 'churn.py', ('leaf@return n + 1', 'totals@total += yield', 'feed@g.send(i)') + py),
        ('legal', 'churn.py', ('totals@total += yield', 'feed@g.send(i)') + py),
        ('line', 'churn.py', ('totals@total += yield', 'feed@def feed') + py),
        ('edge', 'churn.py', ('totals@total += yield',) + py),
        ('place', 'churn.py', ('feed@return n + 1',) + py),
        ('place', 'churn.py', ('nobody@return n + 1',) + py),
        ('root', 'churn.py', ('feed@g.send(i)',) + py[:-1]),
        ('root', 'churn.py', ('totals@total += yield',)),
        ('legal', 'churn.php', ('negated@return -leaf', 'array_map', "callbacks@array_map('negated'") + php),
        ('legal', 'churn.php', ('Point::distance@return $this->distance', 'array_map',
                                "callbacks@array_map([new Point") + php),
        ('line', 'churn.php', ('negated@return -leaf', 'array_map', 'callbacks@usort($items') + php),
        ('edge', 'churn.php', ('negated@return -leaf', 'usort', "callbacks@array_map('negated'") + php),
        ('legal', 'churn.php', ('negated@return -leaf', "callbacks@array_map('negated'") + php),
        ('place', 'churn.php', ('exec', "callbacks@array_map('negated'") + php),
        ('legal', 'churn.php', ('{closure:/x/churn.php:12}@array_filter', 'array_filter',
                                'callbacks@array_filter') + php),
        ('legal', 'churn.rb', ('leaf@n + 1', 'block in iterators@3.times', 'times',
                               'iterators@3.times') + rb),
        ('legal', 'churn.rb', ("Object#leaf@n + 1", 'block in Object#iterators@3.times',
                               'Object#iterators@3.times') + rb),
        ('line', 'churn.rb', ('leaf@n + 1', 'block in iterators@3.times', 'iterators@3.times') +
         ('round_of_calls@blocks(n)',) + rb[1:]),
        ('edge', 'churn.rb', ('odd@n != 0', 'block in iterators@3.times', 'iterators@3.times') + rb),
        ('empty', 'churn.rb', ()),
    ]
    for want, program, frames in cases:
        judged = judge.Judge(judge.Graph(HERE + program))
        found = judged.verdict(stack(program, *frames))
        expect(found == want, '%s is judged %s: %s' % (frames, found, want))
    cut = stack('churn.py', *(('feed@g.send(i)',) + py[:-1]))
    cut['cut'] = True
    judged = judge.Judge(judge.Graph(HERE + 'churn.py'))
    expect(judged.verdict(cut) == 'cut', 'a cut that says so needs no root')
    foreign = stack('churn.py', *(('feed@g.send(i)',) + py))
    foreign['frames'][0]['file'] = '/usr/lib/python3/json/__init__.py'
    expect(judged.verdict(foreign) == 'elsewhere', 'a frame of another file is elsewhere')


if sys.argv[1] == 'park':
    check_park(*sys.argv[2:4])
else:
    check_judge()
sys.exit(wrong)
