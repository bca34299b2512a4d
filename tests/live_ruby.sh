#!/bin/sh
# What `dump` says of threads that wait, against Ruby's own account of them, in every Ruby that
# tests/runtimes/get.sh has laid out: method with its class, file and line of each frame. Then Ruby's
# frames among native ones, and heaps that are compacted. VERSIONS="ruby-3.3 ..." restricts it.
: "${B:=build}"
runtime=ruby
. tests/live/runtimes.sh

while read -r name command; do
    wanted "$name" || continue
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
start "$command" "$PWD/tests/live/shop.rb" 600
has() { # has CASE FRAME...
    case=$1
    shift
    tries=6
    while [ $tries -gt 0 ]; do
        tries=$((tries - 1))
        [ -s "$tmp/profile.$tries" ] ||
            "$bin" record -p $pid -d 4 -F 199 --force -o "$tmp/profile.$tries" 2>"$tmp/err"
        judge has "$tmp/profile.$tries" "$@" >"$tmp/said" && ok "$case" && return
    done
    no "$case" "$(cat "$tmp/said" "$tmp/err")"
}
has a-block-under-a-function-in-c 'Shop::Cart#price' 'block in Shop::Cart#total' '(native)' \
    'Enumerable#sort_by' 'Shop::Cart#total' '<main>'
has native-code-of-an-extension '(native)' 'Zlib.deflate' 'Shop::Cart#pack' '<main>'
has a-fiber 'Shop::Cart#price' 'block in Shop::Cart#fiber' '(native)'
stop

# Methods that move in memory keep their names.
start "$command" "$PWD/tests/live/compact.rb" 600
"$bin" record -p $pid -d 8 -F 499 --force -o "$tmp/profile" 2>"$tmp/err"
judge stacks "$tmp/profile" >"$tmp/stacks"
if python3 tests/live/compact.py <"$tmp/stacks" >"$tmp/said"; then
    ok names-while-the-heap-is-compacted
else
    no names-while-the-heap-is-compacted "$(cat "$tmp/said" "$tmp/err")"
fi
cat "$tmp/said"
stop
