# SPDX-License-Identifier: Apache-2.0
"""Part of bench.sh: what one stack of an interpreter's thread costs. bench_stacks.py TMP

Running threads: `record` beside a program that spins at a known depth; BPF time, the recorder's CPU time
and system calls, each by the samples of that program. Waiting ones: tests/ticks.c, which looks at
them as the daemon does; CPU time of all its threads and system calls. DEPTHS, THREADS, RATES,
SECONDS_EACH as in the environment.
"""
import ctypes
import json
import os
import re
import resource
import subprocess
import sys
import time

TMP = sys.argv[1]
# The kernel times BPF programs as long as this is held (BPF_ENABLE_STATS, kernel 5.8).
STATS = ctypes.CDLL(None).syscall({'aarch64': 280}.get(os.uname().machine, 321), 32,
                                  ctypes.create_string_buffer(4), 4)
B = os.environ.get('B', 'build')
SECONDS = int(os.environ.get('SECONDS_EACH', '5'))
DEPTHS = [int(n) for n in os.environ.get('DEPTHS', '10 40 100').split()]
THREADS = [int(n) for n in os.environ.get('THREADS', '1 10 100').split()]
RATES = [int(n) for n in os.environ.get('RATES', '99 999').split()]
ONE, OTHER = 0, 1 if os.cpu_count() > 1 else 0

# Of the same kind of program, 34 frames deep, on such a machine: CPU us a sample at 99 and at 999 Hz,
# calls of process_vm_readv a sample.
PEERS = {'cpython': ('austin 3.7.0, CPython 3.11', {99: 230, 999: 160}, 35.6),
         'php': ('phpspy, PHP 8.2', {99: 870, 999: 540}, 207)}
PEER_DEPTH = 34

PHP = '''<?php
function down($n) { if ($n > 1) return down($n - 1); for (;;) ; }
echo "ready\\n";
down((int)$argv[1] - 1);
'''


def find(name, fallback=None):
    listed = subprocess.run(['sh', 'tests/runtimes/get.sh', 'list'], stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL, universal_newlines=True).stdout
    for line in listed.split('\n'):
        if line.startswith(name + ' '):
            return line.split(' ', 1)[1]
    return fallback


class Program:
    """Something that spins or waits, ready when it says so."""

    def __init__(self, *argv, **env):
        self.p = subprocess.Popen(['taskset', '-c', str(ONE)] + list(argv), stdout=subprocess.PIPE,
                                  env=dict(os.environ, **env))
        self.pid = self.p.pid
        if b'ready' not in self.p.stdout.readline():
            sys.exit('%s does not start' % argv[0])

    def end(self):
        self.p.kill()
        self.p.wait()


def cpu(pid):
    """Seconds, of all threads."""
    ns = 0
    for tid in os.listdir('/proc/%d/task' % pid):
        try:
            ns += int(open('/proc/%d/task/%s/schedstat' % (pid, tid)).read().split()[0])
        except OSError:
            pass
    return ns / 1e9


def bpf_seconds():
    """Of our sampling program, the youngest of its name."""
    text = subprocess.run(['bpftool', 'prog', 'list'], stdout=subprocess.PIPE,
                          universal_newlines=True).stdout
    found = re.findall(r'name sample_cpu .*?run_time_ns (\d+)', text)
    return int(found[-1]) / 1e9 if found else 0


def calls(pid, seconds):
    """System calls of all its threads."""
    text = subprocess.run(['perf', 'stat', '-x', ';', '-e', 'raw_syscalls:sys_enter', '-p', str(pid),
                           '--', 'sleep', str(seconds)], stderr=subprocess.PIPE,
                          universal_newlines=True).stderr
    found = re.search(r'^(\d+);', text, re.M)
    return int(found.group(1)) if found else float('nan')


