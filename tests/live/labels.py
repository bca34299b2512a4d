#!/usr/bin/env python3
"""
labels.py DIR SERVICE [NAME=VALUE ...]: is there a CPU profile START-cpu-SERVICE.pb.gz in the
directory, SERVICE a regular expression, with a sample that carries all these labels (VALUE "": lacks
it)? Newest first; exit 0 or 1.
"""
import glob
import os
import re
import sys

from pprof import Profile


def main():
    want = [a.partition("=")[::2] for a in sys.argv[3:]]
    for path in sorted(glob.glob(sys.argv[1] + "/*-cpu-*.pb.gz"), reverse=True):
        name = os.path.basename(path)[:-6].split("-cpu-", 1)[1]
        if not re.fullmatch(sys.argv[2] + r"(-\d+)?", name):
            continue
        for _, _, labels in Profile(path).samples:
            if all(str(labels.get(k, "")) == v for k, v in want):
                return 0
    return 1


sys.exit(main())
