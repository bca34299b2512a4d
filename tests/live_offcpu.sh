#!/bin/sh
# Off-CPU profiles against what the waiting threads measured of themselves (tests/live/waits.c): in
# each mode that this kernel has, by frame pointers and by tables; waits that are cut by windows,
# that began before the profiler, that are sampled, frozen, too short, or none at all.
# SECONDS_OFF=5 for a quick look; 20 by default.
: "${B:=build}"
bin=$B/ebpfprofiler
seconds=${SECONDS_OFF:-20}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
ok() { echo "ok $1"; }
no() { echo "not ok $1"; }
check() { name=$1; shift; if "$@"; then ok "$name"; else no "$name"; fi; }

gcc -O2 -DFRAMES -fno-omit-frame-pointer -pthread -o "$tmp/waits_fp" tests/live/waits.c || exit 1
gcc -O2 -fomit-frame-pointer -pthread -o "$tmp/waits_tables" tests/live/waits.c || exit 1
dd if=/dev/urandom of="$tmp/disk" bs=1M count=64 2>/dev/null
sync "$tmp/disk"

# record NAME OPTIONS... -- COMMAND...: $tmp/NAME.pb.gz, what the command says in $tmp/NAME.json
record() {
    name=$1
    shift
    "$bin" record -o "$tmp/$name.pb.gz" "$@" >"$tmp/$name.json" 2>"$tmp/$name.err" && return
    cat "$tmp/$name.err"
    return 1
}

# --- sums ---------------------------------------------------------------------------------------
for mode in 0 1 2; do
    for how in fp tables; do
        t=$seconds
        [ $mode -eq 0 ] || t=$(((seconds + 3) / 4)) # the mode of this kernel is looked at longest
        name=sums-mode-$mode-by-$how
        dwarf=
        [ $how = fp ] || dwarf=--offcpu-dwarf
        export EBPFPROFILER_OFFCPU=$mode
        # shellcheck disable=SC2086
        record "$name" -e offcpu --offcpu-min-ms 0 $dwarf -- "$tmp/waits_$how" all "$t" "$tmp/disk"
        unset EBPFPROFILER_OFFCPU
        check "$name" python3 tests/live/waits_judge.py "$tmp/$name.pb.gz" "$tmp/$name.json" \
            sleep futex pipe socket churn disk
    done
done

# --- what is no wait ----------------------------------------------------------------------------
record spin -e cpu,offcpu -F 997 -- "$tmp/waits_fp" spin 4
check preempted-spinner-has-no-off-cpu-time python3 - "$tmp/spin.pb.gz" "$tmp/spin.json" <<'EOP'
import json, sys
sys.path.insert(0, 'tests/live')
from pprof import Profile
told = json.load(open(sys.argv[2]))
p = Profile(sys.argv[1], 'offcpu') if 'offcpu' in Profile(sys.argv[1]).types else None
off = sum(v for v, s, l in p.samples if 'spin' in [f[0] for f in s]) if p else 0
print(told, 'off CPU in spin(): %.6f s' % (off / 1e9))
sys.exit(0 if told['preempted'] > 50 and off == 0 else 1)
EOP

record brief -e offcpu --offcpu-min-ms 1 -- "$tmp/waits_fp" brief 3
check waits-under-the-minimum-are-dropped python3 - "$tmp/brief.pb.gz" "$tmp/brief.json" <<'EOP'
import json, sys
sys.path.insert(0, 'tests/live')
from pprof import Profile
told = json.load(open(sys.argv[2]))
n = sum(v for v, s, l in Profile(sys.argv[1], 'waits').samples if 'wait_brief' in [f[0] for f in s])
print(told, n, 'waits kept')
# A thread that finds no free CPU for long has waited long, whatever it asked for.
sys.exit(0 if told['brief'] > 1000 and n < told['brief'] / 50 else 1)
EOP

# --- short waits are sampled ----------------------------------------------------------------------
# Threshold 20 ms: a wait of 2 ms is kept with probability 1/10 and counts for ten, one of 50 ms is
# always kept. 20 runs; the mean of the sums' relative errors must lie within 3.5 standard errors of
# zero as the runs themselves scatter, and nothing may be off by more than that scatter explains.
runs=20
[ "$seconds" -ge 20 ] || runs=5
i=0
while [ $i -lt $runs ]; do
    EBPFPROFILER_OFFCPU=,20000000 record "short-$i" -e offcpu --offcpu-min-ms 1 -- "$tmp/waits_fp" short 2
    i=$((i + 1))
