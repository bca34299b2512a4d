#!/usr/bin/env python3
"""
context_judge.py DIR TYPE SERVICE: of all profiles of tests/live/context.c in the store: does each
sample or wait carry the span under which its function ran, and no other? Says how many did; exit 1 if
one is wrong. What was sampled before the process was known to publish is passed over.
"""
import glob
import re
import sys

from pprof import Profile

LABELS = ("trace_id", "span_id", "http.route")
right = wrong = missing = none = between = 0
for path in sorted(glob.glob("%s/*-%s-%s*.pb.gz" % tuple(sys.argv[1:4]))):
    profile = Profile(path, "waits" if sys.argv[2] == "offcpu" else None)
    samples = profile.samples
    if not any(l in labels for _, _, labels in samples for l in LABELS):
        continue
    for value, frames, labels in samples:
        n = value if sys.argv[2] == "offcpu" else round(value / profile.period)
        said = tuple(labels.get(l, "") for l in LABELS)
        names = [f[0] for f in frames if f[0]]
        ran = [n for n in names if re.fullmatch(r"f_\d", n)]
        thread = int(labels["thread.name"][1:]) if re.fullmatch(r"t\d", labels["thread.name"]) else 0
        if ran:
            i = int(ran[0][2:])
            want = ("%02x" % thread * 16, "%016x" % (thread * 256 + i), "/f/%d" % i)
            if said == want:
                right += n
            elif not any(said):
                missing += n
            else:
                wrong += n
                print("wrong:", names, thread, said)
        elif "changing" in names or "f_none" in names or thread in (0, 4):
            if any(said):
                wrong += n
                print("wrong:", names, thread, said)
            none += n
        elif any(said):
            between += n  # a valid record before the call, or a stack that ends before the function
print("%s: right %d wrong %d missing %d none %d between %d" % (
    " ".join(sys.argv[2:4]), right, wrong, missing, none, between))
# One window may have begun before the process was known.
sys.exit(wrong > 0 or right < 50 or none < 20 or missing * 4 > right or between * 20 > right)
