#!/bin/sh
# Garbage collection as a frame of its own, in every Ruby that tests/runtimes/get.sh has laid out: its
# share of the samples against the time that the program itself took for it, by the thread's clock around
# GC.start, or by Ruby's GC.total_time; and that no thread has it but the one that collects.
# VERSIONS="ruby-3.3 ..." restricts it, SECONDS_EACH sets how long each is sampled.
: "${B:=build}"
: "${SECONDS_EACH:=4}"
runtime=ruby
. tests/live/runtimes.sh

# collect MODE: $name's program in that mode, sampled; $own is the share that it says. Never longer than the
# program's own end.
collect() {
    rm -f "$tmp/profile"
    : >"$tmp/out"
    "$(command_of "$name")" "$PWD/tests/live/collect.rb" "$1" $((SECONDS_EACH + 20)) >"$tmp/out" 2>"$tmp/err" &
    pid=$!
    wait_until grep -q ready "$tmp/out"
    "$bin" record -p $pid -d "$SECONDS_EACH" -F 499 --force -o "$tmp/profile" 2>"$tmp/err"
    own=$(sed -n 's/^share //p' "$tmp/out" | tail -n 1)
    stop
}

# share FRAME: of the samples with that frame, $got are in the collector, of $of.
share() {
    got= of=
    judge collecting "$tmp/profile" "$1" >"$tmp/said" 2>>"$tmp/err"
    read -r got of <"$tmp/said"
}

why() { cat "$tmp/said" "$tmp/err" "$tmp/out"; }

# Within four times the error that so many samples have at most.
near() { awk "BEGIN { d = $1 - $2; exit !($3 >= 300 && d * d * $3 <= 200 * 200) }"; }

# agree CASE FRAME: that share is the program's own.
agree() {
    share "$2"
    echo "$1-$name: $got % of $of samples, by its own clock $own %"
    if [ -n "$got" ] && [ -n "$own" ] && near "$got" "$own" "$of"; then ok "$1-$name"; else no "$1-$name" "$(why)"; fi
}

# never CASE FRAME: nobody collects there.
never() {
    share "$2"
    echo "$1-$name: $got % of $of samples"
    if [ "${got:-1}" = 0.00 ] && [ "$of" -ge 300 ]; then ok "$1-$name"; else no "$1-$name" "$(why)"; fi
}

while read -r name _; do
    wanted "$name" || continue
    collect full
    agree told-to-collect 'Object#full'
    collect off
    never never-collects '<main>'
    collect threads
    agree one-of-two-threads 'Object#full'
    never the-other-thread 'Object#seek'
    case $name in *-2.7*) continue ;; esac
    collect alloc
    agree by-itself '<main>'
    collect fiber
    agree in-a-fiber 'Object#full'
    collect ractors
    never the-other-ractor 'Object#compute'
    share 'Object#alloc'
    check one-of-two-ractors at_least "${got:-0}" 1
done <"$tmp/list"
