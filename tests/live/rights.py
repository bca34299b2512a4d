#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What profiles of a store say, by `go tool pprof -raw`: rights.py DIR EXECUTABLE...

One word each: named (its busy() has its name), bare (samples, but no names), none (no sample); then
"kernel named", "bare" or "none".
"""
import glob
import re
import subprocess
import sys

LOCATION = re.compile(r"\s*(\d+): 0x[0-9a-f]+ M=(\d+) ?(.*)")
NO_MAPPING = re.compile(r"\s*(\d+): 0x[0-9a-f]+ ?(.*)")
MAPPING = re.compile(r"(\d+): 0x[0-9a-f]+/0x[0-9a-f]+/0x[0-9a-f]+ (\S*)")


def read(path):
    """Frames of each location: (mapping's file, text)."""
    text = subprocess.run(["go", "tool", "pprof", "-raw", path], check=True, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True).stdout
    head, _, mappings = text.partition("\nMappings\n")
    files = {m[0]: m[1] for m in MAPPING.findall(mappings)}
    samples, _, locations = head.partition("\nLocations\n")
    out = []
    for line in locations.splitlines():
        m = LOCATION.match(line)
        if m:
            out.append((files.get(m[2], ""), m[3].strip()))
        else:
            m = NO_MAPPING.match(line)
            if m:
                out.append(("", m[2].strip()))
    return out


def verdict(frames, good):
    if not frames:
        return "none"
    named = sum(1 for f in frames if good(f))
    return "named" if named else "bare"


def main():
    kernel, said = [], {}
    for name in sys.argv[2:]:
        frames = []
        for path in glob.glob(f"{sys.argv[1]}/*-cpu-{name}.pb.gz"):
            frames += read(path)
        kernel += [f for f in frames if f[0].startswith("[kernel")]
        frames = [f for f in frames if not f[0].startswith("[kernel")]
        said[name] = verdict(frames, lambda f: re.match(r"busy\b", f[1]))
    for path in glob.glob(f"{sys.argv[1]}/*-cpu-sys.pb.gz"):
        kernel += [f for f in read(path) if f[0].startswith("[kernel")]
    print(" ".join(said[n] for n in sys.argv[2:]), verdict(kernel, lambda f: f[1]))


main()
