# SPDX-License-Identifier: Apache-2.0
# Threads of known behaviour: wall.py HOLDERS SLEEPERS SPINNERS. The main thread sleeps.
import sys
import threading
import time


def hold(lock):
    with lock:
        pass


def sleeper():
    while True:
        time.sleep(0.1)


def spinner():
    n = 0
    while True:
        n += 1


def start(n, target, *args):
    for _ in range(n):
        threading.Thread(target=target, args=args, daemon=True).start()


held = threading.Lock()
held.acquire()
start(int(sys.argv[1]), hold, held)
start(int(sys.argv[2]), sleeper)
start(int(sys.argv[3]), spinner)
print('ready', flush=True)
time.sleep(600)
