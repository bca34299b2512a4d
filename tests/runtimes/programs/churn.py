# SPDX-License-Identifier: Apache-2.0
# Tests, runtimes: calls along a known graph at full speed, for judge.py. Runs on CPython 3.6 and up.
#
#   churn.py [SECONDS [THREADS]]   prints "ready PID" when it runs; 600 s, the main thread alone
#   churn.py again ARG...          the same in a second interpreter of the main thread (3.8 and up)
#   churn.py trace                 once, printing the stack at each step as judge.py reads them, then
#                                  some of threads at full speed: the interpreter's own word that the
#                                  marks below are right
#
# Marks (judge.py reads them out of this file): "#= f" from here on the lines are f's ("f|g": both);
# "#> g" on this line f calls g; "#> g, h" either; "#> h -> g" h calls g here; "#> !c !d g" by way of c
# and d, functions of the interpreter's own. "#~ root" names the frames of other files below the first
# function of a thread, leaf first; "#~ base f" says that f may be the outermost function; "#~ inner"
# lists functions of the interpreter's own that may end a stack anywhere.
#= <module>
#~ root run _bootstrap_inner _bootstrap
import functools
import json
import os
import sys
import threading
import time

ITEMS = [3, 1, 4, 1, 5, 9, 2, 6]


def leaf(n):  #= leaf
    return n + 1


def recurse(n):  #= recurse
    if n:
        return recurse(n - 1) + 1  #> recurse
    return leaf(n)  #> leaf


def even(n):  #= even
    return n == 0 or odd(n - 1)  #> odd


def odd(n):  #= odd
    return n != 0 and even(n - 1)  #> even


def counted(n):  #= counted
    for i in range(n):
        yield leaf(i)  #> leaf


def twice(n):  #= twice
    yield from counted(n)  #> counted
    yield from counted(n)  #> counted


def drain(n):  #= drain
    for x in twice(n):  #> twice
        leaf(x)  #> leaf


def totals():  #= totals
    total = 0
    while True:
        try:
            total += yield total
        except ValueError:
            leaf(total)  #> leaf
        leaf(total)  #> leaf


def feed(n):  #= feed
    g = totals()  #> totals
    next(g)  #> totals
    for i in range(n):
        g.send(i)  #> totals
    g.throw(ValueError())  #> totals
    g.close()  #> totals


class Step:  #= Step
    def __await__(self):  #= __await__
        yield leaf(0)  #> leaf
        return 1


async def inner(n):  #= inner
    await Step()  #> __await__
    return leaf(n)  #> leaf


async def middle(n):  #= middle
    return await inner(n) + await inner(n)  #> inner


async def ticks(n):  #= ticks
    for i in range(n):
        yield await inner(i)  #> inner


async def outer(n):  #= outer
    await middle(n)  #> middle
    async for x in ticks(2):  #> ticks
        leaf(x)  #> leaf


def drive(n):  #= drive
    c = outer(n)  #> outer
    try:
        while True:
            c.send(None)  #> outer
    except StopIteration:
        leaf(n)  #> leaf


def fall(n):  #= fall
    if not n:
        raise KeyError(n)
    fall(n - 1)  #> fall


def caught(n):  #= caught
    try:
        fall(5)  #> fall
    except KeyError:
        leaf(n)  #> leaf
    finally:
        leaf(n)  #> leaf


def negated(x):  #= negated
    return -leaf(x)  #> leaf


def added(a, b):  #= added
    return leaf(a) + b  #> leaf


def compared(a, b):  #= compared
    return leaf(a) - leaf(b)  #> leaf


def callbacks():  #= callbacks
    sorted(ITEMS, key=negated)  #> negated
    list(map(negated, ITEMS))  #> negated
    functools.reduce(added, ITEMS)  #> added
    sorted(ITEMS, key=functools.cmp_to_key(compared))  #> compared
    ITEMS[:].sort(key=lambda x: leaf(x))  #> <lambda>, <lambda> -> leaf #= callbacks|<lambda>
    sum(leaf(x) for x in ITEMS)  #> <genexpr>, <genexpr> -> leaf #= callbacks|<genexpr>
    max(map(Point, ITEMS), key=Point.distance)  #> __new__, __init__, distance, __del__ #= callbacks


class Point:  #= Point
    def __new__(cls, *args):  #= __new__
        leaf(0)  #> leaf
        return object.__new__(cls)

    def __init__(self, x):  #= __init__
        self.x = leaf(x)  #> leaf

    @property  #= distance_from_zero
    def distance_from_zero(self):
        return leaf(self.x)  #> leaf

    @distance_from_zero.setter  #= distance_from_zero
    def distance_from_zero(self, x):
        self.x = leaf(x)  #> leaf

    def distance(self):  #= distance
        return self.distance_from_zero  #> distance_from_zero

    @classmethod  #= made
    def made(cls, x):
        return cls(x)  #> __new__, __init__

    @staticmethod  #= origin
    def origin():
        return Point.made(0)  #> made

    def __getattr__(self, name):  #= __getattr__
        if name[0] == '_':
            raise AttributeError(name)
        return leaf(0)  #> leaf

    def __add__(self, other):  #= __add__
        return Point.made(self.x + other.x)  #> made

    def __eq__(self, other):  #= __eq__
        return leaf(self.x) == other.x  #> leaf

    def __hash__(self):  #= __hash__
        return leaf(self.x)  #> leaf

    def __lt__(self, other):  #= __lt__
        return leaf(self.x) < other.x  #> leaf

    def __call__(self, x):  #= __call__
        return leaf(x)  #> leaf

    def __iter__(self):  #= __iter__
        yield leaf(self.x)  #> leaf

    def __len__(self):  #= __len__
        return leaf(1)  #> leaf

    def __enter__(self):  #= __enter__
        return leaf(1)  #> leaf

    def __exit__(self, *args):  #= __exit__
        return leaf(1) == 2  #> leaf

    def __del__(self):  #= __del__
        leaf(0)  #> leaf


