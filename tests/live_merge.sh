#!/bin/sh
# Python, native code, Python again: an extension module, a ctypes callback and a sort with a key
# show each frame at its place, and none of the interpreter's loop. VERSIONS="cpython-3.13 ..."
: "${B:=build}" "${SECONDS_EACH:=4}"
tmp=$(mktemp -d)
pid=
trap 'kill $pid 2>/dev/null; rm -rf "$tmp"' EXIT
gcc -O2 -shared -fPIC -o "$tmp/ours.so" tests/live/merge_ext.c || { echo "not ok builds"; exit 1; }
sh tests/runtimes/get.sh list 2>/dev/null >"$tmp/list"
one=0 other=0
[ "$(nproc)" -lt 2 ] || other=1
for name in ${VERSIONS:-cpython-3.11-shared cpython-3.12-shared cpython-3.13-shared cpython-3.13}; do
    command=$(awk -v n="$name" '$1 == n { print $2 }' "$tmp/list")
    # Where it is not laid out, the distribution's own does.
    [ -n "$command" ] || [ "$name" != cpython-3.13 ] || command=$(command -v python3)
    [ -n "$command" ] || continue
    : >"$tmp/ready"
    taskset -c $one "$command" tests/live/merge.py "$tmp" >"$tmp/ready" 2>"$tmp/err" &
    pid=$!
    n=0
    while ! grep -q ready "$tmp/ready" && [ $n -lt 300 ]; do
        sleep 0.1
        n=$((n + 1))
    done
    taskset -c $other "$B/ebpfprofiler" record -p $pid -F 499 -d "$SECONDS_EACH" --force -o "$tmp/profile" 2>>"$tmp/err"
    kill $pid
    wait $pid 2>/dev/null
    if python3 tests/live/merge.py judge "$tmp/profile" >"$tmp/said" 2>&1; then
        echo "ok native-frames-stand-between-python-$name"
    else
        echo "not ok native-frames-stand-between-python-$name"
        cat "$tmp/err"
    fi
    cat "$tmp/said"
done
