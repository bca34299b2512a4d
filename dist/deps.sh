#!/bin/sh
# Installs the Debian packages that the build (deps.sh), the tests (deps.sh check) or the live
# tests (deps.sh live) need. Says what it installs; does nothing, quickly, when all is there.
set -eu
build="gcc clang llvm bpftool libbpf-dev libelf-dev zlib1g-dev libinih-dev libcurl4-gnutls-dev
       nettle-dev libprotobuf-c-dev protobuf-c-compiler linux-libc-dev libc6-dev git"
check="libcmocka-dev python3 binutils libunwind-dev libdw-dev elfutils"
live="golang-go golang-github-google-pprof-dev protobuf-compiler linux-perf clang-format
      libclang-rt-14-dev libasan8 libubsan1 nodejs"
case ${1:-build} in
build) want=$build ;;
check) want="$build $check" ;;
live) want="$build $check $live" ;;
*) echo "usage: deps.sh [build|check|live]" >&2; exit 2 ;;
esac
command -v node >/dev/null 2>&1 && want=$(echo "$want" | sed 's/nodejs//')
missing=
have=$(dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' 2>/dev/null | sed -n 's/^ii  *//p')
for p in $want; do
    echo "$have" | grep -qx "$p" || missing="$missing $p"
done
[ -n "$missing" ] || exit 0
if [ "$(id -u)" -ne 0 ]; then
    echo "deps: packages are missing; run: sudo apt-get install -y --no-install-recommends$missing" >&2
    exit 1
fi
echo "deps: installing$missing"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# shellcheck disable=SC2086
apt-get install -y -qq --no-install-recommends $missing >/dev/null
