#!/bin/sh
# `make run`: profiles this host with a configuration of its own into build/store, until Ctrl-C.
set -eu
bin=$1
store=$PWD/build/store
if [ "$(id -u)" -ne 0 ]; then
    echo "make run: sampling needs root: sudo make run" >&2
    exit 3
fi
mkdir -p build
# Made anew, owned by root: the daemon trusts no configuration that others can write.
rm -f build/run.ini
umask 077
cat >build/run.ini <<EOF
[ebpf_profiler]
enabled = true
upload_interval_s = 10
[store]
path = $store
max_mb = 256
EOF
cat <<EOF
Profiling this host at 19 Hz per CPU. Look at it, ten seconds from now, at
    http://127.0.0.1:7077/
Ctrl-C ends it. Every 10 s one profile per service goes to
    $store/profiles
Open one, here or on any machine with Go (Debian: apt-get install golang-go):
    go tool pprof -top $store/profiles/NAME.pb.gz
    go tool pprof -http=: $store/profiles/NAME.pb.gz      (flame graph in the browser)
EOF
exec "$bin" run -c build/run.ini
