# shellcheck shell=sh
# What the tests of runtimes have in common, for live_*.sh to read with ".". They set $B, and $runtime: what
# their names in get.sh begin with (cpython, ruby, php), and tests/live/$runtime.py, which judges.
bin=$B/ebpfprofiler
programs=tests/runtimes/programs
tmp=$(mktemp -d)
pid= pids= it=
trap 'kill $pid $pids 2>/dev/null; rm -rf "$tmp"' EXIT
ok() { echo "ok $1"; }
no() { echo "not ok $1"; shift; echo "$@"; }
check() { what=$1; shift; if "$@"; then ok "$what"; else no "$what" "$@"; fi; }
at_least() { awk "BEGIN { exit !($1 >= $2) }"; }
judge() { python3 "tests/live/$runtime.py" "$@"; }

list() {
    sh tests/runtimes/get.sh list | grep "^$runtime-" | grep -v -e '-arm64 '
}
[ -n "$(list)" ] || sh tests/runtimes/get.sh >"$tmp/get" 2>&1
list >"$tmp/list"
[ -s "$tmp/list" ] || { no "a-$runtime-to-test" "$(tail -3 "$tmp/get")"; exit 1; }
# The interpreter of a name.
command_of() { awk -v n="$1" '$1 == n { print $2 }' "$tmp/list"; }
# Whether that one is there, and not left out by $VERSIONS.
wanted() { case " ${VERSIONS:-$1} " in *" $1 "*) [ -n "$(command_of "$1")" ] ;; *) return 1 ;; esac; }

# wait_until COMMAND...: a minute at most, and no longer than there is a $pid.
wait_until() {
    n=0
    while ! "$@" && [ $n -lt 600 ] && kill -0 $pid 2>/dev/null; do
        sleep 0.1
        n=$((n + 1))
    done
}

# start COMMAND ARG...: $pid, which has printed something to $tmp/park; $it, the process that it says it is.
start() {
    : >"$tmp/park"
    "$@" >"$tmp/park" 2>"$tmp/err" &
    pid=$!
    wait_until test -s "$tmp/park"
    sleep 0.2
    it=$(sed -n 's/.*"pid": *\([0-9]*\).*/\1/p' "$tmp/park")
}

stop() {
    kill $it $pid 2>/dev/null
    wait $pid 2>/dev/null
    pid= it=
}

# equal CASE: what `dump` says of the one that has parked, against its own account.
equal() {
    "$bin" dump --json "$it" >"$tmp/dump" 2>>"$tmp/err"
    if judge compare "$tmp/park" "$tmp/dump" >"$tmp/said" 2>&1; then
        ok "$1"
    else
        no "$1" "$(cat "$tmp/err")"
    fi
    sed "s|^|$1: |" "$tmp/said"
}

# park CASE COMMAND ARG...: one that has parked, dumped and compared.
park() {
    case=$1
    shift
    start "$@"
    equal "$case"
    stop
}

# churn NAME PROGRAM [OPTION...]: $name's program (with $mode) on one CPU, recorded with these options from another.
mode=
# Leaves $tmp/stacks; $good, 0 when all are legal, with $tmp/verdict; shares of 100: $merged $refused $apart.
churn() {
    name=$1 program=$2
    shift 2
    one=0 other=0
    [ "$(nproc)" -lt 2 ] || other=1
    merged= refused= apart=
    rm -f "$tmp/profile" # the last one's is not to be judged again
    : >"$tmp/out"
    taskset -c $one "$(command_of "$name")" "$program" $mode $((CHURN_SECONDS + 300)) >"$tmp/out" 2>&1 &
    pid=$!
    wait_until grep -q ready "$tmp/out"
    taskset -c $other "$bin" record -p $pid -d "$CHURN_SECONDS" -F 999 --force "$@" -o "$tmp/profile" 2>"$tmp/err"
    stop
    judge stacks "$tmp/profile" >"$tmp/stacks"
    python3 $programs/judge.py -v 3 "$program" <"$tmp/stacks" >"$tmp/verdict"
    good=$?
    judge shares "$tmp/profile" >"$tmp/shares"
    read -r merged refused apart <"$tmp/shares"
}

figures() {
    echo "$name: $(grep illegal "$tmp/verdict"); merged $merged %, refused $refused %, apart $apart %"
}

legal() {
    if [ $good -ne 0 ]; then
        no "no-stack-the-program-cannot-have-$name"
        cat "$tmp/verdict" "$tmp/err"
    else
        ok "no-stack-the-program-cannot-have-$name"
    fi
}
