#!/bin/sh
# The runtimes that other tests profile, and the programs for them: each one starts, its park program
# tells of just the threads that it has, and what each says of itself while its churn program runs is
# legal by the marks that stacks are judged by.
here=tests/runtimes
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
sh $here/get.sh >"$tmp/got"
sed 's/^skip /not to be had: /' "$tmp/got"
say() { # say RIGHT NAME
    [ "$1" = 0 ] && echo "ok $2" || echo "not ok $2"
}

sh $here/get.sh list default >"$tmp/list"
# Of each release line of these something must be there on any machine with a Debian mirror.
for name in cpython-3.11 cpython-3.13 php-8.2 php-8.4 ruby-3.1 ruby-3.3; do
    grep -q "^$name " "$tmp/list"
    say $? "$name-is-there"
done
python3 $here/check.py judge
say $? judge-tells-right-from-wrong

program() { # program NAME VARIANT
    case $2 in
    cpython-*) echo "$1.py" ;;
    php-*) echo "$1.php" ;;
    ruby-*) echo "$1.rb" ;;
    esac
}

while read -r variant command; do
    case $variant in *-fpm) continue ;; esac
    python3 $here/check.py park "$command" $here/programs/"$(program park "$variant")"
    say $? "$variant-tells-of-itself"
done <"$tmp/list"

# One variant of each: what the interpreter is told to do otherwise changes no edge of the graph.
while read -r variant command; do
    set --
    case $variant in
    *-fpm | *-embed | *-jit | *-yjit | *-opcache) continue ;;
    # These have no way to take their own stack at any moment.
    php-8.3 | php-8.4-zts) continue ;;
    php-*) set -- -d extension=posix ;;
    esac
    churn=$here/programs/$(program churn "$variant")
    "$command" "$@" "$churn" trace 2>"$tmp/err" | python3 $here/programs/judge.py -v 3 "$churn" >"$tmp/judged"
    rc=$?
    [ $rc = 0 ] || cat "$tmp/err" "$tmp/judged"
    say $rc "$variant-churn-is-legal"
done <"$tmp/list"

# The three ways to be started, and the pid of the interpreter itself in each.
command=$(sed -n 's/^cpython-3.13 //p' "$tmp/list")
for how in pivot chroot loader; do
    RUNTIME_ENTER=$how "$command" -c 'import os, time; print(os.getpid(), flush=True); time.sleep(100)' \
        >"$tmp/pid" &
    pid=$!
    for _ in $(seq 100); do
        [ -s "$tmp/pid" ] && break
        sleep 0.1
    done
    [ "$(cat "$tmp/pid")" = $pid ] && grep -q 'python3.13$' /proc/$pid/maps
    say $? "started-by-$how"
    kill $pid
    rm "$tmp/pid"
done
