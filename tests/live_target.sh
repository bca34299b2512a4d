#!/bin/sh
# Memory that never answers: a mapped file whose FUSE server falls silent. What a page under
# userfaultfd does is in tests/test_reader.c itself; here it runs with everything it can have.
: "${B:=build}"
tmp=$(mktemp -d)
server=
cleanup() {
    [ -z "$server" ] || kill -9 "$server" 2>/dev/null # frees whoever waits for it
    wait 2>/dev/null
    umount -l "$tmp/mnt" 2>/dev/null
    rm -rf "$tmp"
}
trap cleanup EXIT
trap 'exit 1' INT TERM
gcc -O2 -o "$tmp/server" tests/live/files_fuse.c || exit 1
mkdir "$tmp/mnt"
"$tmp/server" "$tmp/mnt" /bin/sh "$tmp/ready" &
server=$!
n=200
while [ $n -gt 0 ] && [ ! -e "$tmp/ready" ]; do sleep 0.05; n=$((n - 1)); done
HANG_FILE=$tmp/mnt/prog HANG_PID=$server timeout 60 "$B/tests/test_reader" >"$tmp/log" 2>&1
rc=$?
sed -n 's/^\[       OK \] /ok /p; s/^\[  SKIPPED \] \([a-z_]*\)$/not ok \1 was skipped/p' "$tmp/log" | sort -u
[ -s "$tmp/log" ] || echo "not ok test_reader wrote nothing"
if [ $rc -ne 0 ]; then echo "not ok test_reader"; cat "$tmp/log"; fi
