#!/bin/sh
# Calls along a known graph at full speed, sampled at 999 Hz from another CPU: no stack that the
# program cannot have, few refused, nearly all merged with the native stack.
# With compiled code the innermost frame may be marked as unsure, and is then not judged.
# SECONDS_EACH=60 VERSIONS="ruby-3.13 ..." for more of it.
: "${B:=build}" "${SECONDS_EACH:=10}"
bin=$B/ebpfprofiler
programs=tests/runtimes/programs
tmp=$(mktemp -d)
pid=
trap 'kill $pid 2>/dev/null; rm -rf "$tmp"' EXIT
ok() { echo "ok $1"; }
no() { echo "not ok $1"; shift; echo "$@"; }
check() { what=$1; shift; if "$@"; then ok "$what"; else no "$what" "$@"; fi; }
at_least() { awk "BEGIN { exit !($1 >= $2) }"; }

list() {
    sh tests/runtimes/get.sh list | grep '^ruby-' | grep -v -e '-arm64 '
}
[ -n "$(list)" ] || sh tests/runtimes/get.sh >"$tmp/get" 2>&1
list >"$tmp/list"
[ -s "$tmp/list" ] || { no a-ruby-to-test "$(tail -3 "$tmp/get")"; exit 1; }
command_of() { awk -v n="$1" '$1 == n { print $2 }' "$tmp/list"; }

cp $programs/churn.rb "$tmp/churn.rb" # as it is now, for the judge as well
one=0 other=0
[ "$(nproc)" -lt 2 ] || other=1

# churn NAME THREADS: the program, its profile, the judge's verdict.
churn() {
    name=$1
    : >"$tmp/out"
    taskset -c $one "$(command_of "$name")" "$tmp/churn.rb" $((SECONDS_EACH + 300)) "$2" >"$tmp/out" 2>&1 &
    pid=$!
    n=0
    while ! grep -q ready "$tmp/out" && [ $n -lt 300 ]; do
        sleep 0.1
        n=$((n + 1))
    done
    taskset -c $other "$bin" record -p $pid -d "$SECONDS_EACH" -F 999 --force -o "$tmp/profile" 2>"$tmp/err"
    kill $pid 2>/dev/null
    wait $pid 2>/dev/null
    python3 tests/live/ruby.py stacks "$tmp/profile" >"$tmp/stacks"
    python3 $programs/judge.py -v 3 "$tmp/churn.rb" <"$tmp/stacks" >"$tmp/verdict"
    good=$?
    python3 tests/live/ruby.py shares "$tmp/profile" >"$tmp/shares"
    read -r merged refused apart <"$tmp/shares"
    echo "$name: $(grep illegal "$tmp/verdict"); merged $merged %, refused $refused %, apart $apart %," \
        "innermost frame unsure $(python3 tests/live/ruby.py unsure "$tmp/profile") %"
    if [ $good -ne 0 ]; then
        no "no-stack-the-program-cannot-have-$name"
        cat "$tmp/verdict" "$tmp/err"
    else
        ok "no-stack-the-program-cannot-have-$name"
    fi
    check "merged-99-of-100-$name" at_least "$merged" 99
    check "few-refused-$name" at_least 0.5 "$refused"
}

for name in ${VERSIONS:-ruby-2.7 ruby-3.1 ruby-3.1-yjit ruby-3.3 ruby-3.4}; do
    [ -n "$(command_of "$name")" ] || continue
    churn "$name" 1
done
