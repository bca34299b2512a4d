#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads metrics from stdin with Prometheus' own client library, which has its own parser.

    metrics.py [NAME=VALUE ...]     every VALUE has to be that of exactly one sample; prints
                                    "NAME SAMPLE" for each
    metrics.py --get NAME[LABELS]   prints the sum of the samples of that name (and labels A=B,C=D)
"""
import re
import sys

from prometheus_client.parser import text_string_to_metric_families

NAME = re.compile(r"ebpfprofiler_[a-z0-9_]+\Z")


def main():
    text = sys.stdin.read()
    families = list(text_string_to_metric_families(text))
    samples = [s for f in families for s in f.samples]
    if not samples:
        sys.exit("no samples")
    if sys.argv[1:2] == ["--get"]:
        name, _, labels = sys.argv[2].partition("{")
        want = dict(l.split("=") for l in labels.rstrip("}").split(",") if l)
        found = [s for s in samples if s.name == name and want.items() <= s.labels.items()]
        if not found:
            sys.exit(f"no sample {sys.argv[2]}")
        print("%.12g" % sum(s.value for s in found))
        return
    names = [f.name for f in families]
    if len(set(names)) != len(names):
        sys.exit("a family stands twice: " + " ".join(n for n in names if names.count(n) > 1))
    for f in families:
        if not NAME.match(f.name) or not f.documentation or f.type not in ("counter", "gauge"):
            sys.exit(f"family {f.name}: type {f.type}, help {f.documentation!r}")
        for s in f.samples:
            if f.type == "counter" and not s.name.endswith("_total"):
                sys.exit(f"counter {s.name} does not end in _total")
            if s.labels.keys() - {"type", "reason", "unwinder", "version", "server", "from"}:
                sys.exit(f"{s.name} has labels {s.labels}")
    keys = [(s.name, tuple(sorted(s.labels.items()))) for s in samples]
    if len(set(keys)) != len(keys):
        sys.exit("a sample stands twice")
    for pair in sys.argv[1:]:
        name, _, value = pair.partition("=")
        found = [s for s in samples if s.value == float(value)]
        if len(found) != 1:
            sys.exit(f"{name} = {value}: {len(found)} samples have this value")
        labels = ",".join(f"{k}={v}" for k, v in sorted(found[0].labels.items()))
        print(name, found[0].name + (f"{{{labels}}}" if labels else ""))


main()
