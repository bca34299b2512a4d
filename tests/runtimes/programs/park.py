# SPDX-License-Identifier: Apache-2.0
# Tests, runtimes: threads that wait, each at a known depth under another kind of call, and the
# interpreter's own account of them. Runs on CPython 3.6 and up.
#
#   park.py [-d DEPTH] [-n COPIES] [KIND...]     default: 10 calls deep, once each kind there is
#
# When all wait it prints one line and stays for 600 s:
#   {"runtime", "version", "pid", "threads": [{"name", "tid", "frames": [{"func": qualified name
#   where the release has one, "name", "file", "line"}, ... leaf first]}, ...]}
# That is every thread of the process; the main thread waits too. tid is that of the pid namespace
# whose /proc is mounted. Kind "interpreter" (3.8 and up) enters a second interpreter, "interpreters" two
# more, one from the other; the first frames are the innermost one's, the last ones lead to the call that
# entered it. Kind "isolated" (3.12) has a lock of its own; nobody can look across that, so it goes alone, and only its
# thread is told of. "spin" keeps one line busy. Neither of the two is in the default.
import argparse
import asyncio
import functools
import importlib.abc
import importlib.util
import json
import os
import queue
import select
import signal
import sys
import threading
import time

KINDS = {}
LONG = 'a_name_of_' + 'many_' * 60 + 'letters'
DEPTH = 10


def kind(f):
    KINDS[f.__name__] = f
    return f


# --- how a thread waits -------------------------------------------------------------------------

def forever():
    time.sleep(1000)


def descend(depth, last):
    if depth > 1:
        return descend(depth - 1, last)
    return last()


@kind
def sleep():
    descend(DEPTH, lambda: time.sleep(1000))


@kind
def lock():
    held = threading.Lock()
    held.acquire()
    descend(DEPTH, held.acquire)


@kind
def condition():
    c = threading.Condition()
    with c:
        descend(DEPTH, c.wait)


@kind
def event():
    descend(DEPTH, threading.Event().wait)


@kind
def waiting_queue():
    descend(DEPTH, queue.Queue().get)


@kind
def pipe():
    fd = os.pipe()[0]
    descend(DEPTH, lambda: os.read(fd, 1))


@kind
def poll():
    descend(DEPTH, select.poll().poll)


@kind
def spin():
    while True: pass


@kind
def deep():
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, 900))
    descend(300, forever)


# --- under which calls --------------------------------------------------------------------------

@kind
def nested():
    def outer():
        def middle():
            def inner():
                forever()
            inner()
        middle()
    outer()


def yielding(depth):
    if depth:
        yield from yielding(depth - 1)
    else:
        yield forever()


@kind
def generator():
    for _ in yielding(DEPTH):
        pass


@kind
def generator_sent_to():
    def echo():
        while True:
            if (yield) == 2:
                forever()
    g = echo()
    next(g)
    g.send(1)
    g.send(2)


@kind
def generator_expression():
    sum(forever() for _ in range(3))


@kind
def comprehension():
    [[forever() for _ in range(3)] for _ in range(2)]


async def awaited(depth):
    if depth:
        return await awaited(depth - 1)
    async for _ in ticks():
        pass


async def ticks():
    yield 1
    async with Manager():
        yield 2


class Manager:
    async def __aenter__(self):
        forever()

    async def __aexit__(self, *args):
        pass


@kind
def coroutine():
    awaited(DEPTH).send(None)


@kind
def event_loop():
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    loop.run_until_complete(awaited(3))


@kind
def event_loop_idle():
    loop = asyncio.new_event_loop()
    loop.run_forever()


def decorated(f):
    @functools.wraps(f)
    def wrapper(*args, **kwargs):
        return f(*args, **kwargs)
    return wrapper


@decorated
@decorated
def twice_decorated():
    forever()


@kind
def decorator():
    twice_decorated()


@kind
def partial():
    functools.partial(descend, DEPTH)(last=forever)


def key(x):
    if x == 2:
        forever()
    return x


@kind
def sort_key():
    sorted([1, 2, 3], key=key)


