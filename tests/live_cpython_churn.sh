#!/bin/sh
# Calls along a known graph at full speed, sampled at 999 Hz from another CPU: no stack that the
# program cannot have, few refused, nearly all merged with the native stack.
# CHURN_SECONDS=60 VERSIONS="cpython-3.13 ..." for more of it.
: "${B:=build}" "${CHURN_SECONDS:=10}"
bin=$B/ebpfprofiler
programs=tests/runtimes/programs
tmp=$(mktemp -d)
pid=
trap 'kill $pid 2>/dev/null; rm -rf "$tmp"' EXIT
ok() { echo "ok $1"; }
no() { echo "not ok $1"; shift; echo "$@"; }
check() { what=$1; shift; if "$@"; then ok "$what"; else no "$what" "$@"; fi; }
# SHARE MOST N: a share of N stacks, with three of them for chance.
at_most() { awk "BEGIN { exit !($3 && $1 * $3 <= $2 * $3 + 300) }"; }

list() {
    sh tests/runtimes/get.sh list | grep '^cpython-' | grep -v -e '-arm64 '
}
[ -n "$(list)" ] || sh tests/runtimes/get.sh >"$tmp/get" 2>&1
list >"$tmp/list"
[ -s "$tmp/list" ] || { no a-cpython-to-test "$(tail -3 "$tmp/get")"; exit 1; }
command_of() { awk -v n="$1" '$1 == n { print $2 }' "$tmp/list"; }

cp $programs/churn.py "$tmp/churn.py" # as it is now, for the judge as well
one=0 other=0
[ "$(nproc)" -lt 2 ] || other=1

# churn NAME THREADS: the program, its profile, the judge's verdict.
churn() {
    name=$1
    : >"$tmp/out"
    taskset -c $one "$(command_of "$name")" "$tmp/churn.py" $((CHURN_SECONDS + 120)) "$2" >"$tmp/out" 2>&1 &
    pid=$!
    n=0
    while ! grep -q ready "$tmp/out" && [ $n -lt 300 ]; do
        sleep 0.1
        n=$((n + 1))
    done
    taskset -c $other "$bin" record -p $pid -d "$CHURN_SECONDS" -F 999 --force -o "$tmp/profile" 2>"$tmp/err"
    kill $pid 2>/dev/null
    wait $pid 2>/dev/null
    python3 tests/live/cpython.py stacks "$tmp/profile" >"$tmp/stacks"
    python3 $programs/judge.py -v 3 "$tmp/churn.py" <"$tmp/stacks" >"$tmp/verdict"
    good=$?
    python3 tests/live/cpython.py shares "$tmp/profile" >"$tmp/shares"
    read -r merged refused apart <"$tmp/shares"
    echo "$name: $(grep illegal "$tmp/verdict"); merged $merged %, refused $refused %, apart $apart %"
    if [ $good -ne 0 ]; then
        no "no-stack-the-program-cannot-have-$name"
        cat "$tmp/verdict" "$tmp/err"
    else
        ok "no-stack-the-program-cannot-have-$name"
    fi
    stacks=$(wc -l <"$tmp/stacks")
    # Refused ones have no list that could be merged.
    check "merged-99-of-100-$name" at_most "$apart" 1 "$stacks"
    # 3.12 publishes a structure 23 instructions before it fills it in, with two loads of memory that
    # others write in between: up to 1 % of a program that does nothing but call back from C.
    case $name in cpython-3.12*) most=1 ;; *) most=0.5 ;; esac
    check "few-refused-$name" at_most "$refused" "$most" "$stacks"
}

every="3.6-shared 3.7-shared 3.8-shared 3.9 3.10-shared 3.11 3.11-embed 3.12-shared 3.13 3.13-embed 3.14 3.14-embed
    3.14-jit 3.15 3.15-embed 3.15-jit"
for name in ${VERSIONS:-$(for v in $every; do echo "cpython-$v"; done)}; do
    [ -n "$(command_of "$name")" ] || continue
    churn "$name" 1
done
