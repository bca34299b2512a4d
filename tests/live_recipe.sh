#!/bin/sh
# Lists that change at full speed by a known rule, taken in each place where recipes are executed:
# in the sample, when a wait ends, by an iterator, from outside. None may break the rule. tests/list_judge.c judges.
: "${B:=build}" "${SECONDS_EACH:=4}"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
case $(uname -m) in
aarch64) own="-ffixed-x27 -ffixed-x28" ;;
*) own="-ffixed-r14 -ffixed-r15" ;;
esac
# shellcheck disable=SC2086
gcc -O2 -I. -fno-omit-frame-pointer $own -o "$tmp/lister" tests/live/lister.c -lpthread
for mode in list array jit; do
    "$B/tests/list_judge" "$tmp/lister" sample $mode "$SECONDS_EACH"
done
for place in offcpu iterator outside; do
    for mode in list array; do
        "$B/tests/list_judge" "$tmp/lister" $place $mode "$SECONDS_EACH"
    done
done
"$B/tests/list_judge" "$tmp/lister" cold cold "$SECONDS_EACH"
"$B/tests/list_judge" "$tmp/lister" many list 1

# Pages that never come: of a userfaultfd, of a file system that does not answer.
"$B/tests/list_judge" "$tmp/lister" hang hang 1
gcc -O2 -o "$tmp/server" tests/live/files_fuse.c
mkdir "$tmp/mnt"
"$tmp/server" "$tmp/mnt" "$tmp/lister" "$tmp/ready" &
server=$!
for _ in 1 2 3 4 5 6 7 8 9 10; do [ -e "$tmp/ready" ] || sleep 0.2; done
LISTER_FILE=$tmp/mnt/prog LISTER_SERVER=$server "$B/tests/list_judge" "$tmp/lister" hang fuse 1
kill "$server" 2>/dev/null
wait "$server"
umount -l "$tmp/mnt" 2>/dev/null
