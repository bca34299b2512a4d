#!/bin/sh
# Compares the CFI compiler with readelf, row by row, and with libdw, value by value, on the ELF
# files of this host, on freshly compiled arm64 and x86-64 programs and on arm64 libraries.
# SUBSET=N takes every N-th file only. Needs no root; takes minutes, at most 240 s in all.
: "${B:=build}" "${SUBSET:=1}"
t=$B/tests/test_cfi
[ -x "$t" ] || { echo "skip cfi_oracle: $t is not built"; exit 0; }
command -v readelf >/dev/null 2>&1 || { echo "skip cfi_oracle: no readelf"; exit 0; }
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
end=$(($(date +%s) + 240))

# verdict NAME MODE < list of files. One line per list; files that differ are shown.
verdict() {
    name=$1 mode=$2
    : >"$tmp/log"
    late=0
    while read -r f; do
        if [ "$(date +%s)" -ge "$end" ]; then late=1; break; fi
        "$t" "$mode" "$f" >>"$tmp/log" 2>&1 || [ $? -eq 1 ] || echo "not ok $f died" >>"$tmp/log"
    done
    sum=$(awk '/^(not )?ok .* # / { sub(/^.* # /, ""); rows += $1; wrong += $3; skipped += $5; files++ }
        END { printf "%d files, %d compared, %d wrong, %d skipped", files, rows, wrong, skipped }' "$tmp/log")
    case $late in 1) sum="$sum, stopped by time" ;; esac
    if grep -q '^not ok ' "$tmp/log" || ! grep -q '^ok ' "$tmp/log"; then
        grep -v '^ok ' "$tmp/log" | grep -v '^skip ' | head -40
        grep -q '^ok ' "$tmp/log" || { echo "skip $name: no file to compare"; return; }
        echo "not ok $name # $sum"
    else
        echo "ok $name # $sum"
    fi
}

files() {
    find -L "$@" -maxdepth 1 -type f -size +1k 2>/dev/null | xargs -r -d '\n' readlink -f | sort -u |
        awk -v n="$SUBSET" 'NR % n == 0'
}

cat >"$tmp/p.cc" <<'CC'
#include <stdexcept>
#include <string>
#include <vector>
struct guard { ~guard() { __asm__ volatile("" ::: "memory"); } };
int f(int n, std::vector<std::string> &v)
{
    guard g;
    volatile char b[n * 16 + 16];
    b[0] = 1;
    v.push_back(std::to_string(n));
    if (n > 3)
        throw std::runtime_error("deep");
    return f(n + 1, v) + b[0];
}
double aligned(double x)
{
    alignas(64) volatile double a[8] = { x };
    return a[1] + aligned(a[0]);
}
int main(int argc, char **argv)
{
    std::vector<std::string> v;
    try { return f(argc, v) + (argv ? 0 : (int)aligned(1)); } catch (std::exception &) { return 1; }
}
CC

cat >"$tmp/p.c" <<'CC'
int g(int n) { volatile char b[n]; b[0] = 1; return b[0] + n; }
int f(int a) { return a > 3 ? g(a) + f(a - 1) : g(a + 1); }
int main(int argc, char **argv) { return f(argc) + (argv == 0); }
CC

# compiled NAME COMPILER FLAGS... FILE
compiled() {
    name=$1
    shift
    command -v "$1" >/dev/null 2>&1 || { echo "skip $name: no $1"; return 1; }
    "$@" -w -o "$tmp/$name" 2>"$tmp/cc" || { echo "skip $name: does not compile"; return 1; }
    echo "$tmp/$name" | verdict "readelf_$name" --readelf
}

for cc in g++ clang++; do
    for o in O0 O2 Os; do
        compiled "$cc-$o" $cc -$o "$tmp/p.cc" && echo "$tmp/$cc-$o" | verdict "libdw_$cc-$o" --libdw
    done
done
for cc in gcc clang; do
    compiled "$cc-debug_frame" $cc -O2 -g -fno-asynchronous-unwind-tables "$tmp/p.c"
done
compiled arm64 aarch64-linux-gnu-g++ -O2 "$tmp/p.cc"
# readelf does not show the signed state: the row behind each paciasp must have it.
if compiled arm64-signed aarch64-linux-gnu-g++ -O2 -mbranch-protection=standard "$tmp/p.cc"; then
    aarch64-linux-gnu-objdump -d "$tmp/arm64-signed" |
        awk '/\tpaciasp/ { print $1 }' | tr -d : >"$tmp/pac"
    "$t" --rows "$tmp/arm64-signed" | awk '/ signed$/ { print $1 }' | sed 's/^0*//' >"$tmp/signed"
    python3 - "$tmp/pac" "$tmp/signed" <<'PY'
import sys
pac, signed = ([int(l, 16) for l in open(f)] for f in sys.argv[1:])
bad = [hex(p) for p in pac if p + 4 not in signed]
print("not ok" if bad or not pac else "ok", "arm64_signed_after_paciasp #", len(pac), "places", *bad)
PY
fi
files /usr/aarch64-linux-gnu/lib | verdict readelf_arm64_libraries --readelf

lib=$(gcc -print-multiarch 2>/dev/null || uname -m)
for f in libc.so.6 libcrypto.so.3 libstdc++.so.6 libm.so.6 ld-linux-x86-64.so.2 ld-linux-aarch64.so.1; do
    [ -e "/usr/lib/$lib/$f" ] && echo "/usr/lib/$lib/$f"
done | verdict libdw_libraries --libdw
files /usr/bin /usr/sbin | verdict readelf_usr_bin --readelf
files "/usr/lib/$lib" | verdict readelf_usr_lib --readelf
exit 0
