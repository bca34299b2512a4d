#!/bin/sh
# Ten thousand processes of about 50 ms each in 60 s, under the daemon: what hit them is named,
# and the daemon's memory and open files return to where they were.
: "${B:=build}"
tmp=$(mktemp -d)
daemon=
trap 'kill $daemon 2>/dev/null; wait $daemon 2>/dev/null; rm -rf "$tmp"' EXIT
umask 077
gcc -O1 -g -fno-omit-frame-pointer -mno-omit-leaf-frame-pointer -o "$tmp/flash" tests/live/flash.c
cat >"$tmp/conf.ini" <<EOF
[ebpf_profiler]
enabled = true
sample_hz = 99
upload_interval_s = 10
cpu_budget = 100
[store]
path = $tmp/store
EOF
"$B/ebpfprofiler" run -c "$tmp/conf.ini" 2>"$tmp/log" & daemon=$!
rss() { awk '/VmRSS/ {print $2}' /proc/$daemon/status; }
fds() { ls /proc/$daemon/fd | wc -l; }
sleep 3
"$tmp/flash" 600 170 >/dev/null # warm: buffers of the daemon reach their size
sleep 11
rss0=$(rss) fds0=$(fds)
"$tmp/flash" "${FLASHES:-10000}" 170
sleep 12
rss1=$(rss) fds1=$(fds)
kill -TERM $daemon
wait $daemon
cat "$tmp/log"
echo "memory $rss0 -> $rss1 kB, open files $fds0 -> $fds1"
[ "$fds0" -eq "$fds1" ] && echo "ok open-files-return" || echo "not ok open-files-return"
# 4 MB: allocator slack; 10,000 leaked images would be over 10 MB.
[ "$rss1" -le $((rss0 + 4096)) ] && echo "ok memory-returns" || echo "not ok memory-returns"
build_id=$(readelf -n "$tmp/flash" | sed -n 's/.*Build ID: //p')
python3 - "$tmp/store/profiles" "$build_id" <<'EOF'
import glob, sys
sys.path.insert(0, 'tests/live')
from pprof import Profile
total = named = mapped = burn = 0
for f in glob.glob(sys.argv[1] + '/*-cpu-*.pb.gz'):
    for value, stack, labels in Profile(f).samples:
        # The thread name comes from the kernel with the sample: it says whom the sample hit.
        # A child that has not executed yet is the parent's image, which has the same name.
        if labels.get('thread.name') != 'flash':
            continue
        total += value
        named += value * (labels.get('process.executable') == 'flash')
        user = [f for f in stack if f[1] != '[kernel.kallsyms]']
        mapped += value * all(f[1] for f in user)
        burn += value * any(f[0] == 'burn' and f[2] == sys.argv[2] for f in user)
print('flash: %.2f s sampled, executable named %.2f %%, all mappings named %.2f %%, in burn() %.1f %%' % (
    total / 1e9, 100 * named / total, 100 * mapped / total, 100 * burn / total))
print(('ok' if named >= 0.99 * total else 'not ok') + ' executable-of-99-percent-named')
print(('ok' if mapped >= 0.99 * total else 'not ok') + ' mappings-of-99-percent-named')
print(('ok' if burn > 0.2 * total else 'not ok') + ' functions-of-dead-processes-named')
EOF
