#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""timeline_judge.py perfetto|firefox FILE WHAT [ARG...]: reads a time line by the rules of its format (every reference leads
somewhere, and in a trace to what came before it), and judges what it says: `ratio SAMPLES`, `naps NANOSECONDS COUNT`, `busy
NANOSECONDS HZ`, `asleep SECONDS`."""
import codecs, collections, gzip, json, re, statistics, subprocess, sys

def packets(path):
    """Perfetto: by protoc, as nested dictionaries of lists."""
    data = gzip.open(path).read()
    text = subprocess.run(['protoc', '--decode=perfetto.Trace', '-Icore', 'core/perfetto.proto'], input=data, capture_output=True, check=True).stdout.decode()
    stack = [collections.defaultdict(list)]
    for line in text.splitlines():
        line = line.strip()
        if line.endswith('{'):
            stack.append(collections.defaultdict(list))
            stack[-2][line[:-2]].append(stack[-1])
        elif line == '}': stack.pop()
        else:
            key, value = line.split(': ', 1)
            assert not key.isdigit(), f'field {key} is not in the schema'
            stack[-1][key].append(codecs.escape_decode(value[1:-1])[0].decode(errors='replace') if value[0] == '"' else int(value))
    return stack[0]['packet']

Event = collections.namedtuple('Event', 'thread pid tid begin end stack wait')  # stack: outermost first, names

def perfetto(path):
    names, files, frames, stacks, threads, events, open_slices = {}, {}, {}, {}, {}, [], {}
    mappings = set()
    for number, p in enumerate(packets(path)):
        assert p['trusted_packet_sequence_id'] == [1] and p['sequence_flags'] == [3 if not number else 2]
        if not number:
            clocks = {c['clock_id'][0]: c['timestamp'][0] for c in p['clock_snapshot'][0]['clocks']}
            assert set(clocks) == {1, 6} and p['trace_packet_defaults'][0]['timestamp_clock_id'] == [1]
        for d in p['interned_data']:
            for s in d['function_names']: names[s['iid'][0]] = s['str'][0]
            for s in d['mapping_paths']: files[s['iid'][0]] = s['str'][0]
            for m in d['mappings']: assert m['path_string_ids'][0] in files; mappings.add(m['iid'][0])
            for f in d['frames']:
                assert f['mapping_id'][0] in mappings and 'rel_pc' in f and f['iid'][0] not in frames
                frames[f['iid'][0]] = names[f['function_name_id'][0]]
            for c in d['callstacks']: stacks[c['iid'][0]] = [frames[i] for i in c['frame_ids']]
        for t in p['track_descriptor']:
            for th in t['thread']: threads[t['uuid'][0]] = (th['thread_name'][0], th['pid'][0], th['tid'][0])
        for s in p['perf_sample']:
            name = next(n for n, pid, tid in threads.values() if (pid, tid) == (s['pid'][0], s['tid'][0]))
            events.append(Event(name, s['pid'][0], s['tid'][0], p['timestamp'][0], p['timestamp'][0], stacks[s['callstack_iid'][0]], None))
        for e in p['track_event']:
            uuid = e['track_uuid'][0]
            if e['type'] == [1]:
                assert uuid not in open_slices, 'a wait within a wait'
                open_slices[uuid] = p, e
            else:
                b, first = open_slices.pop(uuid)
                assert b['timestamp'][0] <= p['timestamp'][0]
                events.append(Event(*threads[uuid], b['timestamp'][0], p['timestamp'][0], stacks[first['callstack_iid'][0]], first['name'][0]))
    assert not open_slices
    return clocks[1], events

def firefox(path):
    d = json.load(gzip.open(path))
    sh, meta, events = d['shared'], d['meta'], []
    for name in ('sources', 'resourceTable', 'funcTable', 'frameTable', 'stackTable', 'nativeSymbols'):
        assert all(len(c) == sh[name]['length'] for k, c in sh[name].items() if k != 'length'), name
    for i, prefix in enumerate(sh['stackTable']['prefix']): assert prefix is None or 0 <= prefix < i
    for c in sh['frameTable']['category']: assert 0 <= c < len(meta['categories'])
    for r in sh['funcTable']['resource']: assert d['libs'][sh['resourceTable']['lib'][r]]
    for s in sh['funcTable']['source']: assert s is None or sh['stringArray'][sh['sources']['filename'][s]]
    def names(i):
        out = []
        while i is not None:
            out.append(sh['stringArray'][sh['funcTable']['name'][sh['frameTable']['func'][sh['stackTable']['frame'][i]]]])
            i = sh['stackTable']['prefix'][i]
        return out[::-1]
    ns = lambda ms: round(ms * 1e6)
    for t in d['threads']:
        s, m = t['samples'], t['markers']
        assert all(len(s[k]) == s['length'] for k in ('stack', 'time', 'weight', 'threadCPUDelta')) and s['time'] == sorted(s['time'])
        assert all(len(m[k]) == m['length'] for k in ('name', 'startTime', 'endTime', 'phase', 'category', 'data'))
        who = t['name'], int(t['pid']), t['tid']
        waits = [i for i in range(s['length']) if not s['threadCPUDelta'][i]]
        assert len(waits) == m['length'], 'each wait is a sample and a marker'
        for i in range(s['length']):
            if s['threadCPUDelta'][i]: events.append(Event(*who, ns(s['time'][i]), ns(s['time'][i]), names(s['stack'][i]), None))
        for k, i in enumerate(waits):
            data = m['data'][k]
            assert data['type'] == meta['markerSchema'][0]['name'] and data['cause']['stack'] == s['stack'][i] and m['phase'][k] == 1
            assert m['endTime'][k] == s['time'][i] and meta['categories'][m['category'][k]]['name'] == 'Waiting'
            events.append(Event(*who, ns(m['startTime'][k]), ns(m['endTime'][k]), names(data['cause']['stack']), data['what']))
    return 0, events

kind, path, what, *args = sys.argv[1:]
start, events = {'perfetto': perfetto, 'firefox': firefox}[kind](path)
runs = [e for e in events if e.wait is None]
waits = [e for e in events if e.wait is not None]
assert events and all(e.begin >= start for e in events), 'an event from before the recording'
if what == 'ratio':  # as many samples as were kept, 70 to 30, a period apart
    heavy, light = (sum(f in e.stack for e in runs) for f in ('heavy', 'light'))
    gaps = [b.begin - a.begin for a, b in zip(runs, runs[1:]) if a.tid == b.tid]
    print(len(runs), 'samples', heavy, light, 'median gap', statistics.median(gaps))
    ok = len(runs) == int(args[0]) and abs(heavy / (heavy + light) - 0.7) < 0.08 and {e.thread for e in runs} == {'ratio'}
    # A period of the CPU's: a thread that shares it with others is not sampled in each.
    ok = ok and abs(statistics.median(gaps) % 10101010 / 10101010 - 0.5) > 0.4 and all(e.stack.index('main') < e.stack.index('heavy') for e in runs if 'heavy' in e.stack)
elif what == 'busy':  # nanoseconds on CPU as the kernel counted them, and the rate
    heavy, light = (sum(f in e.stack for e in runs) for f in ('heavy', 'light'))
    want = int(args[0]) / 1e9 * int(args[1])
    print(len(runs), 'samples of', want, heavy, light)
    ok = abs(len(runs) / want - 1) < 0.1 and abs(heavy / (heavy + light) - 0.7) < 0.08 and {e.thread for e in runs} == {'ratio'}
elif what == 'asleep':  # one thread, all the time
    total = sum(e.end - e.begin for e in waits)
    print(total, 'ns', [(e.wait, e.stack) for e in waits])
    ok = abs(total / 1e9 / int(args[0]) - 1) < 0.1 and all(e.wait == 'sleep' and 'hrtimer_nanosleep' in e.stack for e in waits) and not runs
elif what == 'naps':  # the program's own word for how long and how often
    mine = [e for e in waits if 'nap' in e.stack or 'hrtimer_nanosleep' in e.stack]
    total = sum(e.end - e.begin for e in mine)
    print(len(mine), 'naps', total, 'ns of', args, 'for', collections.Counter(e.wait for e in waits), len({e.tid for e in mine}), 'threads')
    ok = abs(total / int(args[0]) - 1) < 0.05 and abs(len(mine) / int(args[1]) - 1) < 0.05 and len({e.tid for e in mine}) == 4 and all(e.wait == 'sleep' for e in mine)
sys.exit(0 if ok else 1)
