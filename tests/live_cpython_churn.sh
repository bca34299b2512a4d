#!/bin/sh
# Calls along a known graph at full speed, sampled at 999 Hz from another CPU: no stack that the
# program cannot have, few refused, nearly all merged with the native stack.
# CHURN_SECONDS=60 VERSIONS="cpython-3.13 ..." for more of it.
: "${B:=build}" "${CHURN_SECONDS:=10}"
runtime=cpython
. tests/live/runtimes.sh
# SHARE MOST N: a share of N stacks, with three of them for chance.
at_most() { awk "BEGIN { exit !($3 && $1 * $3 <= $2 * $3 + 300) }"; }

cp $programs/churn.py "$tmp/churn.py" # as it is now, for the judge as well

every="3.6-shared 3.7-shared 3.8-shared 3.9 3.10-shared 3.11 3.11-embed 3.12-shared 3.13 3.13-embed 3.14 3.14-embed
    3.14-jit 3.15 3.15-embed 3.15-jit"
# judged NAME [CASE]
judged() {
    churn "$1" "$tmp/churn.py"
    name=$1${2-}
    figures
    legal
    stacks=$(wc -l <"$tmp/stacks")
    # Refused ones have no list that could be merged.
    check "merged-99-of-100-$name" at_most "$apart" 1 "$stacks"
    # 3.12 publishes a structure 23 instructions before it fills it in, with two loads of memory that
    # others write in between; Debian's libpython3.11 does so with frames in four places: 1 % of a program
    # that does nothing but call, and call back from C, is there.
    case $name in cpython-3.12*-again) most=1.5 ;; cpython-3.12* | cpython-3.11-embed*) most=1 ;; *) most=0.5 ;; esac
    check "few-refused-$name" at_most "$refused" "$most" "$stacks"
}

for name in ${VERSIONS:-$(for v in $every; do echo "cpython-$v"; done)}; do
    wanted "$name" && judged "$name"
done
# The same within a second interpreter of the thread: the first one's frames follow.
mode=again
for name in cpython-3.10-shared cpython-3.11 cpython-3.12-shared cpython-3.13 cpython-3.14 cpython-3.15; do
    wanted $name || continue
    judged $name -again
    check "of-both-interpreters-$name" sh -c "! grep -v '\"func\": \"again\"' '$tmp/stacks' | grep -q '\"cut\": false'"
done
