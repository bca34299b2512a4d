#!/bin/sh
# Tables of all ELF files of this host: bytes and CPU per row; rows against readelf; mutated images
# and oversized files within their bounds. Needs no root; takes a minute.
: "${B:=build}"
t=$B/tests/test_tablefile
[ -x "$t" ] || { echo "skip tables: $t is not built"; exit 0; }
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

# run NAME ARGS...: the tool says ok or not ok itself, unless it died.
run() {
    name=$1
    shift
    "$t" "$@" || [ $? -eq 1 ] || echo "not ok $name # the tool died"
}

run tables_mutated_images --mutate 20000
run tables_c3_11 --limits

lib=$(gcc -print-multiarch 2>/dev/null || echo "$(uname -m)-linux-gnu")
find -L /usr/bin "/usr/lib/$lib" -type f 2>/dev/null | xargs -r -d '\n' readlink -f | sort -u >"$tmp/list"
run tables_all_files --sum <"$tmp/list"

# Each row of readelf must be what the table has at that address. readelf lists all entries; of two
# with one start the first counts, and one that starts inside another ends that.
cat >"$tmp/compare.py" <<'PY'
import bisect, re, subprocess, sys

tool, path = sys.argv[1:]
ours = []
for line in subprocess.run([tool, "--tables", "--rows", path], check=True, capture_output=True,
                           text=True).stdout.splitlines():
    addr, *rest = line.split()
    ours.append((int(addr, 16), rest))
starts = [a for a, _ in ours]
shown = subprocess.run(["readelf", "--debug-dump=frames-interp,no-follow-links", path],
                       capture_output=True, text=True).stdout.splitlines()

fdes, columns, fde, eh = [], [], None, False
for line in shown:
    if line.startswith("Contents of the"):
        eh = ".eh_frame" in line
        continue
    head = re.match(r"[0-9a-f]+ [0-9a-f]+ [0-9a-f]+ (CIE|FDE|ZERO)(.*)", line)
    if head:
        pc = re.search(r"pc=([0-9a-f]+)\.\.([0-9a-f]+)", line)
        fde = None
        if eh and pc:
            fde = (int(pc[1], 16), int(pc[2], 16), [])
            fdes.append(fde)
        continue
    words = re.sub(r" \([a-z0-9]+\)", "", line).split()  # r10 (r10)
    if words and words[0] == "LOC":
        columns = words[1:]
    elif fde and words and re.fullmatch(r"[0-9a-f]{16}", words[0]):
        fde[2].append((int(words[0], 16), dict(zip(columns, words[1:]))))

fdes.sort(key=lambda f: f[0])
names = "rax rdx rcx rbx rsi rdi rbp rsp r8 r9 r10 r11 r12 r13 r14 r15".split()
numbers = {name: "r%d" % i for i, name in enumerate(names)}

def alike(theirs, mine):
    if mine[0] in ("unsupported", "signal"):
        return True                    # other tests look at these
    if theirs.get("ra") == "u" and mine[0] == "end":
        return True
    for want, have in zip((theirs["CFA"], theirs.get("rbp", "u"), theirs.get("ra", "u")), mine):
        if want in ("exp", "vexp") or want.startswith("v+"):
            continue
        if want in ("u", "s"):
            if have not in ("u", "lost"):
                return False
        elif want != have and want != numbers.get(have):
            return False
    return True

compared = wrong = 0
for i, (lo, hi, rows) in enumerate(fdes):
    if i and fdes[i - 1][0] == lo or lo == hi:
        continue
    nxt = next((f[0] for f in fdes[i + 1:] if f[0] > lo), hi)
    for k, (addr, theirs) in enumerate(rows):
        end = min(rows[k + 1][0] if k + 1 < len(rows) else hi, hi, nxt)
        if addr >= end:
            continue
        for at in (addr, end - 1):
            n = bisect.bisect_right(starts, at) - 1
            compared += 1
            if n < 0 or not alike(theirs, ours[n][1]):
                wrong += 1
                if wrong < 10:
                    print("#", hex(at), theirs, ours[n][1] if n >= 0 else None)
print("ok" if compared and not wrong else "not ok", "tables_rows_as_readelf_has_them", "#",
      path, compared, "compared,", wrong, "wrong")
PY
if [ "$(uname -m)" != x86_64 ]; then
    echo "skip tables_rows_as_readelf_has_them: written for x86-64"
elif ! command -v readelf >/dev/null 2>&1 || ! command -v python3 >/dev/null 2>&1; then
    echo "skip tables_rows_as_readelf_has_them: needs readelf and python3"
else
    for f in libc.so.6 libstdc++.so.6 ld-linux-x86-64.so.2 libcrypto.so.3 libm.so.6; do
        [ -e "/usr/lib/$lib/$f" ] && python3 "$tmp/compare.py" "$t" "/usr/lib/$lib/$f"
    done
fi
exit 0
