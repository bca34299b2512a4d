#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Judges names in profiles: names_judge.py map PROFILE PERFMAP... | lines PROFILE FILE FILE_WITH_DWARF"""
import re
import subprocess
import sys


def locations(path):
    """[(address, mapping number, [(system name, file, line)])], [mapping path] of `go tool pprof -raw`."""
    raw = subprocess.run(["go", "tool", "pprof", "-symbolize=none", "-raw", path], check=True,
                         capture_output=True, text=True).stdout
    locs, maps, section = [], {}, None
    for line in raw.splitlines():
        if line in ("Locations", "Mappings"):
            section = line
        elif section == "Mappings":
            m = re.match(r"(\d+): \S+ (\S+)", line)
            if m:
                maps[int(m[1])] = m[2]
        elif section == "Locations":
            m = re.match(r" *\d+: (0x[0-9a-f]+) (?:M=(\d+) )?(.*)", line)
            if m:
                locs.append((int(m[1], 16), int(m[2] or 0), []))
                line = m[3]
            m = re.match(r" *(.*) (\S*):(\d+) s=\d+(?:\((.*)\))?$", line)
            if m:
                locs[-1][2].append((m[4] or m[1], m[2], int(m[3])))
    return locs, maps


def judge_map(profile, *perfmaps):
    """A name of code made at run time is one that a map has for the address; newest first."""
    entries = []
    for perfmap in perfmaps:
        for line in open(perfmap, errors="replace"):
            start, size, name = line.rstrip("\n").split(" ", 2)
            entries.append((int(start, 16), int(start, 16) + int(size, 16), name))
    entries.reverse()
    locs, maps = locations(profile)
    right = wrong = unnamed = 0
    for addr, m, lines in locs:
        if not maps.get(m, "").startswith(("//anon", "[anon", "/memfd:", "/dev/zero")):
            continue
        names = [n for lo, hi, n in entries if lo <= addr < hi]
        if not lines:
            unnamed += bool(names)
            continue
        got = lines[0][0]
        # The collector may have moved code since.
        if names and got == names[0]:
            right += 1
        elif got not in names:
            print("wrong", hex(addr), got, names[:2])
            wrong += 1
    print(right, "right", wrong, "wrong", unnamed, "unnamed")
    return right >= 2 and right >= 10 * (wrong + unnamed)


def judge_lines(profile, binary, dwarf):
    """Functions and lines of each address of a file are those of addr2line -i."""
    locs, maps = locations(profile)
    n = inlined = 0
    for addr, m, lines in locs:
        if maps.get(m) != binary or not lines:
            continue
        out = subprocess.run(["addr2line", "-f", "-i", "-e", dwarf, hex(addr)], check=True,
                             capture_output=True, text=True).stdout.splitlines()
        want = [(out[i], re.sub(r" \(.*", "", out[i + 1])) for i in range(0, len(out), 2)]
        got = [(f, "%s:%d" % (file, line)) for f, file, line in lines]
        # Without a linkage name of its own an inlined function has its caller's there.
        same = len(want) == len(got) and all(
            w[0] in (g[0], want[-1][0]) and
            (w[1].startswith("??") or w[1].endswith(":?") or w[1] == g[1]) for w, g in zip(want, got))
        same = same and want[-1][0] == got[-1][0]
        if not same:
            print(hex(addr), "got", got, "want", want)
            return False
        n += 1
        inlined += len(got) > 1
    print(n, "addresses,", inlined, "in inlined functions")
    return n >= 3 and inlined >= 1


sys.exit(0 if {"map": judge_map, "lines": judge_lines}[sys.argv[1]](*sys.argv[2:]) else 1)
