#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What profiling costs a host: fixed work without a profiler and beside each of several.

BENCH=cost tests/bench.sh runs it (root, BPF). BLOCKS rounds of measurements; in each block every
condition runs once and the bare work twice, in random order, so that whatever else the machine
does meets all of them alike. A condition's slowdown is its time over the mean of its own block's
bare runs; the table has the median of these ratios and its 95 % confidence bounds (order
statistics, no assumption on the distribution).

The work takes a second or two at a time, of which the median tenth counts, and runs with real-time
priority, on every CPU, so that nothing else gets in between: its time has in it what a profiler does
inside it, that is interrupts, BPF programs and cold caches. What the profiler's own threads use is measured beside it and has a
column of its own: on a host that is full, the sum of the slowdown and of own / CPUs is what is lost.
"""
import math
import os
import random
import signal
import statistics
import subprocess
import sys
import time

B = os.environ.get('B', 'build')
BLOCKS = int(os.environ.get('BLOCKS', '15'))
ONLY = os.environ.get('CONDITIONS', '').split(';') if os.environ.get('CONDITIONS') else None
WORKS = os.environ.get('WORKS', 'compute,pingpong,pingpong2').split(',')
PREFIX = os.environ.get('PREFIX', 'chrt -f 1').split()
TMP = sys.argv[1]
NCPU = os.cpu_count()
SETTLE = 2.0


def cpu_seconds(pid):
    """CPU time of all threads of a process, to the nanosecond."""
    total = 0
    try:
        for tid in os.listdir(f'/proc/{pid}/task'):
            with open(f'/proc/{pid}/task/{tid}/schedstat') as f:
                total += int(f.read().split()[0])
    except OSError:
        pass
    return total / 1e9


class Bare:
    pid = None

    def start(self):
        pass

    def stop(self):
        pass


class Ours(Bare):
    def __init__(self, **keys):
        self.keys = keys

    def start(self):
        conf = f'{TMP}/c.ini'
        lines = ['[ebpf_profiler]', 'enabled = true', 'cpu_budget = 100', 'upload_interval_s = 60']
        lines += [f'{k} = {v}' for k, v in self.keys.items()]
        with open(conf, 'w') as f:
            f.write('\n'.join(lines + ['[store]', f'path = {TMP}/store', '']))
        self.log = open(f'{TMP}/log', 'w')
        self.p = subprocess.Popen([f'{B}/ebpfprofiler', 'run', '-c', conf], stderr=self.log)
        self.pid = self.p.pid
        for _ in range(100):
            if 'sampling at' in open(f'{TMP}/log').read():
                break
            if self.p.poll() is not None:
                sys.exit('the daemon did not start: ' + open(f'{TMP}/log').read())
            time.sleep(0.1)
        time.sleep(SETTLE)

    def stop(self):
        self.p.terminate()
        self.p.wait()
        self.log.close()

    def account(self):
        """The daemon's own last word on what it cost."""
        for line in reversed(open(f'{TMP}/log').read().split('\n')):
            if 'cost ' in line and 'window of' in line:
                return line[line.index('cost '):].split(';')[0]
        return '?'


