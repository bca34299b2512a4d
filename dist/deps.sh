#!/bin/sh
# Installs the Debian packages that the build (deps.sh), the tests (deps.sh check), the live tests
# (deps.sh live), the Debian package (deps.sh deb), the arm64 build on another machine (deps.sh arm64) or the tests on other kernels
# (deps.sh kernels) need. Says what it installs; does nothing, quickly, when all is there.
set -eu
libs="libbpf-dev libelf-dev zlib1g-dev libinih-dev libcurl4-gnutls-dev nettle-dev libprotobuf-c-dev
      libiberty-dev liblzma-dev libdw-dev libmicrohttpd-dev libjansson-dev"
build="gcc clang bpftool protobuf-c-compiler linux-libc-dev libc6-dev $libs"
# Only a clone has a version to be asked for.
[ ! -e .git ] || build="$build git"
check="libcmocka-dev python3 python3-protobuf python3-grpcio python3-prometheus-client python3-kubernetes
       python3-yaml protobuf-compiler bash binutils libunwind-dev elfutils"
live="llvm golang-go golang-github-google-pprof-dev linux-perf clang-format
      libclang-rt-14-dev libasan8 libubsan1 nodejs g++ libdebuginfod1 python3-seccomp chromium fonts-dejavu-core"
deb="git debhelper dpkg-dev fakeroot lintian"
arm64="gcc-aarch64-linux-gnu"
for p in $libs libcmocka-dev libunwind-dev libc6-dev; do arm64="$arm64 $p:arm64"; done
kernels="qemu-system-x86 qemu-system-arm cpio binutils debian-archive-keyring"
case ${1:-build} in
build) want=$build ;;
check) want="$build $check" ;;
live) want="$build $check $live" ;;
deb) want="$build $deb" ;;
arm64) want="$build $arm64" ;;
kernels) want="$build libcmocka-dev $arm64 $kernels" ;;
*) echo "usage: deps.sh [build|check|live|deb|arm64|kernels]" >&2; exit 2 ;;
esac
command -v node >/dev/null 2>&1 && want=$(echo "$want" | sed 's/nodejs//')
native=$(dpkg --print-architecture)
missing=
have=$(dpkg-query -W -f '${db:Status-Abbrev} ${Package}:${Architecture}\n' 2>/dev/null |
    sed -n "s/:$native\$//; s/:all\$//; s/^ii  *//p")
for p in $want; do
    echo "$have" | grep -qx "$p" || missing="$missing $p"
done
[ -n "$missing" ] || exit 0
foreign=
case $missing in *:arm64*) dpkg --print-foreign-architectures | grep -qx arm64 || foreign=arm64 ;; esac
if [ "$(id -u)" -ne 0 ]; then
    echo "deps: packages are missing; run: ${foreign:+sudo dpkg --add-architecture arm64; }sudo apt-get" \
        "update; sudo apt-get install -y --no-install-recommends$missing" >&2
    exit 1
fi
echo "deps: installing$missing"
export DEBIAN_FRONTEND=noninteractive
[ -z "$foreign" ] || dpkg --add-architecture "$foreign"
apt-get update -qq
# Both architectures of a library are of one version: installing one may move the other on.
# shellcheck disable=SC2086
apt-get install -y -qq --no-install-recommends --no-remove $missing >/dev/null
