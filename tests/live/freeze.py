#!/usr/bin/env python3
"""Stops one thread, and no other of its process, for a while: freeze.py TID SECONDS. Says "frozen" then."""
import ctypes
import os
import sys
import time

PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_DETACH = 0x4206, 0x4207, 17
WALL = 0x40000000
tid, seconds = int(sys.argv[1]), float(sys.argv[2])
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long


def ptrace(request):
    if libc.ptrace(request, tid, None, None):
        sys.exit("ptrace: " + os.strerror(ctypes.get_errno()))


ptrace(PTRACE_SEIZE)
ptrace(PTRACE_INTERRUPT)
os.waitpid(tid, WALL)
print("frozen", flush=True)
time.sleep(seconds)
ptrace(PTRACE_DETACH)