class Tool(Bare):
    def __init__(self, *argv):
        self.argv = argv

    def start(self):
        self.p = subprocess.Popen(self.argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.pid = self.p.pid
        time.sleep(SETTLE)

    def stop(self):
        self.p.send_signal(signal.SIGINT)
        try:
            self.p.wait(60)
        except subprocess.TimeoutExpired:
            self.p.kill()
            self.p.wait()


def perf(hz, *graph):
    return Tool('perf', 'record', '-q', '-a', '-e', 'cpu-clock', '-F', str(hz), *graph, '-o', f'{TMP}/perf.data')


def find_offcputime():
    for name in ('/usr/sbin/offcputime', '/usr/sbin/offcputime-bpfcc'):
        if os.access(name, os.X_OK):
            return name
    return None


def conditions():
    off = {'offcpu': 'false'}
    c = {
        'bare': Bare(),
        '19 Hz, tables': Ours(sample_hz=19, **off),
        '19 Hz, frame pointers': Ours(sample_hz=19, dwarf_unwind='false', **off),
        '99 Hz, tables': Ours(sample_hz=99, **off),
        '19 Hz, tables, off CPU': Ours(sample_hz=19, offcpu='true'),
        '19 Hz, tables, off CPU by tables': Ours(sample_hz=19, offcpu='true', offcpu_dwarf='true'),
        '99 Hz, tables, off CPU': Ours(sample_hz=99, offcpu='true'),
        'perf record -g, 19 Hz': perf(19, '-g'),
        'perf record -g, 99 Hz': perf(99, '-g'),
        'perf record --call-graph dwarf, 99 Hz': perf(99, '--call-graph', 'dwarf'),
    }
    tool = find_offcputime()
    if tool:
        c['bcc offcputime, 1 ms and more'] = Tool(tool, '-m', '1000')
    else:
        print('bcc offcputime is not here: install libbpf-tools (needs BTF)')
    return {k: v for k, v in c.items() if not ONLY or k == 'bare' or k in ONLY}


class Compute:
    title = f'computing, one thread on each of {NCPU} CPUs'
    rounds, pieces = 1600, 15

    def start(self, cpu, rounds, pieces=1):
        return subprocess.Popen(PREFIX + [f'{TMP}/work', str(rounds), str(cpu), str(pieces)], stdout=subprocess.PIPE)

    def run(self):
        ps = [self.start(cpu, self.rounds, self.pieces) for cpu in range(NCPU)]
        out = [list(map(int, p.communicate()[0].split())) for p in ps]
        return statistics.mean(o[0] for o in out), sum(o[1] for o in out), 0


class PingPong(Compute):
    """CPUs that do not switch compute: what a neighbour does is the same in all runs."""

    def __init__(self, title, rounds, a, b):
        self.title, self.rounds, self.cpus = title, rounds, (a, b)

    def run(self):
        others = [self.start(cpu, 1 << 30) for cpu in range(NCPU) if cpu not in self.cpus]
        out = subprocess.check_output(PREFIX + [f'{TMP}/pingpong', str(self.rounds)] + [str(c) for c in self.cpus])
        for p in others:
            p.kill()
            p.communicate()
        wall, cpu, switches = map(int, out.split())
        return wall, cpu, switches


def bounds(values):
    """Median and its 95 % confidence bounds by order statistics."""
    v, n = sorted(values), len(values)
    k, p = 0, 0.0
    while True:
        p += math.comb(n, k) / 2 ** n
        if p > 0.025:
            break
        k += 1
    k = max(k - 1, 0)
    return statistics.median(v), v[k], v[n - 1 - k]


def measure(work, c):
    results = {name: [] for name in c}
    for block in range(BLOCKS):
        order = list(c) + ['bare']
        random.shuffle(order)
        bare, runs = [], {}
        for name in order:
            c[name].start()
            before, t0 = cpu_seconds(c[name].pid), time.monotonic()
            wall, cpu, switches = work.run()
            time.sleep(0.3)
            own = (cpu_seconds(c[name].pid) - before) / (time.monotonic() - t0) if c[name].pid else 0
            c[name].stop()
            if name == 'bare':
                bare.append((wall, cpu, switches))
            else:
                runs[name] = (wall, cpu, own)
        base = [statistics.mean(b[i] for b in bare) for i in range(3)]
        results['bare'].append((base[0], base[1], base[2], bare[0][1] / bare[1][1], bare[0][0] / bare[1][0]))
        for name, (wall, cpu, own) in runs.items():
            results[name].append((wall / base[0], cpu / base[1], own))
        print(f'block {block + 1} of {BLOCKS}', file=sys.stderr)
    return results


def show(work, results):
    base = results['bare']
    wall = statistics.median(b[0] for b in base)
    print(f'\n### {work.title}\n')
    line = f'bare: {wall / 1e9:.2f} s, {statistics.median(b[1] for b in base) / 1e9:.2f} s of CPU time'
    switches = statistics.median(b[2] for b in base)
    if switches:
        line += f', {switches / wall * 1e9:,.0f} switches a second'
    noise = [bounds([b[i] for b in base]) for i in (3, 4)]
    print(line)
    print('{:<40} {:>26} {:>26} {:>10}'.format('', 'CPU time, % more', 'wall time, % more', 'own, % CPU'))

    def row(name, cpu, wall, own):
        def f(b):
            return '{:+.2f} ({:+.2f} .. {:+.2f})'.format(*(100 * (x - 1) for x in b))
        print(f'{name:<40} {f(cpu):>26} {f(wall):>26} {own:>10}')
    row('bare beside bare', noise[0], noise[1], '')
    for name, r in results.items():
        if name != 'bare' and r:
            row(name, bounds([x[1] for x in r]), bounds([x[0] for x in r]),
                f'{100 * statistics.median(x[2] for x in r):.2f}')


def account(work, c):
    """One window of 60 s of the daemon beside the work, by its own account."""
    print('\nby the daemon\'s own account, a window of 60 s and its end:')
    for name in ('19 Hz, tables', '19 Hz, tables, off CPU'):
        if name not in c:
            continue
        c[name].start()
        end = time.monotonic() + 61 - SETTLE
        while time.monotonic() < end:
            work.run()
            time.sleep(0.5) # others want to live
        time.sleep(2)
        print(f'  {name}: {c[name].account()}')
        c[name].stop()


def main():
    works = {
        'compute': Compute(),
        'pingpong': PingPong('switching, a pipe ping-pong on one CPU', 60000, 0, 0),
        'pingpong2': PingPong('switching, the same across two CPUs', 20000, 0, 1 % NCPU),
    }
    c = conditions()
    for name in WORKS:
        results = measure(works[name], c)
        show(works[name], results)
        if os.environ.get('ACCOUNT', '1') == '1':
            account(works[name], c)
        sys.stdout.flush()


main()
