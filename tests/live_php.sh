#!/bin/sh
# What `dump` says of PHP that waits, against PHP's own account of it, in every one that
# tests/runtimes/get.sh has laid out: function, file and line of each frame. php-fpm: a worker that serves
# a request, one that is idle, and the request's labels. Frames of C between those of PHP. Threads that run
# no PHP. VERSIONS="php-8.4 ..." restricts it.
: "${B:=build}"
runtime=php
. tests/live/runtimes.sh
root_of() { sh tests/runtimes/get.sh roots "$1" | awk '{ print $3 }'; }

while read -r name command; do
    case $name in *-fpm) continue ;; esac
    wanted "$name" || continue
    park "equal-to-its-own-account-$name" "$command" $programs/park.php
done <"$tmp/list"

# --- php-fpm

# fpm NAME: two workers, one of which serves a request; $idle is the other one.
fpm() {
    rm -f "$tmp/socket"
    FPM_SOCKET=$tmp/socket FPM_CHILDREN=2 "$(command_of "$1")" -y $programs/fpm.conf >"$tmp/log" 2>&1 &
    fpm=$! pid=$! pids=$!
    wait_until test -S "$tmp/socket"
    start python3 $programs/fcgi.py "$tmp/socket" "$PWD/$programs/park.php" "d=3&token=secret"
    idle=$(tr ' ' '\n' <"/proc/$fpm/task/$fpm/children" | grep -v "^$it\$" | grep .)
}

end_fpm() {
    kill $pid $fpm 2>/dev/null
    wait $pid $fpm 2>/dev/null
    pid= pids=
}

while read -r name command; do
    case $name in *-fpm) ;; *) continue ;; esac
    wanted "$name" || continue
    fpm "$name"
    equal "a-worker-that-serves-$name"
    "$bin" dump "$idle" >"$tmp/idle" 2>&1
    check "an-idle-worker-has-no-frame-$name" grep -q 'no frame of the runtime' "$tmp/idle"
    end_fpm
done <"$tmp/list"

# daemon NAME LABELS: as its configuration says, for three windows; the labels in its profiles.
daemon() {
    mkdir "$tmp/$1"
    printf '%s\n' '[ebpf_profiler]' 'enabled = true' 'upload_interval_s = 2' 'offcpu = true' \
        'cpu_budget = 100' 'runtime_stacks = php' '[runtime.php]' "labels = $2" '[store]' \
        "path = $tmp/$1" '[upload]' 'url =' >"$tmp/$1.ini"
    "$bin" run -c "$tmp/$1.ini" 2>"$tmp/$1.log" &
    daemon=$!
    n=0
    until ls "$tmp/$1/profiles/"*-php_wall-* >/dev/null 2>&1 || [ $n -gt 300 ]; do
        sleep 0.1
        n=$((n + 1))
    done
    kill $daemon
    wait $daemon
    for f in "$tmp/$1/profiles/"*-php_wall-*; do go tool pprof -tags "$f" 2>/dev/null; done >"$tmp/$1.tags"
}
if wanted php-8.4-fpm; then
    fpm php-8.4-fpm
    daemon on true
    daemon off false
    end_fpm
    check script-of-the-request grep -q "$programs/park.php" "$tmp/on.tags"
    check uri-of-the-request grep -q ' /park.php$' "$tmp/on.tags"
    check never-what-follows-its-question-mark sh -c "! grep -q secret '$tmp/on.tags'"
    check no-labels-unless-asked-for sh -c "grep -q 'process.executable' '$tmp/off.tags' && ! grep -q request '$tmp/off.tags'"
fi

# --- frames of C

for name in php-7.4 php-8.2 php-8.4 php-8.5 php-8.4-jit php-8.4-zts; do
    wanted $name || continue
    start "$(command_of $name)" $programs/park.php array_mapped sorted generator
    "$bin" dump --native --json "$it" >"$tmp/dump" 2>"$tmp/err"
    check "frames-of-both-kinds-at-their-places-$name" judge order "$tmp/dump" \
        '(native)' sleep wait_sleep bottom next_kind yielding '(native)' generator next_kind compare \
        '(native)' usort sorted next_kind '(native)' array_map array_mapped next_kind '{main}' '(native)'
    stop
    [ $name != php-7.4 ] || continue
    # A fiber has a native stack of its own; frames of those that resumed it follow without one.
    start "$(command_of $name)" $programs/park.php array_mapped fiber sorted
    "$bin" dump --native --json "$it" >"$tmp/dump" 2>"$tmp/err"
    check "and-within-fibers-$name" judge order "$tmp/dump" \
        '(native)' sleep wait_sleep bottom next_kind compare '(native)' usort sorted next_kind '(native)' \
        Fiber::start in_fiber Fiber::resume fiber next_kind array_map array_mapped next_kind '{main}'
    stop
done

# --- threads

gcc -O2 -shared -fPIC -Wl,-z,nodelete -o "$tmp/threads.so" tests/live/php_threads.c -lpthread || no builds
gcc -O2 -o "$tmp/host" tests/live/php_host.c -ldl -lpthread || no builds
if wanted php-8.2; then
    start "$(command_of php-8.2)" -d display_errors=0 -d extension="$tmp/threads.so" $programs/park.php sorted
    check has-threads-of-others test "$(ls "/proc/$it/task" | wc -l)" = 3
    equal threads-of-others-have-no-php-on-them
    "$bin" record -p "$it" -d 3 --format folded -o "$tmp/folded" 2>"$tmp/err"
    check nor-where-they-run sh -c "cat '$tmp/folded'; grep -q spin_beside '$tmp/folded' && ! grep -q wait_sleep '$tmp/folded'"
    "$bin" record -p "$it" -d 3 -e php_wall --format folded -o "$tmp/folded" 2>"$tmp/err"
    # One thread's time, not three's.
    check nor-in-the-time-of-php sh -c "cat '$tmp/folded'; grep -q wait_sleep '$tmp/folded' &&
        ! grep -q spin_beside '$tmp/folded' && awk '{ s += \$NF } END { exit s > 3.5e9 }' '$tmp/folded'"
    stop
fi
for name in php-8.2-embed php-8.4-zts; do
    wanted $name || continue
    root=$(root_of $name)
    lib=$(find "$root" -type f -name 'libphp*.so' | head -n 1)
    start "$root/lib64/ld-linux-x86-64.so.2" --library-path "$root/usr/lib/x86_64-linux-gnu:$(dirname "$lib")" \
        "$tmp/host" "$lib" $programs/park.php sorted
    equal "run-by-another-thread-than-the-first-$name"
    stop
done
