#!/bin/sh
# The kernels that the tests boot: fetch.sh DIR puts DIR/ROLE-ARCH/{vmlinuz,name} there, and says
# which kernel is not to be had. Roles, not versions, since suites move on. Packages come from the
# Debian mirror that this system's apt is set up with, over package lists of our own: nothing of
# the system's apt is touched. What is there and younger than 30 days stays.
set -u
cache=$1
roles="oldest old stable next rc"
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

suites_of() {
    case $1 in
    oldest) echo "bullseye-security bullseye" ;;
    old) echo "bookworm-security bookworm" ;;
    stable) echo "trixie-security trixie" ;;
    next) echo sid ;;
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
        -o Acquire::Check-Valid-Until=false "$@"
}

lists() {
    root=$work/apt/$1
    [ -e "$root" ] && return
    mkdir -p "$root/lists/partial" "$root/archives/partial" "$root/sources.list.d" \
        "$root/preferences.d" "$root/apt.conf.d"
    : >"$root/status"
    uri=$(mirror "$1")
    [ -n "$uri" ] || return
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $uri $1 main" \
        >"$root/sources.list"
    apt_of "$1" apt-get -qq update >"$work/log" 2>&1
}

# Packages that may hold the image: the meta package names them; newer ones split the image off.
packages() {
    apt_of "$1" apt-cache show "linux-image-cloud-$2:$2" 2>/dev/null | grep -a '^Depends' |
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
        for p in $(packages "$suite" "$arch"); do
            rm -f "$work"/*.deb
            (cd "$work" && apt_of "$suite" apt-get -qq download "$p:$arch") >/dev/null 2>&1 || continue
            unpack "$work"/*.deb "$new" || continue
            echo "$p" | sed 's/^linux-[a-z]*-//' >"$new/name"
            rm -rf "${cache:?}/$role-$arch" && mv "$new" "$cache/$role-$arch"
            return
        done
    done
    [ -s "$cache/$role-$arch/vmlinuz" ] && return
    echo "WARNING: the mirror has no kernel '$role' ($(suites_of "$role")) for $arch" >&2
}

mkdir -p "$cache"
for role in $roles; do
    for arch in amd64 arm64; do
        [ -n "$(find "$cache/$role-$arch/vmlinuz" -size +0 -mtime -30 2>/dev/null)" ] ||
            fetch "$role" "$arch"
    done
done