# The last reference to a point goes where the next one is made, or when its function returns: each
# function that makes points lets go of them by hand, so that a finalizer's caller has one line.
def magic(n):  #= magic
    p = Point(n)  #> __new__, __init__
    q = Point.origin()  #> origin
    p.distance()  #> distance
    p.distance_from_zero = 3  #> distance_from_zero
    p.nothing  #> __getattr__
    r = p + q  #> __add__
    p == q  #> __eq__
    hash(p)  #> __hash__
    {p: 1}[p]  #> __hash__
    [r, q, p].sort()  #> __lt__
    p(n)  #> __call__
    list(p)  #> __iter__, __len__
    len(p)  #> __len__
    if p:  #> __len__
        leaf(n)  #> leaf
    with p:  #> __enter__, __exit__
        leaf(n)  #> leaf, __exit__
    del p  #> __del__
    del q  #> __del__
    del r  #> __del__


class Meta(type):  #= Meta
    def __call__(cls, x):  #= __call__
        return leaf(x)  #> leaf


class Made(metaclass=Meta):  #= Made
    pass


def decorated(f):  #= decorated
    @functools.wraps(f)  #= wrapper|decorated
    def wrapper(*args):  #= wrapper|decorated
        return f(*args)  #> wrapper -> plain #= wrapper
    return wrapper  #= decorated


@decorated  #= plain
def plain(n):
    return leaf(n)  #> leaf


def nested(n):  #= nested
    def within(m):  #= within|nested
        def deeper(m):  #= deeper|within
            return leaf(m + n)  #> leaf #= deeper
        return deeper(m)  #> deeper #= within
    return within(n)  #> within #= nested


def round_of_calls(n):  #= round_of_calls
    recurse(40)  #> recurse
    even(10)  #> even
    drain(3)  #> drain
    feed(3)  #> feed
    drive(n)  #> drive
    caught(n)  #> caught
    callbacks()  #> callbacks
    magic(n)  #> magic
    Made(n)  #> __call__
    plain(n)  #> wrapper
    nested(n)  #> nested


def work(until):  #= work
    while time.time() < until:
        round_of_calls(3)  #> round_of_calls


def walked(frame):  #= walked
    frames = []
    while frame:
        frames.append((frame.f_code, frame.f_lineno, frame.f_lasti))
        frame = frame.f_back
    return frames


def show(frames):  #= show
    print(json.dumps({'frames': [
        {'func': getattr(code, 'co_qualname', code.co_name), 'file': code.co_filename, 'line': line}
        for code, line, _ in frames]}))


def traced(frame, event, arg):  #= traced
    show(walked(frame))
    return traced


def trace():  #= trace
    sys.settrace(traced)
    round_of_calls(3)  #> round_of_calls
    sys.settrace(None)


# A thread that this one walks does not move, unless the interpreter's lock goes over in between: it
# is not due for long after this one woke up, and two walks that differ show it.
def watch(stacks):  #= watch
    sys.setswitchinterval(0.02)
    until = time.time() + 60
    threads = [threading.Thread(target=work, args=(until,), daemon=True) for _ in range(2)]
    for t in threads:
        t.start()
    while stacks and time.time() < until - 10:
        time.sleep(0.001)
        for t in threads:
            first, second = [walked(sys._current_frames()[t.ident]) for _ in range(2)]
            if first == second:
                show(first)
                stacks -= 1


def again(args):  #= again
    if sys.version_info >= (3, 13):
        from _interpreters import create, exec as run
    else:
        from _xxsubinterpreters import create, run_string as run
    run(create(), 'import sys; sys.argv = %r; exec(compile(open(%r).read(), %r, "exec"))' % (  #> !<module> <module>
        [__file__] + args, __file__, __file__))  #> !<module> <module>


def start(args):  #= start
    if args[:1] == ['again']:
        again(args[1:])  #> again
        return
    if args[:1] == ['trace']:
        trace()  #> trace
        watch(200)
        return
    until = time.time() + float(args[0] if args else 600)
    for _ in range(int(args[1]) - 1 if len(args) > 1 else 0):
        threading.Thread(target=work, args=(until,), daemon=True).start()
    print('ready', os.getpid(), flush=True)
    work(until)  #> work


start(sys.argv[1:])  #> start #= <module>
