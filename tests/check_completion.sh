#!/bin/bash
# Bash completion, asked as bash asks it, against what each command's own help says.
: "${B:=build}"
if [ -z "$BASH_VERSION" ]; then
    command -v bash >/dev/null || { echo "skip completion: bash is not installed"; exit 0; }
    exec bash "$0"
fi
bin=$PWD/$B/ebpfprofiler
. dist/ebpfprofiler.bash
compopt() { :; } # it wants a real completion under way
check() { name=$1; shift; if "$@"; then echo "ok $name"; else echo "not ok $name: $*"; fi; }
complete_line() { # words; the last one is being typed
    COMP_WORDS=("$bin" "$@") COMP_CWORD=$#
    _ebpfprofiler
    printf '%s\n' "${COMPREPLY[@]}" | sort -u
}
offers() { word=$1; shift; complete_line "$@" | grep -qx -e "$word"; }
check commands-are-offered offers record re
check commands-are-only-those test "$(complete_line '')" = "$("$bin" help | sed -n 's/^  \([a-z-]*\) .*/\1/p' | sort)"
for c in $("$bin" help | sed -n 's/^  \([a-z-]*\) .*/\1/p'); do
    "$bin" "$c" --help >/dev/null 2>&1
    check "$c-has-help" test $? -eq 0
    missing=
    for o in $("$bin" "$c" --help | grep -oE -e ' \[?--?[a-zA-Z][a-z-]*' | tr -d ' ['); do
        offers "$o" "$c" "${o%?}" || missing="$missing $o"
    done
    check "$c-options-are-offered" test -z "$missing"
done
check daemon-alone-has-options offers --force -c x --f
check pids-are-offered offers $$ record -p "$$"
check formats-are-offered offers folded record --format f
check behind-a-command-line-nothing-is test -z "$(complete_line record -- --)"
