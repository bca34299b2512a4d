# SPDX-License-Identifier: Apache-2.0
# Tests, runtimes: threads at known depths that wait for good, wake now and then, or run, and a
# record of when each one waited where. Runs on CPython 3.7 and up.
#
#   wake.py DEPTH LOCKED WAKING RUNNING [RECORD]
#
# DEPTH frames a thread; those that wake wait at another depth each time (WAKE_DEPTH=fixed: at DEPTH),
# 3 to 22 ms. Prints "ready
# PID"; SIGTERM ends it, and it then writes RECORD, a line per wait: {"tid", "from", "to", "frames":
# [[func, file, line], ...]}: from one time of CLOCK_MONOTONIC to the other (null: still) the thread's
# stack was nothing but these frames, leaf first: all calls between the two looks at the clock
# are of functions in C, on one line. The marks are for judge.py, as churn.py tells.
#= <module>
#~ root run _bootstrap_inner _bootstrap
import _signal
import json
import os
import random
import select
import signal
import sys
import threading
from time import monotonic_ns as now, sleep

DEPTH = int(sys.argv[1])
FIXED = 'WAKE_DEPTH' in os.environ
RECORD = []


def walked(frame):  #= walked
    frames = []
    while frame:
        code = frame.f_code
        frames.append((getattr(code, 'co_qualname', code.co_name), code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return frames


def thread_id():  #= thread_id
    return int(os.readlink('/proc/thread-self').split('/')[-1])


def hold(lock):  #= hold
    tid = thread_id()  #> thread_id
    f = walked(sys._getframe()); RECORD.append((tid, now(), None, f)); lock.acquire()  #> walked


def rest(seconds):  #= rest
    f = walked(sys._getframe()); a = now(); sleep(seconds); b = now(); RECORD.append((thread_id(), a, b, f))  #> walked, thread_id


def ask(seconds):  #= ask
    f = walked(sys._getframe()); a = now(); LOCK.acquire(True, seconds); b = now(); RECORD.append((thread_id(), a, b, f))  #> walked, thread_id


def watch(seconds):  #= watch
    f = walked(sys._getframe()); a = now(); select.select([], [], [], seconds); b = now(); RECORD.append((thread_id(), a, b, f))  #> walked, thread_id


def spin(_):  #= spin
    while True: pass


def sink(depth, last, argument):  #= sink
    if depth > 0:
        return sink(depth - 1, last, argument)  #> sink
    return last(argument)  #> hold, rest, ask, watch, spin


def locked():  #= locked
    sink(DEPTH - 6, hold, LOCK)  #> sink


# The random numbers come from functions in C only: what is called is on the marks.
def waking():  #= waking
    r = random.Random(threading.get_ident())  #> __init__
    while True:
        depth, which = int((FIXED or r.random()) * (DEPTH - 6)), int(r.random() * 3)
        sink(depth, (rest, ask, watch)[which], 0.003 + r.random() * 0.019)  #> sink


def running():  #= running
    sink(DEPTH - 6, spin, None)  #> sink


def start(target, n):  #= start
    for _ in range(n):
        threading.Thread(target=target, daemon=True).start()


def stay():  #= stay
    tid = thread_id()  #> thread_id
    print('ready', os.getpid(), flush=True)
    f = walked(sys._getframe()); RECORD.append((tid, now(), None, f)); _signal.sigwait([signal.SIGTERM])  #> walked


def main(locked_ones, waking_ones, running_ones, path=None):  #= main
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    start(locked, int(locked_ones))
    start(waking, int(waking_ones))
    start(running, int(running_ones))
    sleep(0.5)
    stay()  #> stay
    if path:
        with open(path, 'w') as f:
            for tid, since, until, frames in RECORD[:]:
                f.write(json.dumps({'tid': tid, 'from': since, 'to': until, 'frames': frames}) + '\n')
    os._exit(0)


LOCK = threading.Lock()
LOCK.acquire()
main(*sys.argv[2:])  #> main #= <module>