@kind
def sort_compare():
    [1, 2, 3].sort(key=functools.cmp_to_key(lambda a, b: key(a)))


@kind
def mapping():
    list(map(lambda x: list(map(key, [x])), [1, 2]))


@kind
def reducing():
    functools.reduce(lambda a, b: key(b), [1, 2, 3])


class Point:
    def __init__(self, x=0):
        if x == 1:
            forever()

    @property
    def distance(self):
        forever()

    @classmethod
    def of_class(cls):
        cls(1)

    @staticmethod
    def of_none():
        Point.of_class()

    def __getattr__(self, name):
        if name == 'nothing':
            self.distance
        raise AttributeError(name)

    def __call__(self):
        return self.nothing

    def __add__(self, other):
        return self()

    def __enter__(self):
        return self + self

    def __exit__(self, *args):
        pass

    def __len__(self):
        with self:
            pass

    def __eq__(self, other):
        return len(self)

    def __del__(self):
        if getattr(self, 'last', False):
            forever()

    def __hash__(self):
        return 1

    class Within:
        def method(self):
            Point.of_none()


@kind
def methods():
    Point.Within().method()


@kind
def magic_methods():
    p, q = Point(), Point()
    {p: 1}[q]


@kind
def finalizer():
    p = Point()
    p.last = True
    del p


@kind
def exception_handler():
    try:
        raise KeyError
    except KeyError:
        try:
            raise ValueError
        finally:
            forever()


class Meta(type):
    def __call__(cls):
        forever()


@kind
def metaclass():
    class Made(metaclass=Meta):
        pass
    Made()


@kind
def class_body():
    class Body:
        class Inner:
            forever()


@kind
def evaluated():
    exec("def f():\n    eval('forever()')\n\n\nf()", {'forever': forever})


def named(name, file):
    scope = {'forever': forever}
    exec(compile('\n' * 99999 + 'def %s():\n    forever()' % name, file, 'exec'), scope)
    scope[name]()


@kind
def name_latin1():
    named('gr\u00f6\u00dfe', 'd\u00e4tei.py')


@kind
def name_cyrillic():
    named('\u0444\u0443\u043d\u043a\u0446\u0438\u044f', '\u0444\u0430\u0439\u043b.py')


@kind
def name_astral():
    named('\U00020000', '/tmp/\U0001f600.py')


@kind
def name_long():
    named(LONG, '/' + 'folder/' * 80 + 'file.py')


@kind
def import_time():
    class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
        def find_spec(self, name, path, target=None):
            if name == 'never_there':
                return importlib.util.spec_from_loader(name, self)
            return None

        def create_module(self, spec):
            return None

        def exec_module(self, module):
            forever()
    sys.meta_path.append(Finder())
    import never_there
    return never_there


@kind
def foreign_callback():
    import ctypes
    compare_type = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)

    def compare(a, b):
        forever()
        return 0
    ctypes.CDLL(None).qsort((ctypes.c_int * 2)(2, 1), 2, 4, compare_type(compare))


@kind
def trace_function():
    def trace(frame, event, arg):
        if frame.f_code.co_name == 'key':
            forever()
    sys.settrace(trace)
    key(1)


# What a further interpreter runs. NUMBER of pipe, WAY to make one more and run something in it.
TELLING = r'''
import json, os, sys, time
def told(frame):
    frames = []
    while frame:
        code = frame.f_code
        frames.append({'func': getattr(code, 'co_qualname', code.co_name), 'name': code.co_name,
                       'file': code.co_filename, 'line': frame.f_lineno})
        frame = frame.f_back
    os.write(NUMBER, json.dumps(frames).encode() + b'\n')
'''
INNERMOST = TELLING + r'''
def inner(depth):
    if depth:
        return inner(depth - 1)
    told(sys._getframe()); time.sleep(1000)
inner(3)
'''
MIDDLE = TELLING + r'''
WAY
def middle(depth):
    if depth:
        return middle(depth - 1)
    told(sys._getframe()); run(made, INNERMOST)
middle(2)
'''


