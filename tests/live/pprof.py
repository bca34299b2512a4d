#!/usr/bin/env python3
"""Reads a pprof file with protoc and the schema that Debian ships; the tests' second opinion."""
import gzip
import subprocess
import sys
from collections import Counter

SCHEMA = "/usr/share/gocode/src/github.com/google/pprof/proto"


def varint(b, i):
    v = s = 0
    while True:
        v |= (b[i] & 0x7F) << s
        s += 7
        i += 1
        if not b[i - 1] & 0x80:
            return v, i


def fields(b):
    i = 0
    while i < len(b):
        tag, i = varint(b, i)
        if tag & 7 == 0:
            v, i = varint(b, i)
        elif tag & 7 == 2:
            n, i = varint(b, i)
            v = b[i:i + n]
            i += n
        else:
            raise ValueError("wire type %d" % (tag & 7))
        yield tag >> 3, v


def packed(v):
    if isinstance(v, int):
        return [v]
    out, i = [], 0
    while i < len(v):
        n, i = varint(v, i)
        out.append(n)
    return out


class Profile:
    """
    Samples as (value, [(function or None, mapping path, build id)] leaf first, labels), where value
    is that of the type that is asked for, else of the profile's default one. `types`: names of all.
    """

    def __init__(self, path, sample_type=None):
        raw = gzip.open(path).read()
        # protoc says whether the message is well formed at all.
        subprocess.run(["protoc", "--proto_path=" + SCHEMA, "--decode=perftools.profiles.Profile",
                        SCHEMA + "/profile.proto"], input=raw, check=True,
                       stdout=subprocess.DEVNULL)
        top = list(fields(raw))
        s = [v.decode() for k, v in top if k == 6]
        self.strings = s
        self.comments = [s[i] for k, v in top if k == 13 for i in packed(v)]
        self.types = [s[dict(fields(v))[1]] for k, v in top if k == 1]
        default = [s[v] for k, v in top if k == 14]
        index = self.types.index(sample_type or (default[0] if default else self.types[-1]))
        self.duration = sum(v for k, v in top if k == 10)
        self.period = sum(v for k, v in top if k == 12)
        functions, mappings, locations = {}, {}, {}
        for k, v in top:
            f = dict(fields(v)) if k in (3, 5) else {}
            if k == 5:
                functions[f[1]] = s[f.get(2, 0)]
            elif k == 3:
                mappings[f[1]] = (s[f.get(5, 0)], s[f.get(6, 0)])
        for k, v in top:
            if k == 4:
                f = list(fields(v))
                d = dict(f)
                names = [functions[dict(fields(x))[1]] for n, x in f if n == 4]
                locations[d[1]] = (names[0] if names else None,) + mappings.get(
                    d.get(2, 0), ("", ""))
        self.samples = []
        for k, v in top:
            if k != 2:
                continue
            stack, value, labels = [], 0, {}
            for n, x in fields(v):
                if n == 1:
                    stack += [locations[i] for i in packed(x)]
                elif n == 2:
                    value = packed(x)[index]
                else:
                    d = dict(fields(x))
                    labels[s[d[1]]] = s[d[2]] if 2 in d else d.get(3, 0)
            self.samples.append((value, stack, labels))

    def flat(self):
        c = Counter()
        for value, stack, _ in self.samples:
            c[stack[0][0] if stack else None] += value
        return c

    def cumulative(self):
        c = Counter()
        for value, stack, _ in self.samples:
            for name in {f[0] for f in stack}:
                c[name] += value
        return c


if __name__ == "__main__":
    p = Profile(sys.argv[1])
    print(len(p.samples), p.flat().most_common(5), p.comments)
