#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""page_day.py DIR: DIR/day, a store as a daemon leaves it after a day: one-minute windows of 50 services, 30 stacks each,
and one service `wide` with 50,000 distinct frames. Files are written once and linked: what counts is reading them."""
import gzip, os, sys, time

def varint(n):
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128); n >>= 7
    out.append(n)
    return bytes(out)
def field(number, data): return varint(number << 3 | 2) + varint(len(data)) + data
def number(n, value): return varint(n << 3) + varint(value)

def profile(start_ns, stacks, names):
    """stacks: (leaf-first location numbers, nanoseconds); names: one function per location."""
    texts = ['', 'cpu', 'nanoseconds', 'thread.name', 'main'] + names
    out = [field(1, number(1, 1) + number(2, 2))]
    label = field(3, number(1, 3) + number(2, 4))
    for ids, value in stacks:
        out.append(field(2, field(1, b''.join(varint(i + 1) for i in ids)) + field(2, varint(value)) + label))
    out.append(field(3, number(1, 1) + number(2, 0x1000) + number(3, 0x900000)))
    for i in range(len(names)):
        out.append(field(4, number(1, i + 1) + number(2, 1) + number(3, 0x1000 + 16 * i) + field(4, number(1, i + 1))))
        out.append(field(5, number(1, i + 1) + number(2, 5 + i)))
    out += [field(6, t.encode()) for t in texts]
    out += [number(9, start_ns), number(10, 60 * 10**9)]
    return gzip.compress(b''.join(out), 1)

store = sys.argv[1] + '/day'
os.makedirs(store + '/profiles')
now = int(time.time()) - 60
names = [f'function_{i}' for i in range(200)]
journal = open(store + '/catalog', 'w')
def put(when, service, data, value, source=None):
    name = time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(when)) + f'.000-cpu-{service}.pb.gz'
    path = f'{store}/profiles/{name}'
    if source: os.link(source, path)
    else: open(path, 'wb').write(data)
    journal.write(f'{name}\t{value}\t60000\t30\t29\t{service}\t\t{service}\n')
    return path
for s in range(50):
    stacks = [([(s * 7 + k * 13 + d * (k % 3 + 1)) % 200 for d in range(25)], 10**7 * (k + 1)) for k in range(30)]
    data, first = profile(now * 10**9, stacks, names), None
    for minute in range(1440):
        path = put(now - 60 * (1439 - minute), f'svc{s:02}', data, sum(v for _, v in stacks), first if minute % 1000 else None)
        if minute % 1000 == 0: first = path
wide = [f'wide_{i}' for i in range(50000)]
put(now, 'wide', profile(now * 10**9, [([i + k for k in range(9, -1, -1)], 1000 + i) for i in range(0, 50000, 10)], wide), sum(1000 + i for i in range(0, 50000, 10)))
