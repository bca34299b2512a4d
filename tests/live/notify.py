#!/usr/bin/env python3
"""A service manager's ear: notify.py SOCKET LOG. One line a message: TIME, then its lines joined by blanks."""
import os
import socket
import sys
import time

PATH, LOG = sys.argv[1:]
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind(PATH)
os.chmod(PATH, 0o666)
with open(LOG, "w", buffering=1) as log:
    while True:
        text = s.recv(65536).decode()
        log.write("%.3f %s\n" % (time.monotonic(), text.rstrip("\n").replace("\n", " ")))