def running(program, hz):
    """(BPF us, recorder's us, its calls) a sample; ms at the end."""
    argv = ['taskset', '-c', str(OTHER), B + '/ebpfprofiler', 'record', '-p', str(program.pid), '-F',
            str(hz), '-d', str(SECONDS + 5), '--force', '-o', TMP + '/stacks.pb.gz']
    recorder = subprocess.Popen(argv, stderr=subprocess.DEVNULL)
    time.sleep(3)
    before = bpf_seconds(), cpu(recorder.pid), cpu(program.pid)
    n = calls(recorder.pid, SECONDS)
    after = bpf_seconds(), cpu(recorder.pid), cpu(program.pid)
    whole = resource.getrusage(resource.RUSAGE_CHILDREN)
    if recorder.wait():
        sys.exit('record failed')
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    samples = (after[2] - before[2]) * hz
    end = ended.ru_utime + ended.ru_stime - whole.ru_utime - whole.ru_stime - after[1]
    return ((after[0] - before[0]) * 1e6 / samples, (after[1] - before[1]) * 1e6 / samples,
            n / samples, end * 1e3)


def ticks(program, hz=50):
    out = subprocess.run(['taskset', '-c', str(OTHER), B + '/tests/ticks', str(program.pid), str(hz),
                          str(SECONDS)], stdout=subprocess.PIPE, universal_newlines=True).stdout
    return json.loads(out.strip().split('\n')[-1])


WAKE = 'tests/runtimes/programs/wake.py'


def show_running(title, hz, threads, depth, figures, peer=None):
    bpf, own, n, end = figures
    line = '%-24s %5d %8d %6d %10.1f %10.1f %10.1f %8.2f %8.0f' % (
        title, hz, threads, depth, bpf, own, bpf + own, n, end)
    if peer:
        name, us, theirs = peer
        line += '   %s: %d us, %.1f calls; ours 1/%.0f' % (name, us[hz], theirs,
                                                          us[hz] / (bpf + own))
    print(line, flush=True)


def bench_running(python):
    print('\n### Running threads: us and system calls a stack\n')
    print('%-24s %5s %8s %6s %10s %10s %10s %8s %8s' % (
        '', 'Hz', 'threads', 'depth', 'BPF', 'recorder', 'both', 'calls', 'end, ms'))
    for threads in THREADS:
        for depth in DEPTHS:
            p = Program(python, WAKE, str(depth), '0', '0', str(threads))
            show_running('CPython 3.13', 999, threads, depth, running(p, 999))
            p.end()
    rows = [('cpython', 'CPython 3.11', find('cpython-3.11'), [WAKE, str(PEER_DEPTH), '0', '0', '1'])]
    with open(TMP + '/down.php', 'w') as f:
        f.write(PHP)
    rows.append(('php', 'PHP 8.2', find('php-8.2'), ['-n', TMP + '/down.php', str(PEER_DEPTH)]))
    for key, title, command, argv in rows:
        if not command:
            print('%s is not here: sh tests/runtimes/get.sh' % title)
            continue
        for hz in RATES:
            p = Program(command, *argv)
            show_running(title, hz, 1, PEER_DEPTH, running(p, hz), PEERS[key])
            p.end()


def bench_waiting(python):
    print('\n### Waiting threads: a tick, and a stack of it\n')
    print('%-24s %8s %6s %10s %10s %12s %12s %10s' % ('CPython 3.13, since the', 'threads', 'depth', 'us/tick',
                                                      'calls/tick', 'us/stack', 'calls/stack', 'walked'))
    for moved in (False, True):
        for threads in THREADS:
            for depth in DEPTHS:
                counts = ['0', str(threads)] if moved else [str(threads), '0']
                p = Program(python, WAKE, str(depth), *counts, '0', WAKE_DEPTH='fixed')
                t = ticks(p)
                p.end()
                n = t['threads'] or 1
                print('%-24s %8d %6d %10.0f %10.1f %12.2f %12.3f %9.0f%%' % (
                    'last tick they ran' if moved else 'last tick none ran', threads, depth,
                    t['us_median'], t['calls'], t['us_median'] / n, t['calls'] / n,
                    100.0 * t['walked'] / max(t['walked'] + t['same'] + t['moved'], 1)), flush=True)


def main():
    python = find('cpython-3.13', find('cpython-3.11', sys.executable))
    bench_running(python)
    bench_waiting(python)


main()
