#!/bin/sh
# The unit file: the daemon really runs within its limits, and each capability that it gives is
# worth what doctor says: without it that is lost, and nothing else. docs/capabilities.md has the
# table that is printed.
: "${B:=build}"
dir=$(mktemp -d -p /var/lib ebpfprofiler.test.XXXXXX) # what is below /tmp is hidden by PrivateTmp=
daemon= programs= ear=
restrict=$(cat /proc/sys/kernel/kptr_restrict)
cleanup() {
    for p in $daemon $programs $ear; do kill -9 $p 2>/dev/null; done
    echo "$restrict" >/proc/sys/kernel/kptr_restrict
    rm -rf "$dir"
}
trap cleanup EXIT
unit=dist/ebpfprofiler.service
check() { name=$1; shift; if "$@"; then echo "ok $name"; else echo "not ok $name: $*"; [ ! -e "$dir/log" ] || tail -3 "$dir/log"; fi; }
wait_for() { # seconds command...
    n=$(($1 * 10)); shift
    while [ $n -gt 0 ]; do "$@" >/dev/null 2>&1 && return 0; sleep 0.1; n=$((n - 1)); done
    return 1
}
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')

# --- what systemd says of it
level=$(systemd-analyze security --offline=true --no-pager "$unit" | tail -1)
echo "$level"
check exposure-is-low sh -c "systemd-analyze security --offline=true --threshold=35 $unit >/dev/null"

# --- all that a profile can lack, in processes of another user
chmod 755 "$dir"
mkdir "$dir/store"
cp "$B/ebpfprofiler" tests/live/confine.py "$dir"
gcc -O0 -fno-omit-frame-pointer -o "$dir/open" tests/live/deep.c
cp "$dir/open" "$dir/gone"; cp "$dir/open" "$dir/secret"; cp "$(command -v dd)" "$dir/sys"
other="setpriv --reuid 64124 --regid 64124 --clear-groups"
chown 64124 "$dir/secret"; chmod 711 "$dir/secret"
for p in open secret gone; do nice -n 5 $other "$dir/$p" 40 0 600 & programs="$programs $!"; done
nice -n 5 $other "$dir/sys" if=/dev/zero of=/dev/null bs=1 2>/dev/null & programs="$programs $!"
# In a mount namespace of its own, as in a container: nobody outside has its path.
mkdir "$dir/box"
nice -n 5 unshare -m sh -c "mount -t tmpfs none '$dir/box' && cp '$dir/open' '$dir/box/boxed' && exec $other '$dir/box/boxed' 40 0 600" & programs="$programs $!"
sleep 0.5; rm "$dir/gone"
echo 1 >/proc/sys/kernel/kptr_restrict # addresses of the kernel for CAP_SYSLOG only, as on most hosts
cat >"$dir/c.ini" <<EOS
[ebpf_profiler]
enabled = true
sample_hz = 97
upload_interval_s = 2
cpu_budget = 100
offcpu = false
[store]
path = $dir/store
[web]
listen = 127.0.0.1:$port
EOS
confined="/usr/bin/python3 tests/live/confine.py $unit $dir" # execs: its pid is the command's
windows() { [ "$(grep -c 'window of' "$dir/log")" -ge "$1" ]; }
run_without() { # capability or nothing: what the profiles say into $said
    rm -rf "$dir/store"; mkdir -m 700 "$dir/store"; chown 64123:64123 "$dir/store"
    $confined ${1:+--without $1} -- "$dir/ebpfprofiler" run -c "$dir/c.ini" 2>"$dir/log" & daemon=$!
    # The first window has the making of tables in it.
    wait_for 60 eval 'windows 4 || ! kill -0 $daemon'
    kill -TERM $daemon 2>/dev/null; wait $daemon; rc=$?; daemon=
    said=$(python3 tests/live/rights.py "$dir/store/profiles" open secret gone boxed sys | cut -d' ' -f1-4,6)
}
doctor_without() { $confined ${1:+--without $1} -- "$dir/ebpfprofiler" doctor >"$dir/doctor" 2>&1; }

doctor_without ''
check doctor-exit-0 test $? -eq 0
check doctor-misses-nothing grep -q 'profiling can run here: 0 missing' "$dir/doctor"
check doctor-needs-no-more sh -c "! grep -E '^(limited|missing) *(CAP_|kallsyms|user|pid|BPF)' $dir/doctor"
run_without ''
check runs-and-ends-within-its-limits test "$rc" -eq 0
check with-all-nothing-is-lost test "$said" = 'named named named named named'
table="| nothing | | $said |"

lost() { # capability, what doctor says, what the profiles say
    doctor_without "$1"
    check "$1-doctor-says-what" grep -q "limited $1 .*not held; cost: $2" "$dir/doctor"
    check "$1-doctor-says-it-can-run" grep -q 'profiling can run here' "$dir/doctor"
    run_without "$1"
    echo "without $1: open, secret, gone, boxed, kernel: $said"
    check "$1-loses-that-and-nothing-else" test "$said" = "$3"
    table="$table
| $1 | $(sed -n "s/^limited $1 .*cost: \([^;]*\);.*/\1/p" "$dir/doctor") | $said |"
}
# Linux 6.15 and newer show mappings to CAP_PERFMON; the files of this host have their paths.
if setpriv --reuid 64123 --regid 64123 --clear-groups --inh-caps -all,+perfmon --ambient-caps -all,+perfmon \
    head -c 1 /proc/$$/maps 2>/dev/null | grep -q .; then
    lost CAP_SYS_PTRACE "of other users' processes, files in containers and those that were deleted" 'named named bare bare named'
else
    lost CAP_SYS_PTRACE "mappings of other users' processes cannot be read" 'bare bare bare bare named'
fi
lost CAP_SYSLOG 'kernel frames have no names' 'named named named named bare'
lost CAP_DAC_READ_SEARCH 'files that only other users may read, and those of other users that were' 'named bare bare named named'
lost CAP_CHECKPOINT_RESTORE 'mapped files that were deleted or replaced' 'named named bare named named'

vital() { # capability
    doctor_without "$1"
    check "$1-doctor-exit-1" test $? -eq 1
    check "$1-doctor-says-so" grep -q "^missing $1 .*not held; cost: .*nothing can be profiled" "$dir/doctor"
    run_without "$1"
    check "$1-run-exit-3" test "$rc" -eq 3
    check "$1-run-names-it" grep -q "cannot run here: $1: not held" "$dir/log"
    table="$table
| $1 | $(sed -n "s/^missing $1 .*cost: \([^;]*\);.*/\1/p" "$dir/doctor") | does not start, exit status 3 |"
}
vital CAP_BPF
vital CAP_PERFMON
echo "$table"
