#!/bin/sh
# Runs tests one by one and closes with "N passed, N failed, N skipped".
# A test is a cmocka binary, or a script that prints "ok NAME", "not ok NAME", "skip NAME: why".
passed=0 failed=0 skipped=0
: "${B:=build}"
mkdir -p "$B/log"
for t in "$@"; do
    [ -e "$t" ] || continue
    name=$(basename "$t")
    log="$B/log/$name.log"
    case $t in
    *.sh) sh "$t" >"$log" 2>&1; rc=$? ;;
    *) "$t" >"$log" 2>&1; rc=$? ;;
    esac
    p=$(grep -cE '^(\[       OK \]|ok )' "$log")
    f=$(grep -cE '^(\[  FAILED  \] [a-z_]|not ok )' "$log")
    s=$(grep -cE '^(\[  SKIPPED \] [a-z_]|skip )' "$log")
    # cmocka lists each failed and skipped test twice.
    case $t in *.sh) ;; *) f=$((f / 2)); s=$((s / 2)) ;; esac
    if [ "$rc" -ne 0 ] && [ "$f" -eq 0 ]; then f=1; fi
    if [ "$p" -eq 0 ] && [ "$f" -eq 0 ] && [ "$s" -eq 0 ]; then f=1; fi
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    printf '%-32s %3d passed %2d failed %2d skipped\n' "$name" "$p" "$f" "$s"
    grep -E '^skip ' "$log"
    [ "$f" -eq 0 ] || cat "$log"
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
