#!/bin/sh
# What `dump` says of threads that wait, against the interpreter's own account of them, in every
# CPython that tests/runtimes/get.sh has laid out: function, file and line of each frame. Then other
# ways to start one. VERSIONS="cpython-3.13 ..." restricts it.
: "${B:=build}"
runtime=cpython
. tests/live/runtimes.sh

while read -r name command; do
    wanted "$name" || continue
    park "equal-to-its-own-account-$name" "$command" $programs/park.py
done <"$tmp/list"

# other CASE NAME ARG...: only when that one is there. $with: an environment for it.
with=
other() {
    case=$1 command=$(command_of "$2")
    shift 2
    [ -n "$command" ] || return
    case " ${VERSIONS:-} " in "  ") park "$case" env $with "$command" "$@" ;; esac
}
for name in cpython-3.12-shared cpython-3.13 cpython-3.14 cpython-3.15; do
    other of-its-own-lock-in-a-second-interpreter-$name $name $programs/park.py isolated
done
# 20 threads, each in three interpreters at a time.
other twenty-threads-in-three-interpreters cpython-3.14 $programs/park.py -n 20 interpreters lock
other with-perf-trampolines-3.12 cpython-3.12-shared -X perf $programs/park.py
other with-perf-trampolines-3.14 cpython-3.14 -X perf $programs/park.py
with=RUNTIME_ENTER=loader
other started-by-the-dynamic-loader cpython-3.13 $programs/park.py
with=
other a-hundred-threads cpython-3.13 $programs/park.py -d 20 -n 34 sleep lock pipe
mkdir "$tmp/app" && cp $programs/park.py "$tmp/app/__main__.py"
other a-folder-as-program cpython-3.13 "$tmp/app" nested generator
other a-child-that-did-not-exec cpython-3.13 -c '
import os, runpy, sys
if os.fork():
    os.wait()
    sys.exit()
sys.argv = ["park.py", "nested", "lock"]
runpy.run_path("'$programs'/park.py", run_name="__main__")
'

gcc -O2 -o "$tmp/server" tests/live/cpython_embed.c -ldl -lpthread || no builds
for name in cpython-3.11-shared cpython-3.12-shared cpython-3.13-shared; do
    command=$(command_of $name)
    [ -n "$command" ] && [ -z "${VERSIONS:-}" ] || continue
    home=$(echo 'import sys; print(sys.prefix)' | "$command")
    lib=$(find "$home/lib" -maxdepth 1 -name 'libpython3.*.so.1.0')
    park "loaded-by-a-server-with-a-late-key-$name" env PYTHONHOME="$home" "$tmp/server" "$lib" 40 \
        $programs/park.py nested sort_key lock
done
