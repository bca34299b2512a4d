# SPDX-License-Identifier: Apache-2.0
"""Tests: Python, then native code, then Python again, in turn.

    merge.py FOLDER             runs: FOLDER has ours.so (merge_ext.c); prints "ready"
    merge.py judge PROFILE      each sample's frames have to stand where the program has them; prints
                                figures, exit code 1 when less than 99 of 100 do
"""
import os
import sys


def busy(ms):
    import time
    until = time.monotonic() + ms / 1000
    n = 0
    while time.monotonic() < until:
        for i in range(200):
            n += i
    return n


def called_by_extension():
    return busy(5)


def through_extension(ours):
    ours.call(called_by_extension)


def through_native_work(ours):
    ours.spin(5)


def called_by_ctypes(n):
    busy(5)
    return n


def through_ctypes(lib, callback):
    lib.each(callback, 1)


def key(n):
    busy(1)
    return -n


def through_sort():
    sorted([3, 1, 2], key=key)


def run(folder):
    import ctypes
    sys.path.insert(0, folder)
    import ours
    lib = ctypes.CDLL(os.path.join(folder, 'ours.so'))
    callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(called_by_ctypes)
    print('ready', os.getpid(), flush=True)
    while True:
        through_extension(ours)
        through_native_work(ours)
        through_ctypes(lib, callback)
        through_sort()


# What has to stand there, leaf first: functions of this program; "native": at least one frame that is
# none; other names: native functions.
ORDERS = {
    'through_extension': ['busy', 'called_by_extension', 'native', 'ours_inner', 'ours_outer', 'call',
                          'through_extension', 'run', '<module>'],
    'through_native_work': ['ours_compute', 'spin', 'through_native_work', 'run', '<module>'],
    'through_ctypes': ['busy', 'called_by_ctypes', 'native', 'each_inner', 'each', 'native',
                       'through_ctypes', 'run', '<module>'],
    'through_sort': ['busy', 'key', 'native', 'through_sort', 'run', '<module>'],
}


def wrong(stack, order):
    """None, or what is not where it should be. stack: (name, is of this program) leaf first."""
    i = 0
    names = [name for name, ours in stack if ours]
    if names != [n for n in order if n in names] or len(names) != len(set(names)):
        return 'program'
    for want in order:
        if want == 'native':
            if i >= len(stack) or stack[i][1]:
                return 'native'
            continue
        at = [k for k in range(i, len(stack)) if stack[k][0] == want]
        if not at:
            return want
        i = at[0] + 1
    return None


def judge(path):
    from stacks import Stacks
    counts, bad, first = {}, {}, {}
    loops = whole = early = 0
    for count, frames, _ in Stacks(path).samples:
        stack = [(f.func.split(' ')[0], os.path.basename(f.file) == 'merge.py') for f in frames]
        # Only those that are at work within: not on the way there or back.
        kind = [name for name, ours in stack if ours and name in ORDERS]
        if not kind or stack[0][0] != ORDERS[kind[0]][0]:
            continue
        whole += count
        loops += count * any(name.startswith('_PyEval_EvalFrame') for name, _ in stack)
        counts[kind[0]] = counts.get(kind[0], 0) + count
        what = wrong(stack, ORDERS[kind[0]])
        # The first samples of a process come before its files' tables do: their walk is cut.
        if what and all(ours for _, ours in stack[1:]):
            early += count
        elif what:
            bad[kind[0]] = bad.get(kind[0], 0) + count
            first.setdefault(kind[0], (what, stack))
    print(counts, 'not right:', bad, 'with the loop:', loops, 'before tables:', early)
    for kind, (what, stack) in first.items():
        print(kind, 'lacks', what, ':', ' < '.join(name + ('*' if ours else '') for name, ours in stack))
    return 0 if set(counts) == set(ORDERS) and sum(bad.values()) * 100 <= whole and not loops and \
        early * 20 <= whole else 1


if __name__ == '__main__':
    if sys.argv[1] == 'judge':
        sys.exit(judge(sys.argv[2]))
    run(sys.argv[1])