def way(shared):
    """Code that makes one and leaves it in "made", and what runs something in it in "run"."""
    if sys.version_info >= (3, 13):
        return 'from _interpreters import create, exec as run\nmade = create(%r)\n' % (
            'legacy' if shared else 'isolated')
    return 'from _xxsubinterpreters import create, run_string as run\nmade = create(%s)\n' % (
        'isolated=%s' % (not shared) if sys.version_info >= (3, 10) else '')


# What a thread told of its further interpreters, how many they are, and the way to them; by its native id.
within, depths, before = {}, {}, {}


def enter(code, shared):
    out, fd = os.pipe()
    within[thread_id()] = os.fdopen(out)
    depths[thread_id()] = 2 if code is MIDDLE else 1
    code = code.replace('WAY', way(shared)).replace('INNERMOST', repr(INNERMOST)).replace('NUMBER', str(fd))
    scope = {}
    exec(way(shared), scope)
    made, run = scope['made'], scope['run']
    before[thread_id()] = account(sys._getframe()); run(made, code)


@kind
def interpreter():
    enter(INNERMOST, True)


@kind
def interpreters():
    enter(MIDDLE, True)


@kind
def isolated():
    enter(INNERMOST, False)


if sys.version_info < (3, 12):
    del KINDS['isolated']
if sys.version_info < (3, 8):
    del KINDS['interpreter'], KINDS['interpreters']


# --- the account --------------------------------------------------------------------------------

def thread_id():
    return int(os.readlink('/proc/thread-self').split('/')[-1])


def account(frame):
    frames = []
    while frame:
        code = frame.f_code
        frames.append({'func': getattr(code, 'co_qualname', code.co_name), 'name': code.co_name,
                       'file': code.co_filename, 'line': frame.f_lineno})
        frame = frame.f_back
    return frames


class Parked(threading.Thread):
    def __init__(self, name):
        super().__init__(name=name, daemon=True)
        self.tid = 0

    def run(self):
        self.tid = thread_id()
        KINDS[self.name]()


def asleep(tid):
    with open('/proc/self/task/%d/stat' % tid) as f:
        return f.read().rsplit(')', 1)[1].split()[0] == 'S'


def accounts(threads):
    """Of all threads, when all sleep before and after and nothing differs between two looks."""
    for _ in range(600):
        looks = []
        for _ in range(2):
            time.sleep(0.1)
            if any(name == 'isolated' for _, name, _ in threads):
                looks.append([[]])
                continue
            frames = sys._current_frames()
            looks.append([account(frames[ident]) for ident, _, _ in threads])
            del frames
        if looks[0] == looks[1] and all(
                name == 'spin' or tid() and asleep(tid()) for _, name, tid in threads):
            return looks[0]
    sys.exit('park.py: the threads do not come to rest')


def tell(threads):
    told = []
    for (_, name, tid), frames in zip(threads, accounts(threads)):
        row = {'name': name, 'tid': tid(), 'frames': frames}
        if tid() in within:
            row['frames'] = before[tid()]
            for _ in range(depths[tid()]):
                row['frames'] = json.loads(within[tid()].readline()) + row['frames']
        told.append(row)
    print(json.dumps({'runtime': 'cpython', 'version': sys.version.split()[0], 'pid': os.getpid(),
                      'threads': told}), flush=True)


def stay():
    signal.pause()


def main():
    global DEPTH
    parser = argparse.ArgumentParser()
    parser.add_argument('-d', type=int, default=DEPTH)
    parser.add_argument('-n', type=int, default=1)
    parser.add_argument('kinds', nargs='*', metavar='KIND')
    options = parser.parse_args()
    DEPTH = options.d
    signal.alarm(600)
    threads = []
    for name in (options.kinds or [k for k in KINDS if k not in ('isolated', 'spin')]) * options.n:
        thread = Parked(name)
        thread.start()
        threads.append((thread.ident, name, lambda thread=thread: thread.tid))
    tid = thread_id()
    threads.append((threading.get_ident(), 'main', lambda: tid))
    threading.Thread(target=tell, args=(threads,), daemon=True).start()
    stay()


main()
