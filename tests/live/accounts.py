#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What became of profiles, by the daemon's last word on each server.

    accounts.py LOG                 "PORT FIELD=N ..." a server; fails when a sum is wrong
    accounts.py LOG PORT FIELD      one number
"""
import re
import sys

FIELDS = ("found", "due", "parts", "sent", "refused", "large", "dropped", "old", "damaged", "spool")
LINE = re.compile(r"upload: http://127\.0\.0\.1:(\d+)/: (\d+) profiles of earlier runs, (\d+) due, (\d+) more parts = "
                  r"(\d+) sent, (\d+) refused, (\d+) too large, (\d+) dropped, (\d+) too old, (\d+) damaged, "
                  r"(\d+) in the spool")


def main():
    last = {}
    with open(sys.argv[1], encoding="utf-8") as f:
        for m in LINE.finditer(f.read()):
            last[m[1]] = dict(zip(FIELDS, map(int, m.groups()[1:])))
    if len(sys.argv) > 2:
        print(last[sys.argv[2]][sys.argv[3]])
        return
    for port, a in last.items():
        print(port, " ".join(f"{k}={v}" for k, v in a.items()))
        if sum(a[k] for k in FIELDS[:3]) != sum(a[k] for k in FIELDS[3:]):
            sys.exit(f"{port}: the sum is wrong")
    if not last:
        sys.exit("no server")


main()
