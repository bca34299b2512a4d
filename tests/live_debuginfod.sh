#!/bin/sh
# `symbolize --debuginfod`: lines of a stripped program from a server; only when asked, and only of this very build.
: "${B:=build}"
bin=$B/ebpfprofiler
tmp=$(mktemp -d)
server=
trap 'kill $server 2>/dev/null; rm -rf "$tmp"' EXIT
ok() { echo "ok $1"; }
no() { echo "not ok $1"; shift; echo "$@"; }
check() { name=$1; shift; if "$@"; then ok "$name"; else no "$name" "$@"; fi; }

mkdir "$tmp/bare" "$tmp/cache"
g++ -O2 -g -Wl,--build-id=sha1 -o "$tmp/bare/served" tests/live/names.cc
id=$(readelf -n "$tmp/bare/served" | sed -n 's/.*Build ID: //p')
mkdir -p "$tmp/www/buildid/$id"
objcopy --only-keep-debug "$tmp/bare/served" "$tmp/www/buildid/$id/debuginfo"
cp "$tmp/bare/served" "$tmp/served.full"
strip "$tmp/bare/served"
$bin record -d 3 -o "$tmp/served.pb.gz" -- "$tmp/bare/served" 90 >/dev/null 2>&1
python3 -u -m http.server --bind 127.0.0.1 --directory "$tmp/www" 0 >"$tmp/port" 2>"$tmp/requests" & server=$!
for _ in $(seq 100); do port=$(sed -n 's/.* port \([0-9]*\).*/\1/p' "$tmp/port"); [ -n "$port" ] && break; sleep 0.3; done
export DEBUGINFOD_URLS="http://127.0.0.1:$port/" DEBUGINFOD_CACHE_PATH="$tmp/cache"
$bin symbolize "$tmp/served.pb.gz" "$tmp/unasked.pb.gz" 2>"$tmp/err"
check no-server-is-asked-unless-told sh -c "test ! -s '$tmp/requests' && ! go tool pprof -symbolize=none -raw '$tmp/unasked.pb.gz' 2>/dev/null | grep -q 'names\.cc:[1-9]'"
$bin symbolize --debuginfod "$tmp/served.pb.gz" "$tmp/asked.pb.gz" 2>"$tmp/err"
cat "$tmp/err"
check lines-from-a-server-are-those-of-addr2line \
    python3 tests/live/names_judge.py lines "$tmp/asked.pb.gz" "$tmp/bare/served" "$tmp/served.full"
check the-server-was-asked-by-build-id grep -q "GET /buildid/$id/debuginfo HTTP.* 200" "$tmp/requests"
# A server that has something else under that id.
rm -rf "$tmp/cache"
g++ -O1 -g -Wl,--build-id=sha1 -o "$tmp/another" tests/live/names.cc
objcopy --only-keep-debug "$tmp/another" "$tmp/www/buildid/$id/debuginfo"
$bin symbolize --debuginfod "$tmp/served.pb.gz" "$tmp/wrong.pb.gz" 2>"$tmp/err"
check another-builds-debug-information-is-refused sh -c "grep -q 'of another build' '$tmp/err' && ! go tool pprof -symbolize=none -raw '$tmp/wrong.pb.gz' 2>/dev/null | grep -q 'names\.cc:[1-9]'"
rm -rf "$tmp/cache"
DEBUGINFOD_URLS=http://127.0.0.1:9/ $bin symbolize --debuginfod "$tmp/served.pb.gz" "$tmp/dead.pb.gz" 2>"$tmp/err"
check a-dead-server-costs-only-the-lines sh -c "test $? -eq 0 && test -s '$tmp/dead.pb.gz'"
cat "$tmp/err"
