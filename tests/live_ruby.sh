#!/bin/sh
# What `dump` says of threads that wait, against Ruby's own account of them, in every Ruby that
# tests/runtimes/get.sh has laid out: method with its class, file and line of each frame. Then Ruby's
# frames among native ones, and heaps that are compacted. VERSIONS="ruby-3.3 ..." restricts it.
: "${B:=build}"
bin=$B/ebpfprofiler
programs=tests/runtimes/programs
tmp=$(mktemp -d)
pid=
trap 'kill $pid 2>/dev/null; rm -rf "$tmp"' EXIT
ok() { echo "ok $1"; }
no() { echo "not ok $1"; shift; echo "$@"; }

list() {
    sh tests/runtimes/get.sh list | grep '^ruby-' | grep -v -e '-arm64 '
}
[ -n "$(list)" ] || sh tests/runtimes/get.sh >"$tmp/get" 2>&1
list >"$tmp/list"
[ -s "$tmp/list" ] || { no a-ruby-to-test "$(tail -3 "$tmp/get")"; exit 1; }
command_of() { awk -v n="$1" '$1 == n { print $2 }' "$tmp/list"; }

# start OUT COMMAND ARG...: until it has printed something.
start() {
    out=$1
    shift
    : >"$out"
    "$@" >"$out" 2>"$tmp/err" &
    pid=$!
    n=0
    while [ ! -s "$out" ] && [ $n -lt 600 ] && kill -0 $pid 2>/dev/null; do
        sleep 0.1
        n=$((n + 1))
    done
}
stop() {
    kill $pid 2>/dev/null
    wait $pid 2>/dev/null
}

# park CASE COMMAND ARG...: one that has parked, dumped and compared.
park() {
    case=$1
    shift
    start "$tmp/park" "$@"
    sleep 0.2
    it=$(sed 's/.*"pid":\([0-9]*\).*/\1/' "$tmp/park")
    "$bin" dump --json "$it" >"$tmp/dump" 2>>"$tmp/err"
    if python3 tests/live/ruby.py compare "$tmp/park" "$tmp/dump" >"$tmp/said" 2>&1; then
        ok "$case"
    else
        no "$case" "$(cat "$tmp/err")"
    fi
    sed "s|^|$case: |" "$tmp/said"
    stop
}

while read -r name command; do
    case " ${VERSIONS:-$name} " in *" $name "*) ;; *) continue ;; esac
    park "equal-to-its-own-account-$name" "$command" $programs/park.rb
done <"$tmp/list"

[ -z "${VERSIONS:-}" ] || exit 0
# Until 3.2 a ractor's thread is one of the system, wherever it waits.
command=$(command_of ruby-3.1)
[ -z "$command" ] || park a-second-ractor "$command" $programs/park.rb ractor sleep
command=$(command_of ruby-3.3)
[ -n "$command" ] || command=$(head -n 1 "$tmp/list" | cut -d' ' -f2)
park a-hundred-threads "$command" $programs/park.rb -d 20 -n 34 sleep lock pipe

# Frames in their places: leaf first, "(native)" is any native frame.
start "$tmp/shop" "$command" "$PWD/tests/live/shop.rb" 600
has() { # has CASE FRAME...
    case=$1
    shift
    tries=6
    while [ $tries -gt 0 ]; do
        tries=$((tries - 1))
        [ -s "$tmp/profile.$tries" ] ||
            "$bin" record -p $pid -d 4 -F 199 --force -o "$tmp/profile.$tries" 2>"$tmp/err"
        python3 tests/live/ruby.py has "$tmp/profile.$tries" "$@" >"$tmp/said" && ok "$case" && return
    done
    no "$case" "$(cat "$tmp/said" "$tmp/err")"
}
has a-block-under-a-function-in-c 'Shop::Cart#price' 'block in Shop::Cart#total' '(native)' \
    'Enumerable#sort_by' 'Shop::Cart#total' '<main>'
has native-code-of-an-extension '(native)' 'Zlib.deflate' 'Shop::Cart#pack' '<main>'
has a-fiber 'Shop::Cart#price' 'block in Shop::Cart#fiber' '(native)'
stop

# Methods that move in memory keep their names.
start "$tmp/compact" "$command" "$PWD/tests/live/compact.rb" 600
"$bin" record -p $pid -d 8 -F 499 --force -o "$tmp/profile" 2>"$tmp/err"
python3 tests/live/ruby.py stacks "$tmp/profile" >"$tmp/stacks"
if python3 tests/live/compact.py <"$tmp/stacks" >"$tmp/said"; then
    ok names-while-the-heap-is-compacted
else
    no names-while-the-heap-is-compacted "$(cat "$tmp/said" "$tmp/err")"
fi
cat "$tmp/said"
stop
