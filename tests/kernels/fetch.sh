#!/bin/sh
# The kernels that the tests boot: fetch.sh DIR puts DIR/ROLE-ARCH/{vmlinuz,name} there, and says
# which kernel is not to be had. Roles, not versions, since suites move on. Packages come from the
# Debian mirror that this system's apt is set up with, over package lists of our own: nothing of
# the system's apt is touched. What is there and younger than 30 days stays; what is older stays
# when the mirror cannot be reached or serves it no more.
set -u
cache=$1
names="oldest-amd64 oldest-arm64 old-amd64 old-arm64 stable-amd64 stable-arm64 next-amd64 next-arm64
       rc-amd64 rc-arm64 stable16k-arm64 next16k-arm64"
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

suites_of() {
    case $1 in
    oldest) echo "bullseye-security bullseye" ;;
    old) echo "bookworm-security bookworm" ;;
    stable | stable16k) echo "trixie-security trixie" ;;
    next | next16k) echo sid ;;
    rc) echo experimental ;;
    esac
}

# The address of the mirror in use.
mirror() {
    case $1 in *-security) label=Debian-Security ;; *) label=Debian ;; esac
    # shellcheck disable=SC2016
    apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' "Label: $label" |
        sort -u | head -n 1
}

# apt_of SUITE TOOL ARG...: apt with lists of its own. An old suite's lists may have run out.
apt_of() {
    root=$work/apt/$1 tool=$2
    shift 2
    "$tool" -o Dir="$root" -o Dir::Etc="$root" -o Dir::State="$root" -o Dir::Cache="$root" \
        -o Dir::State::status="$root/status" -o APT::Architectures=amd64,arm64 \
        -o APT::Sandbox::User=root -o Acquire::Languages=none \
        -o Acquire::Check-Valid-Until=false -o Acquire::Retries=1 -o Acquire::http::Timeout=20 \
        -o Acquire::https::Timeout=20 "$@"
}

lists() {
    root=$work/apt/$1
    [ -e "$root" ] && return
    mkdir -p "$root/lists/partial" "$root/archives/partial" "$root/sources.list.d" \
        "$root/preferences.d" "$root/apt.conf.d"
    : >"$root/status"
    uri=$(mirror "$1")
    [ -n "$uri" ] && [ ! -e "$work/unreachable" ] || return
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $uri $1 main" \
        >"$root/sources.list"
    apt_of "$1" apt-get -qq update >"$work/log" 2>&1
    # One such wait is enough. A suite that is gone is another matter.
    if grep -qE 'Could not (connect|resolve)|[Tt]imed out|Temporary failure' "$work/log"; then
        : >"$work/unreachable"
    fi
}

# The package that always depends on the newest image of its kind.
meta_of() {
    case $1 in
    *16k) echo linux-image-arm64-16k ;;
    *) echo "linux-image-cloud-$2" ;;
    esac
}

# packages SUITE META ARCH: those that may hold the image; newer ones split it off.
packages() {
    apt_of "$1" apt-cache show "$2:$3" 2>/dev/null | grep -a '^Depends' |
        grep -o 'linux-image-[0-9][^ ,]*' | sort -rVu |
        sed 's/^\(linux-image-\(.*\)\)$/linux-binary-\2 \1/' | tr ' ' '\n'
}

# unpack DEB DIR: the image out of a package.
unpack() {
    dpkg-deb --fsys-tarfile "$1" | tar -xO --wildcards './boot/vmlinuz-*' >"$2/vmlinuz" 2>/dev/null
    [ -s "$2/vmlinuz" ] || dpkg-deb --fsys-tarfile "$1" |
        tar -xO --wildcards './usr/lib/modules/*/vmlinuz' >"$2/vmlinuz" 2>/dev/null
    [ -s "$2/vmlinuz" ]
}

fetch() {
    role=$1 arch=$2
    new=$work/$role-$arch
    mkdir -p "$new"
    for suite in $(suites_of "$role"); do
        lists "$suite"
        for p in $(packages "$suite" "$(meta_of "$role" "$arch")" "$arch"); do
            rm -f "$work"/*.deb
            (cd "$work" && apt_of "$suite" apt-get -qq download "$p:$arch") >/dev/null 2>&1 || continue
            unpack "$work"/*.deb "$new" || continue
            echo "$p" | sed 's/^linux-[a-z]*-//' >"$new/name"
            rm -rf "${cache:?}/$role-$arch" && mv "$new" "$cache/$role-$arch"
            return
        done
    done
    if [ -s "$cache/$role-$arch/vmlinuz" ]; then
        echo "WARNING: no kernel '$role' ($(suites_of "$role")) for $arch from the mirror;" \
            "the one in the cache is used: $(cat "$cache/$role-$arch/name")" >&2
    else
        echo "WARNING: no kernel '$role' ($(suites_of "$role")) for $arch from the mirror" >&2
    fi
}

mkdir -p "$cache"
for name in $names; do
    [ -n "$(find "$cache/$name/vmlinuz" -size +0 -mtime -30 2>/dev/null)" ] ||
        fetch "${name%-*}" "${name##*-}"
done
