#!/bin/sh
# Interpreters in an arm64 guest, as live_*_churn.sh have them here: calls along a known graph at full
# speed, sampled by our arm64 build on that guest's kernel; no stack that the program cannot have, few
# refused, nearly all merged with the native stack. The clock of an emulated machine is no measure, so
# the rate is low. CHURN_SECONDS=60 VERSIONS="cpython-3.13-arm64 ..." for more of it. Needs no root.
: "${B:=build}" "${CHURN_SECONDS:=30}"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
programs=tests/runtimes/programs
ok() { echo "ok $1"; }
no() { echo "not ok $1"; shift; echo "$@"; }
check() { what=$1; shift; if "$@"; then ok "$what"; else no "$what" "$@"; fi; }
at_least() { awk "BEGIN { exit !($1 >= $2) }"; }

# churn NAME JUDGE PROGRAM [OPTION...]: options of `record`.
churn() {
    name=$1 judge=tests/live/$2.py program=$3
    shift 3
    out=$tmp/$name
    mkdir "$out"
    printf '%s\n' RUNTIME "/tmp/fixture/$program" 100000 "" ebpfprofiler record -p PID \
        -d "$CHURN_SECONDS" -F 199 --force "$@" -o /tmp/out/profile "" >"$out/job"
    if ! sh tests/fixtures/guest_arm64.sh "$name" "$out/job" "$out" "$programs/$program" 2>"$out/why"; then
        no "$name-is-profiled" "$(cat "$out/why")"
        return
    fi
    python3 "$judge" stacks "$out/profile" >"$out/stacks"
    python3 $programs/judge.py -v 3 "$programs/$program" <"$out/stacks" >"$out/verdict"
    good=$?
    read -r merged refused apart <<END
$(python3 "$judge" shares "$out/profile")
END
    echo "$name: $(grep illegal "$out/verdict"); merged $merged %, refused $refused %, apart $apart %"
    check "no-stack-the-program-cannot-have-$name" test $good -eq 0
    [ $good -eq 0 ] || cat "$out/verdict" "$out/said" "$out/err"
    # A fiber of PHP's that begins is still its starter's in the list, and takes long in a guest.
    case $name in php-*) least=95 ;; *) least=98 ;; esac
    check "merged-$least-of-100-$name" at_least "$merged" $least
    check "few-refused-$name" at_least 1 "$refused"
}

for name in ${VERSIONS:-cpython-3.13-arm64 php-8.4-arm64 ruby-3.3-arm64}; do
    case $name in
    cpython-*) churn "$name" cpython churn.py ;;
    php-*) churn "$name" php churn.php -e cpu,php_wall ;;
    ruby-*) churn "$name" ruby churn.rb ;;
    esac
done
