#!/bin/sh
# Names of real programs: C++ (stripped, with a debug file), Rust of both manglings, Go (stripped),
# node and .NET with perf maps; lines and inlined functions of a stored profile.
: "${B:=build}"
bin=$B/ebpfprofiler
tmp=$(mktemp -d)
pids=
trap 'kill $pids 2>/dev/null; rm -rf "$tmp" $maps' EXIT
ok() { echo "ok $1"; }
no() { echo "not ok $1"; shift; echo "$@"; }
check() { name=$1; shift; if "$@"; then ok "$name"; else no "$name" "$@"; fi; }
need() { command -v "$1" >/dev/null 2>&1 || { echo "skip $2: no $1 here"; return 1; }; }
maps=

# --- programs
g++ -O2 -g -o "$tmp/full" tests/live/names.cc || no c++-builds
mkdir -p "$tmp/.debug"
objcopy --only-keep-debug "$tmp/full" "$tmp/.debug/cxx.debug"
strip -o "$tmp/cxx" "$tmp/full"
objcopy --add-gnu-debuglink="$tmp/.debug/cxx.debug" "$tmp/cxx"
if need rustc rust; then
    rustc -O -C symbol-mangling-version=v0 -o "$tmp/rust_v0" tests/live/names.rs 2>/dev/null
    rustc -O -o "$tmp/rust_std" tests/live/names.rs 2>/dev/null
fi
go build -o "$tmp/go_full" tests/live/names.go
go build -ldflags='-s -w' -o "$tmp/golang" tests/live/names.go
if need dotnet dotnet; then
    root=$(dirname "$(readlink -f "$(command -v dotnet)")")
    fw=$(ls -d "$root"/shared/Microsoft.NETCore.App/* | sort -V | tail -1)
    csc=$(ls -d "$root"/sdk/*/Roslyn/bincore/csc.dll | sort -V | tail -1)
    dotnet exec "$csc" -nologo -o+ -r:"$fw/System.Runtime.dll" -r:"$fw/System.Console.dll" \
        -r:"$fw/System.Private.CoreLib.dll" -out:"$tmp/net.dll" tests/live/names.cs
    echo '{"runtimeOptions":{"framework":{"name":"Microsoft.NETCore.App","version":"'"$(basename "$fw")"'"}}}' \
        >"$tmp/net.runtimeconfig.json"
fi

# --- all of them at once
for p in cxx rust_v0 rust_std golang; do
    [ -x "$tmp/$p" ] || continue
    "$tmp/$p" 90 >/dev/null & pids="$pids $!"
done
(cd "$tmp" && exec node --perf-basic-prof --no-logfile-per-isolate "$OLDPWD/tests/live/names.js" 90 >/dev/null) & node=$!
pids="$pids $node"
maps="$maps /tmp/perf-$node.map"
if [ -e "$tmp/net.dll" ]; then
    DOTNET_PerfMapEnabled=1 dotnet exec "$tmp/net.dll" 90 >/dev/null & net=$!
    pids="$pids $net"
    maps="$maps /tmp/perf-$net.map /tmp/perfinfo-$net.map"
fi
select=
for p in $pids; do select="$select -p $p"; done
$bin record -d 6 $select -o "$tmp/all.pb.gz" 2>"$tmp/err" || cat "$tmp/err"
go tool pprof -symbolize=none -traces "$tmp/all.pb.gz" >"$tmp/traces" 2>/dev/null
# Whether the caller stands below is for those to judge that walk stacks.
has() { name=$1; shift; for f in "$@"; do grep -qF -- "$f" "$tmp/traces" || { no "$name" "no '$f' in:"; head -60 "$tmp/traces"; return; }; done; ok "$name"; }
has c++-of-a-separate-debug-file 'work::hot<unsigned int>'
if command -v rustc >/dev/null; then
    has rust '<names::Counter as names::Work>::hot_leaf'
    check rust-names-have-no-hash sh -c "! grep -E 'h[0-9a-f]{16}|_RNv|_ZN' '$tmp/traces'"
fi
has go-stripped 'main.(*counter).hotLeaf'
check node-functions-have-names grep -qE 'JS:.*(hotLeaf|outerLoop)' "$tmp/traces"
command -v dotnet >/dev/null && has dotnet 'Busy::HotLeaf(int32)'
check names-are-those-of-the-map python3 tests/live/names_judge.py map "$tmp/all.pb.gz" $(ls $maps 2>/dev/null | grep -v perfinfo)

# --- Go's table, all of it
go tool nm -size "$tmp/go_full" | awk '$3 ~ /^[Tt]$/ && $2 > 0 && NF == 4 && $4 !~ /\[/ { sub(/\.abi0$/, "", $4); print $1, $4 }' |
    sort >"$tmp/want"
awk '{ print $1 }' "$tmp/want" | "$B/tests/test_symbols" names "$tmp/golang" | sort >"$tmp/got"
# What nm cuts at a blank.
check go-names-are-those-of-go-tool-nm sh -c "test \$(wc -l <'$tmp/want') -gt 1000 && test \$(diff '$tmp/want' '$tmp/got' | grep -c '^<') -le 2"

# --- lines
$bin symbolize "$tmp/all.pb.gz" "$tmp/lines.pb.gz" 2>"$tmp/err" || no symbolize-runs
cat "$tmp/err"
check lines-and-inlined-functions-are-those-of-addr2line \
    python3 tests/live/names_judge.py lines "$tmp/lines.pb.gz" "$tmp/cxx" "$tmp/full"
check values-stay sh -c "go tool pprof -symbolize=none -top -nodecount=1 '$tmp/all.pb.gz' 2>/dev/null | grep 'Showing nodes accounting' | sed 's/.*of //' >'$tmp/a'
    go tool pprof -symbolize=none -top -nodecount=1 '$tmp/lines.pb.gz' 2>/dev/null | grep 'Showing nodes accounting' | sed 's/.*of //' >'$tmp/b'; test -s '$tmp/a' && cmp '$tmp/a' '$tmp/b'"
