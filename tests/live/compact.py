#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether stacks (of `ruby.py stacks`) are those of compact.rb: method call_F of class CF calls
nothing but a function F of C. Exit code 0 when there are many and none is wrong."""
import collections
import json
import re
import sys

pairs, wrong = collections.Counter(), []
for text in sys.stdin:
    frames = [f['func'] for f in json.loads(text)['frames']]
    for inner, outer in zip(frames, frames[1:]):
        method = re.match(r'C(\w+)#call_(\w+)$', outer)
        if not method:
            continue
        if method.group(1) != method.group(2) or \
                inner != '[gone]' and re.split('[#.]', inner)[-1] != method.group(1):
            wrong.append('%s < %s' % (inner, outer))
        pairs[inner, outer] += 1
print('%d calls of %d kinds, %d gone, %d wrong %s' % (
    sum(pairs.values()), len(pairs), sum(n for (i, _), n in pairs.items() if i == '[gone]'), len(wrong), wrong[:5]))
sys.exit(0 if sum(pairs.values()) > 100 and not wrong else 1)
