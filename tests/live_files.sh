#!/bin/sh
# Hostile and odd files around real processes: libraries covered, replaced, removed; programs
# without a file; other roots, mount namespaces, file systems that hang; names made to confuse.
# Expected frames come from how tests/live/files_*.c are built.
: "${B:=build}"
parts=${*:-files late hang many compat} # or the ones named
bin=$(readlink -f "$B/ebpfprofiler")
live=$PWD/tests/live
tmp=$(mktemp -d)
pids= daemon= fuse= mounted= max_maps=
cgroup=/sys/fs/cgroup
[ -d $cgroup/unified ] && cgroup=$cgroup/unified
cleanup() {
    kill -9 $fuse 2>/dev/null # first: it frees whoever waits for it
    kill -9 $pids $daemon 2>/dev/null
    wait 2>/dev/null
    [ -z "$mounted" ] || umount -l "$mounted" 2>/dev/null
    [ -z "$max_maps" ] || echo "$max_maps" >/proc/sys/vm/max_map_count
    rmdir "$cgroup"/ebpfprofiler-test*/* "$cgroup"/ebpfprofiler-test* 2>/dev/null
    [ -n "$KEEP" ] || rm -rf "$tmp"
}
trap cleanup EXIT
trap 'exit 1' INT TERM
umask 022
chmod 755 "$tmp"
check() { name=$1; shift; if "$@"; then echo "ok $name"; else echo "not ok $name"; echo "$@"; tail -5 "$tmp/log"; fi; }
wait_for() { # seconds command...
    n=$(($1 * 20)); shift
    while [ $n -gt 0 ]; do "$@" >/dev/null 2>&1 && return 0; sleep 0.05; n=$((n - 1)); done
    return 1
}

cc_lib() { # file name room shift [option]
    gcc -O2 -fomit-frame-pointer -fPIC -shared -DNAME="$2" -DROOM="$3" -DSHIFT="$4" $5 -o "$1" "$live/files_lib.c"
}
forged=-Wl,--build-id=0x0123456789abcdef0123456789abcdef01234567
gcc -O2 -fomit-frame-pointer -o "$tmp/app" "$live/files_app.c"
gcc -O2 -fomit-frame-pointer -Wl,--build-id=none -o "$tmp/app-noid" "$live/files_app.c"
gcc -O2 -fomit-frame-pointer -static -DSTATIC -o "$tmp/app-static" "$live/files_app.c"
gcc -O2 -o "$tmp/many" "$live/files_many.c"
gcc -O2 -o "$tmp/server" "$live/files_fuse.c"
cc_lib "$tmp/good.so" good 104 16
cc_lib "$tmp/bad.so" bad 360 200
cc_lib "$tmp/good-noid.so" good 104 16 -Wl,--build-id=none
cc_lib "$tmp/bad-noid.so" bad 360 200 -Wl,--build-id=none
cc_lib "$tmp/good-forged.so" good 104 16 $forged
cc_lib "$tmp/bad-forged.so" bad 360 200 $forged
good='good_spin good_inner good_outer entry app_calls main'
bad='bad_spin bad_inner bad_outer entry app_calls main'
own='app_spin app_inner app_outer main'

expect() { printf '%s|%s|%s\n' "$1" "$2" "$3" >>"$tmp/cases"; } # name executable frames
# Starts a command and waits until the program in it has loaded all it needs. ready: its file.
start() {
    nice -n 10 "$@" 2>"$tmp/start-err" &
    pids="$pids $!"
    wait_for 15 test -s "$ready" || { echo "not ok start-of: $*"; cat "$tmp/start-err"; return 1; }
    pids="$pids $(cat "$ready")"
    waiting="$waiting $(cat "$ready")"
}
# A folder of its own, with the program under a name of its own.
place() { # name [program]
    d=$tmp/$set/$1 ready=$d/ready
    mkdir -p "$d"
    cp "$tmp/${2:-app}" "$d/$set-$1"
    exe=$d/$set-$1
}
# The same in the root of a chroot, with what a dynamic program needs.
root() { # name
    place "$1"
    for f in $(ldd "$exe" | grep -o '/[^ ]*'); do mkdir -p "$d$(dirname "$f")"; cp "$f" "$d$f"; done
    cp "$tmp/good.so" "$d/lib.so"
}

start_covered() { # name suffix
    place "$1"
    cp "$tmp/good$2.so" "$d/lib.so"
    start unshare -m sh -c "'$exe' '$ready' '$d/lib.so' & while [ ! -s '$ready' ]; do sleep 0.02; done
        mount --bind '$tmp/bad$2.so' '$d/lib.so'; : >'$d/covered'; wait"
    wait_for 5 test -e "$d/covered"
    expect "$1" "$set-$1" "$good"
}

start_upgraded() { # name suffix
    place "$1-old"
    old=$exe
    cp "$tmp/good$2.so" "$d/lib.so"
    start "$old" "$ready" "$d/lib.so"
    lib=$d/lib.so
    cp "$tmp/bad$2.so" "$d/new"
    mv "$d/new" "$lib"
    expect "$1-old-one" "$set-$1-old" "$good"
    place "$1-new"
    start "$exe" "$ready" "$lib"
    expect "$1-new-one" "$set-$1-new" "$bad"
}

start_deleted() {
    place deleted-executable
    start "$exe" "$ready"
    rm "$exe"
    expect deleted-executable "$set-deleted-executable" "$own"
    place deleted-without-id app-noid
    start "$exe" "$ready"
    rm "$exe"
    expect deleted-executable-without-build-id "$set-deleted-without-id" "$own"
    place deleted-library
    cp "$tmp/good.so" "$d/lib.so"
    start "$exe" "$ready" "$d/lib.so"
    rm "$d/lib.so"
    expect deleted-library "$set-deleted-library" "$good"
    place memfd
    start python3 -c '
import os, sys
name, program, ready = sys.argv[1:]
fd = os.memfd_create(name)
os.write(fd, open(program, "rb").read())
os.execve(fd, [name, ready], os.environ)' "$set-memfd" "$tmp/app" "$ready"
    expect memfd-executable "memfd:$set-memfd" "$own"
}

start_mounted() {
    for id in "" -noid; do
        place overlay$id "app$id"
        mkdir -p "$d/lower" "$d/top" "$d/seen"
        mv "$exe" "$d/lower/"
        cp "$tmp/good$id.so" "$d/lower/lib.so"
        start unshare -m sh -c "mount -t tmpfs none '$d/top' && mkdir '$d/top/upper' '$d/top/work' &&
            mount -t overlay none -o lowerdir='$d/lower',upperdir='$d/top/upper',workdir='$d/top/work' '$d/seen' &&
            exec '$d/seen/$set-overlay$id' '$ready' '$d/seen/lib.so'"
        expect overlayfs$id "$set-overlay$id" "$good"
    done
    place tmpfs
    mkdir "$d/t"
    start unshare -m sh -c "mount -t tmpfs none '$d/t' && cp '$exe' '$d/t/' && cp '$tmp/good.so' '$d/t/lib.so' &&
        exec '$d/t/$set-tmpfs' '$ready' '$d/t/lib.so'"
    expect tmpfs "$set-tmpfs" "$good"
}

start_roots() {
    root chroot
    start chroot "$d" "/$set-chroot" /ready /lib.so
    expect chroot "$set-chroot" "$good"
    place self-chroot
    mkdir "$d/empty"
    cp "$tmp/good.so" "$d/lib.so"
    start "$exe" -r "$d/empty" "$ready" "$d/lib.so"
    expect chroot-after-loading "$set-self-chroot" "$good"
    root pivot
    start unshare -m python3 -c '
import ctypes, os, sys
root, prog = sys.argv[1:]
libc = ctypes.CDLL(None, use_errno=True)
def call(fn, *args):
    if fn(*args):
        raise OSError(ctypes.get_errno(), fn.__name__)
call(libc.mount, root.encode(), root.encode(), None, 4096, None)  # MS_BIND
os.chdir(root)
call(libc.syscall, 155, b".", b".")  # pivot_root: the old root lies over the new one
call(libc.umount2, b".", 2)  # MNT_DETACH
os.execv(prog, [prog, "/ready", "/lib.so"])' "$d" "/$set-pivot"
    expect own-mount-namespace-and-root "$set-pivot" "$good"
}

start_names() {
    place names
    odd="$d/$(printf 'new\nline')/$(printf 'esc\033[31m')"
    mkdir -p "$odd"
    cp "$tmp/good.so" "$odd/l;i b.so"
    start "$exe" "$ready" "$odd/l;i b.so"
    expect path-with-newline-and-escape "$set-names" "$good"
    place newline
    name=$(printf '%s-new\nline;1 2' "$set")
    cp "$exe" "$d/$name"
    start "$d/$name" "$ready"
    newline_pid=$(cat "$ready")
    long=$tmp/$set/long
    part=$(printf '%0200d' 0)
    while [ ${#long} -lt 3700 ]; do long=$long/$part; done
    long=$long/$(printf "%0$((3980 - ${#long}))d" 0 | tail -c 240)
    mkdir -p "$long"
    ready=$tmp/$set/long-ready
    cp "$tmp/app" "$long/$set-long"
    start "$long/$set-long" "$ready"
    echo "path of ${#long} bytes"
    expect path-of-4000-bytes "$set-long" "$own"
}

start_others() {
    place user
    chmod 777 "$d"
    start setpriv --reuid=65534 --regid=65534 --clear-groups "$exe" -n "$ready"
    expect other-user-not-dumpable "$set-user" "$own"
}

start_cgroups() {
    [ -w $cgroup/cgroup.procs ] || { echo "skip odd-cgroups: no cgroup v2 under $cgroup"; return; }
    parent=$cgroup/ebpfprofiler-test-$set
    odd=$parent/$(printf 'a"b, c\377%0180d' 7)
    fake=$parent/$1
    mkdir -p "$odd" "$fake"
    place cgroup
    start sh -c 'echo $$ >"$1"/cgroup.procs; exec "$2" "$3"' - "$odd" "$exe" "$ready"
    expect odd-cgroup-name "$set-cgroup" "$own"
    place fake-container
    start sh -c 'echo $$ >"$1"/cgroup.procs; exec "$2" "$3"' - "$fake" "$exe" "$ready"
    expect fake-container "$set-fake-container" "$own"
}

start_set() { # before|after, cgroup id
    set=$1
    : >"$tmp/cases"
    mkdir "$tmp/$set"
    start_covered covered-library ""
    start_covered covered-library-without-build-id -noid
    start_covered covered-library-same-build-id -forged
    start_deleted
    start_mounted
    start_upgraded upgrade ""
    start_upgraded upgrade-without-build-id -noid
    start_upgraded upgrade-same-build-id -forged
    start_roots
    start_names
    start_others
    start_cgroups "$2"
}
go() { kill -USR1 $waiting; waiting=; }
stop_all() { kill -9 $pids 2>/dev/null; wait $pids 2>/dev/null; pids=; }

conf() { # seconds of a window
    printf '[ebpf_profiler]\nenabled = true\nsample_hz = 199\nupload_interval_s = %s\nmax_frames = 512\ncpu_budget = 100\n[store]\npath = %s/store\n' \
        "$1" "$tmp" >"$tmp/c.ini"
}
start_daemon() {
    "$@" run -c "$tmp/c.ini" 2>"$tmp/log" & daemon=$!
    wait_for 10 grep -q 'sampling at' "$tmp/log"
}
windows() { grep -c 'window of' "$tmp/log"; }
wanted() { case " $parts " in *" $1 "*) ;; *) return 1 ;; esac; }
more_than() { [ "$(windows)" -gt "$1" ]; }
# Throws away what is stored after some windows (while tables are made), then waits for others.
collect() { # windows to skip, windows to keep
    wait_for 30 more_than $(($(windows) + $1 - 1))
    rm -rf "$tmp/store/profiles"/*
    wait_for 30 more_than $(($(windows) + $2 - 1))
    sleep 0.3 # the line is logged before the last file is there
}
# The programs rest meanwhile.
judge() {
    kill -STOP $pids 2>/dev/null
    python3 "$live/files_judge.py" "$tmp/store" "$tmp/cases" "$@"
    kill -CONT $pids 2>/dev/null
}
# A thread that waits for an answer which nothing can interrupt stays until its file system ends;
# "main" asks for the main thread only. Leaves the ms it took in $took.
ended() { ! kill -0 $daemon || { grep -q '^State:.Z' /proc/$daemon/status && [ "$1" = main -o "$(ls /proc/$daemon/task | wc -l)" = 1 ]; }; }
stop_daemon() { # [main]
    begin=$(date +%s%N)
    kill -TERM $daemon
    wait_for 4 ended "$1"
    took=$((($(date +%s%N) - begin) / 1000000))
    kill -9 $daemon 2>/dev/null
    [ "$1" = main ] || wait $daemon 2>/dev/null
    daemon=
}

# --- files that are odd before the daemon starts, then the same while it runs
test_files() {
    id_before=$(printf 'a1%.0s' $(seq 32))
    id_after=$(printf 'b2%.0s' $(seq 32))
    conf 2
    start_set before "$id_before"
    go
    start_daemon "$bin"
    collect 3 4
    judge before
    check before-fake-container-is-a-service sh -c "ls '$tmp/store/profiles' | grep -q -- '-cpu-$id_before.pb.gz'"
    stop_all
    start_set after "$id_after"
    go
    collect 3 4
    judge after
    check after-fake-container-is-a-service sh -c "ls '$tmp/store/profiles' | grep -q -- '-cpu-$id_after.pb.gz'"
    check files-of-the-store-stay-in-it sh -c "! ls -R '$tmp/store' | grep -q '[^A-Za-z0-9._:/ -]'"

    # --- a name with a newline is one line of folded text
    "$bin" record -d 1 -p "$newline_pid" --format folded -o - >"$tmp/folded" 2>/dev/null
    check folded-lines-are-whole python3 - "$tmp/folded" <<'END'
import re, sys
text = open(sys.argv[1], 'rb').read()
lines = text.decode().split('\n')
assert lines.pop() == '' and lines, text
for line in lines:
    # executable, then _start; no control byte, nothing that ends a line early
    assert re.fullmatch(r'after-new[^;]*[^;]*;[^;]+(;[^;]+)* \d+', line) and line.isprintable(), line
assert any('main;app_outer;app_inner;app_spin ' in line for line in lines), lines
END
    stop_all
    stop_daemon
    check odd-files-sigterm-within-2-s test $took -le 2000
}

begin_set() { set=$1; : >"$tmp/cases"; mkdir "$tmp/$set"; rm -rf "$tmp/store"; }

# --- a library that is loaded late; the daemon sees /proc with hidepid
test_late() {
    begin_set late
    conf 2
    place dlopen
    cp "$tmp/good.so" "$d/lib.so"
    start "$exe" -l "$ready" "$d/lib.so"
    late=$waiting
    place hidden
    chmod 777 "$d"
    start setpriv --reuid=65534 --regid=65534 --clear-groups "$exe" -n "$ready"
    expect hidepid-other-user-not-dumpable "$set-hidden" "$own"
    go
    start_daemon unshare -m sh -c 'mount -t proc -o hidepid=invisible proc /proc; exec "$0" "$@"' "$bin"
    collect 2 2
    judge late
    stop_daemon
    # 8 s of one process; its library comes after 2 s and is whole from the next second on.
    (sleep 2; kill -USR1 $late) &
    "$bin" record -d 8 -F 199 -p $late -o "$tmp/late.pb.gz" 2>"$tmp/log"
    python3 - "$tmp/late.pb.gz" "$good _start" <<'END'
import sys
sys.path.insert(0, 'tests/live')
from pprof import Profile
want, last = sys.argv[2].split()[:-1], sys.argv[2].split()[-1]
right = wrong = 0
for value, stack, labels in Profile(sys.argv[1]).samples:
    names = [f[0] for f in stack if f[1] != '[kernel.kallsyms]']
    if any(f[1].endswith('/lib.so') for f in stack):
        good = names[:len(want)] == want and names[-1] == last
        right += value * good / 1e9
        wrong += value * (not good) / 1e9
print('dlopen: %.2f s of CPU time whole, %.2f s before' % (right, wrong))
print(('ok' if wrong <= 1 and right >= 1 else 'not ok') + ' library-loaded-late-has-its-table-within-1-s')
END
    stop_all
}

start_fuse() { # signal that ends its answers
    mounted=$tmp/fuse-$1
    umount -l "$mounted" 2>/dev/null
    mkdir -p "$mounted"
    ready=$tmp/$set/fuse-ready
    rm -f "$ready"
    "$tmp/server" "$mounted" "$tmp/app" "$ready" 2>"$tmp/start-err" & fuse=$!
    wait_for 5 test -e "$ready"
}
stop_fuse() { kill -9 $fuse; wait $fuse 2>/dev/null; umount -l "$mounted"; fuse=; }
windows_go_on() { w=$(windows); sleep 5; [ $(($(windows) - w)) -ge 4 ]; }

# --- file systems that hang: below a running program; below a process's root
test_hang() { # executable|root USR1|USR2
    what=$1-on-a-file-system-that-hangs-$2
    begin_set "hang-$1-$2"
    conf 1
    if ! start_fuse "$2"; then
        echo "skip $what: no FUSE: $(cat "$tmp/start-err")"
        kill -9 $fuse 2>/dev/null
        return
    fi
    start_daemon "$bin"
    place neighbour
    cp "$tmp/good.so" "$d/lib.so"
    start "$exe" "$ready" "$d/lib.so"
    expect neighbour "$set-neighbour" "$good"
    if [ "$1" = executable ]; then
        ready=$tmp/$set/prog-ready
        start "$tmp/fuse-$2/prog" "$ready"
    else
        # Its library is rewritten, so that the mapped file is not what it was any more.
        place rooted
        cp "$tmp/good.so" "$d/lib.so"
        start "$exe" -o -r "$tmp/fuse-$2" "$ready" "$d/lib.so"
        cat "$tmp/bad.so" >"$d/lib.so"
    fi
    kill -"$2" $fuse
    go
    sleep 2
    place fresh
    cp "$tmp/bad.so" "$d/lib.so"
    start "$exe" "$ready" "$d/lib.so"
    expect fresh "$set-fresh" "$bad"
    go
    check "$what-windows-go-on" windows_go_on
    collect 2 3
    judge "$set"
    if [ "$2" = USR1 ]; then
        stop_daemon
        check "$what-sigterm-within-2-s" test $took -le 2000
    else
        stop_daemon main
        check "$what-main-thread-ends-within-2-s-of-sigterm" test $took -le 2000
    fi
    stop_fuse
    stop_all
}

ticks() { sed 's/.*) //' /proc/$daemon/stat | awk '{ print $12 + $13 }'; }
cost() { # what: of a CPU over 10 s; told, not judged: other work on the machine counts, too
    t=$(ticks); begin=$(date +%s%N)
    sleep 10
    cpu=$(echo "$(ticks) $t $(date +%s%N) $begin $(getconf CLK_TCK)" | awk '{ print 100 * ($1 - $2) / $5 / (($3 - $4) / 1e9) }')
    echo "cost of $1: $cpu % of a CPU"
}

# --- very many mappings, standing and changing
test_many() {
    max_maps=$(cat /proc/sys/vm/max_map_count)
    echo 300000 >/proc/sys/vm/max_map_count 2>/dev/null
    if [ "$(cat /proc/sys/vm/max_map_count)" -lt 140000 ]; then
        echo "skip 130000-mappings: vm.max_map_count cannot be raised"
        return
    fi
    begin_set crowd
    conf 2
    place other
    cp "$tmp/good.so" "$d/lib.so"
    start "$exe" "$ready" "$d/lib.so"
    expect other-program-is-right "$set-other" "$good"
    go
    start_daemon "$bin"
    place host many
    start "$exe" "$tmp/good.so" 130000 "$ready"
    check 130000-mappings-are-there test "$(cat "$ready")" = 130000
    sleep 3
    cost 130000-mappings
    check up-with-130000-mappings kill -0 $daemon
    waiting=
    place churn many
    start "$exe" "$tmp/good.so" 130000 "$ready" 10000
    waiting=
    sleep 3
    # Beside the first one, which stays.
    cost churn-of-10000-mappings-a-second
    check up-under-churn-of-10000-mappings-a-second kill -0 $daemon
    rm -rf "$tmp/store/profiles"/*
    collect 1 2
    judge crowd
    stop_all
    stop_daemon
    check 130000-mappings-sigterm-within-2-s test $took -le 2000
    echo "$max_maps" >/proc/sys/vm/max_map_count
    max_maps=
}

# --- a 32-bit program is named and not unwound
test_compat() {
    if ! gcc -m32 -O2 -static -nostdlib -ffreestanding -fno-pic -o "$tmp/compat" "$live/files_compat.c" 2>/dev/null; then
        echo "# no 32-bit program: gcc -m32 makes none"
        return
    fi
    "$tmp/compat" 2>/dev/null & p=$!
    sleep 0.3
    if [ "$(readlink /proc/$p/exe)" != "$(readlink -f "$tmp/compat")" ]; then
        echo "# no 32-bit program: this kernel runs none"
        return
    fi
    pids="$pids $p"
    "$bin" record -d 2 -F 199 -p $p -o "$tmp/compat.pb.gz" 2>"$tmp/log"
    python3 - "$tmp/compat.pb.gz" <<'END'
import re, sys
sys.path.insert(0, 'tests/live')
from pprof import Profile
p = Profile(sys.argv[1])
stacks = [[f[0] for f in s if f[1] != '[kernel.kallsyms]'] for v, s, l in p.samples]
ends = [c for c in p.comments if c.startswith('user stacks')][0]
share = float((re.search(r'32-bit process, not unwound ([\d.]+)', ends) or [0, 0])[1])
print(stacks, ends)
good = share > 98 and stacks and all(s in (['compat_spin'], ['_start']) for s in stacks)
print(('ok' if good else 'not ok') + ' 32-bit-program-is-named-and-not-unwound')
END
    stop_all
}

wanted files && test_files
wanted late && test_late
if wanted hang; then
    test_hang executable USR1
    test_hang root USR1
    test_hang executable USR2
fi
wanted many && test_many
wanted compat && test_compat
true
