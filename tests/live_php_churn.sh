#!/bin/sh
# Calls along a known graph at full speed, sampled at 999 Hz from another CPU, without a JIT and with
# the tracing one: no stack that the program cannot have, few refused, nearly all merged with the
# native stack. SECONDS_EACH=60 VERSIONS="php-8.4 php-8.4-jit ..." for more of it.
: "${B:=build}" "${SECONDS_EACH:=8}"
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
    sh tests/runtimes/get.sh list | grep '^php-' | grep -v -e '-arm64 '
}
[ -n "$(list)" ] || sh tests/runtimes/get.sh >"$tmp/get" 2>&1
list >"$tmp/list"
[ -s "$tmp/list" ] || { no a-php-to-test "$(tail -3 "$tmp/get")"; exit 1; }
command_of() { awk -v n="$1" '$1 == n { print $2 }' "$tmp/list"; }

cp $programs/churn.php "$tmp/churn.php" # as it is now, for the judge as well
touch -d '1 hour ago' "$tmp/churn.php"  # what was written just now is not compiled
one=0 other=0
[ "$(nproc)" -lt 2 ] || other=1

# churn NAME: the program, its profile, the judge's verdict.
churn() {
    name=$1
    : >"$tmp/out"
    taskset -c $one "$(command_of "$name")" "$tmp/churn.php" $((SECONDS_EACH + 120)) >"$tmp/out" 2>&1 &
    pid=$!
    n=0
    while ! grep -q ready "$tmp/out" && [ $n -lt 300 ]; do
        sleep 0.1
        n=$((n + 1))
    done
    taskset -c $other "$bin" record -p $pid -d "$SECONDS_EACH" -F 999 --force -e cpu,php_wall -o "$tmp/profile" \
        2>"$tmp/err"
    kill $pid 2>/dev/null
    wait $pid 2>/dev/null
    python3 tests/live/php.py stacks "$tmp/profile" >"$tmp/stacks"
    python3 $programs/judge.py -v 3 "$tmp/churn.php" <"$tmp/stacks" >"$tmp/verdict"
    good=$?
    python3 tests/live/php.py shares "$tmp/profile" >"$tmp/shares"
    read -r merged refused apart <"$tmp/shares"
    echo "$name: $(grep illegal "$tmp/verdict"); merged $merged %, refused $refused %, apart $apart %;" \
        "$(python3 tests/live/php.py marks "$tmp/profile")"
    if [ $good -ne 0 ]; then
        no "no-stack-the-program-cannot-have-$name"
        cat "$tmp/verdict" "$tmp/err"
    else
        ok "no-stack-the-program-cannot-have-$name"
    fi
    # While the program changes to another stack, the list and the native one are of two; and where C
    # was called by compiled code the native one may end there.
    case $name in *-jit) least=93 ;; *) least=98 ;; esac
    check "merged-$least-of-100-$name" at_least "$merged" $least
    check "few-refused-$name" at_least 0.5 "$refused"
}

for name in ${VERSIONS:-php-7.4 php-8.2 php-8.3 php-8.4 php-8.5 php-8.6 php-8.4-zts \
    php-8.2-jit php-8.3-jit php-8.4-jit php-8.5-jit php-8.6-jit}; do
    [ -n "$(command_of "$name")" ] || continue
    churn "$name"
done
