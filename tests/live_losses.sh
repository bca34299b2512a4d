#!/bin/sh
# What is too much: maps that fill, a storm of short processes, a storm of reloads. Nothing is lost
# without a name, and the daemon stays up and cheap.
: "${B:=build}"
tmp=$(mktemp -d)
daemon= load=
trap 'kill -9 $daemon $load 2>/dev/null; rm -rf "$tmp"' EXIT
umask 077
check() { name=$1; shift; if "$@"; then echo "ok $name"; else echo "not ok $name"; tail -5 "$tmp/log"; fi; }

# --- row 47: full maps and a deaf ring buffer
gcc -std=gnu11 -O1 -D_GNU_SOURCE -I. -o "$tmp/losses" tests/live/losses.c \
    $(ls "$B"/core/*.o | grep -v '/main\.o$') "$B"/gen/*.pb-c.o \
    $(make -s ldlibs)
(while :; do seq 20000 | sort -R | gzip | sha256sum; done >/dev/null) & load=$!
check row47-due-is-kept-plus-each-named-loss "$tmp/losses"
kill $load; load=

# --- row 34: a storm of processes that live for a moment
printf '[ebpf_profiler]\nenabled = true\nsample_hz = 49\nupload_interval_s = 2\ncpu_budget = 100\n[store]\npath = %s/store\n' "$tmp" >"$tmp/c.ini"
"$B/ebpfprofiler" run -c "$tmp/c.ini" 2>"$tmp/log" & daemon=$!
while ! grep -q 'window of' "$tmp/log"; do sleep 0.1; done
cat >"$tmp/storm.c" <<'EOF'
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
int main(void) { char *argv[] = { "true", 0 }; time_t end = time(0) + 8; long n = 0; pid_t p;
  while (time(0) < end) { if (!posix_spawn(&p, "/bin/true", 0, 0, argv, 0)) n++; waitpid(p, 0, 0); }
  printf("%ld\n", n / 8); }
EOF
gcc -O1 -o "$tmp/storm" "$tmp/storm.c"
c0=$(cat /proc/$daemon/task/*/schedstat | awk '{ s += $1 } END { print s }')
rate=$("$tmp/storm")
c1=$(cat /proc/$daemon/task/*/schedstat | awk '{ s += $1 } END { print s }')
sleep 3
echo "$rate processes/s: the daemon used $(echo "$c0 $c1" | awk '{ print ($2 - $1) / 8e7 }') % of a CPU"
check row34-daemon-is-up kill -0 $daemon
# No sample is. A wait may be: of some tens of thousands the kernel does not show that they end.
check row34-no-sample-lost sh -c "! grep -E '[0-9] samples [^;]*lost: [a-z_]+ [0-9]' $tmp/log"
check row34-one-wait-in-a-hundred-at-most awk '/waits/ { for (i = 1; i < NF; i++) {
    if ($i == "moved") lost += $(i + 1); if ($i ~ /^[0-9]+$/ && $(i + 1) ~ /^waits/) due += $i } }
    END { print lost + 0, "of", due, "waits"; exit !(due && lost <= due / 100) }' "$tmp/log"

# --- row 67: a storm of reloads and of SIGPIPE
n=0
while [ $n -lt 30 ]; do kill -HUP $daemon; kill -PIPE $daemon; n=$((n + 1)); sleep 0.02; done
sleep 2
check row67-up-after-a-storm-of-reloads kill -0 $daemon
kill -TERM $daemon; wait $daemon
check row67-ends-with-0 test $? -eq 0
daemon=