done
check sampled-short-waits-are-unbiased python3 - "$tmp" $runs <<'EOP'
import json, math, sys
sys.path.insert(0, 'tests/live')
from pprof import Profile
tmp, runs = sys.argv[1], int(sys.argv[2])
errors, long_errors, stacks = [], [], 0
for i in range(runs):
    told = json.load(open('%s/short-%d.json' % (tmp, i)))
    p = Profile('%s/short-%d.pb.gz' % (tmp, i), 'offcpu')
    got = {n: sum(v for v, s, l in p.samples if 'wait_' + n in [f[0] for f in s])
           for n in ('short', 'long')}
    errors.append(got['short'] / told['short'] - 1)
    long_errors.append(got['long'] / told['long'] - 1)
mean = sum(errors) / runs
sd = math.sqrt(sum((e - mean) ** 2 for e in errors) / (runs - 1))
bound = 3.5 * sd / math.sqrt(runs) + 0.005  # waking up, which is no wait, and switches not seen
print('short waits: mean error %+.2f %%, scatter %.2f %%, bound %.2f %%; long ones: worst %+.2f %%'
      % (100 * mean, 100 * sd, 100 * bound, 100 * max(long_errors, key=abs)))
# Of few long waits one that was not seen to end is some percent; none may be counted twice.
long_errors.sort()
sys.exit(0 if abs(mean) < bound and 0.005 < sd < 0.15 and abs(long_errors[runs // 2]) < 0.02 and
         long_errors[-1] < 0.02 else 1)
EOP

# --- windows ------------------------------------------------------------------------------------
cat >"$tmp/c.ini" <<EOP
[ebpf_profiler]
enabled = true
sample_hz = 19
upload_interval_s = 1
cpu_budget = 100
offcpu = true
[store]
path = $tmp/store
EOP
"$tmp/waits_fp" forever 60 >"$tmp/forever" & forever=$!
while [ ! -s "$tmp/forever" ]; do sleep 0.1; done
"$bin" run -c "$tmp/c.ini" 2>"$tmp/run.err" & daemon=$!
while ! grep -q '^.*window of' "$tmp/run.err"; do sleep 0.2; kill -0 $daemon || break; done
"$tmp/waits_fp" long 5 >"$tmp/long.json"
sleep 1.2
kill $daemon
wait $daemon
kill $forever 2>/dev/null
wait $forever 2>/dev/null
python3 - "$tmp/store" "$tmp/long.json" <<'EOP'
import glob, json, os, sys
sys.path.insert(0, 'tests/live')
from pprof import Profile
told = json.load(open(sys.argv[2]))
files = [f for f in glob.glob(sys.argv[1] + '/**/*.pb.gz', recursive=True) if 'offcpu' in f and 'waits_fp' in f]
total, windows, forever, duration = {'open': 0, 'long': 0}, {'open': 0, 'long': 0}, 0, 0
pids, most = {}, 0
for f in files:
    p = Profile(f, 'offcpu')
    duration += p.duration
    here = {}
    for v, s, l in p.samples:
        names = [x[0] for x in s]
        for n in total:
            if 'wait_' + n in names:
                pids.setdefault(l['pid'], {}).setdefault(n, [0, 0])
                pids[l['pid']][n][0] += v
                here.setdefault((l['pid'], n), [0, p.duration])[0] += v
    for k, (v, d) in here.items():
        pids[k[0]][k[1]][1] += 1
        most = max(most, v / d)
print(told, pids, '%.2f s in windows' % (duration / 1e9), 'most of a window %.3f' % most)
mine = [p for p in pids.values() if 'long' in p and 'open' in p][0]
other = [p for p in pids.values() if 'long' not in p and 'open' in p][0]
def say(good, name):
    print(('ok ' if good else 'not ok ') + name)
say(abs(mine['long'][0] / told['long'] - 1) < 0.02 and mine['long'][1] >= 3,
    'wait-over-several-windows-is-charged-once')
say(abs(mine['open'][0] / told['open'] - 1) < 0.02 and mine['open'][1] >= 5,
    'wait-as-long-as-its-program-is-charged-once')
say(other['open'][1] >= 5 and abs(other['open'][0] / duration - 1) < 0.05 and most < 1.05,
    'wait-from-before-the-profiler-is-charged-window-by-window')
EOP

# --- a frozen thread waits, though it asked for nothing -------------------------------------------
group=
for g in /sys/fs/cgroup /sys/fs/cgroup/unified; do
    [ -e $g/cgroup.procs ] && mkdir "$g/ebpfprofiler-test-$$" 2>/dev/null && group=$g/ebpfprofiler-test-$$ && break
done
if [ -z "$group" ]; then
    mkdir -p "$tmp/cgroup" && mount -t cgroup2 none "$tmp/cgroup" 2>/dev/null &&
        mkdir "$tmp/cgroup/ebpfprofiler-test-$$" && group=$tmp/cgroup/ebpfprofiler-test-$$
fi
if [ -n "$group" ]; then
    "$tmp/waits_fp" spin 16 >/dev/null & spinner=$!
    echo $spinner >"$group/cgroup.procs"
    "$bin" record -e offcpu -d 11 -p $spinner -o "$tmp/frozen.pb.gz" 2>"$tmp/frozen.err" & recorder=$!
    sleep 7
    echo 1 >"$group/cgroup.freeze"
    sleep 1
    echo 0 >"$group/cgroup.freeze"
    wait $recorder
    kill $spinner 2>/dev/null
    wait $spinner 2>/dev/null
    check frozen-time-is-a-wait-and-says-so python3 - "$tmp/frozen.pb.gz" <<'EOP'
import sys
sys.path.insert(0, 'tests/live')
from pprof import Profile
p = Profile(sys.argv[1], 'offcpu')
frozen = {}
for v, s, l in p.samples:
    if l.get('wait') == 'frozen' and 'spin' in [f[0] for f in s]:
        frozen[l['thread.name']] = frozen.get(l['thread.name'], 0) + v
print({k: '%.3f s' % (v / 1e9) for k, v in frozen.items()})
# Two threads of one name, a second each.
total = sum(frozen.values()) / 1e9
sys.exit(0 if 1.2 < total < 2.2 else 1) # each when it next gets a CPU
EOP
    rmdir "$group" 2>/dev/null
    case $group in "$tmp"/*) umount "$tmp/cgroup" ;; esac
else
    no frozen-time-is-a-wait-and-says-so
fi

# --- locks --------------------------------------------------------------------------------------
record lock -e lock --offcpu-dwarf -- "$tmp/waits_tables" lock 4
check lock-profile-names-mutex-and-holder python3 - "$tmp/lock.pb.gz" "$tmp/lock.json" <<'EOP'
import json, sys
sys.path.insert(0, 'tests/live')
from pprof import Profile
told = json.load(open(sys.argv[2]))
p = Profile(sys.argv[1], 'lock')
at, held = 0, 0
for v, s, l in p.samples:
    names = [f[0] for f in s]
    if l.get('lock.address') != told['address']:
        continue
    at += v
    other = {'lock-a': 'lock-b', 'lock-b': 'lock-a'}.get(l['thread.name'])
    held += v if l.get('lock.holder') == other else 0
print(told, 'at the mutex %.3f s, of which %.1f %% say who had it' % (at / 1e9, 100 * held / max(at, 1)))
sys.exit(0 if abs(at / told['lock'] - 1) < 0.03 and held > 0.95 * at else 1)
EOP

# --- pages that are not there ---------------------------------------------------------------------
gcc -O2 -fomit-frame-pointer -pthread -o "$tmp/faults" tests/live/faults.c || exit 1
for memory in shared uffd; do
    for what in spin sleep; do
        record "$memory-$what" -e cpu,offcpu -F 9 --offcpu-dwarf --offcpu-min-ms 4 -- "$tmp/faults" $memory $what 5
    done
done
cat >"$tmp/judge_faults.py" <<'EOP'
import json, sys
sys.path.insert(0, 'tests/live')
from pprof import Profile
tmp, memory, what = sys.argv[1:]
t = 'cpu' if what == 'spin' else 'offcpu'
told = json.load(open('%s/%s-%s.json' % (tmp, memory, what)))
p = Profile('%s/%s-%s.pb.gz' % (tmp, memory, what), t)
at = whole = 0
for v, s, l in p.samples:
    user = [f[0] for f in s if f[1] != '[kernel.kallsyms]']
    if 'busy' in user:
        at += v
        whole += v * (user.count('level') == 40 and 'base' in user)
print(memory, what, told, 'in busy() %.3f s, whole %.1f %%' % (at / 1e9, 100 * whole / max(at, 1)))
print([c for c in p.comments if 'stacks' in c])
if memory == 'shared':
    sys.exit(0 if at > 5e8 and whole > 0.85 * at else 1)
# Nobody waits for a page that nobody serves, and the cause has a name.
sys.exit(0 if at > 5e8 and told['rounds'] > 15 and told['worst'] < 2e9 and
         ('sleep' == what or any('not resident' in c for c in p.comments)) else 1)
EOP
check walks-cut-by-missing-pages-are-finished-on-cpu python3 "$tmp/judge_faults.py" "$tmp" shared spin
check walks-cut-by-missing-pages-are-finished-off-cpu python3 "$tmp/judge_faults.py" "$tmp" shared sleep
check pages-of-userfaultfd-are-left-alone-on-cpu python3 "$tmp/judge_faults.py" "$tmp" uffd spin
check pages-of-userfaultfd-are-left-alone-off-cpu python3 "$tmp/judge_faults.py" "$tmp" uffd sleep
