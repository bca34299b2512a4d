#!/bin/sh
# Lays runtimes of several releases side by side for the tests that profile them.
#
#   get.sh [NAME...]     fetches what is missing of the named ones (default: all but the extras and
#                        the arm64 twins; "default", "extra", "all", "arm64" name groups) and prints a
#                        line each: name, version that it told when started, size, seconds
#   get.sh list [NAME...]   what is there: "VARIANT COMMAND" a line. The command starts the
#                        interpreter in place of itself, so its pid is the interpreter's. See
#                        enter.c for RUNTIME_ENTER, which says how.
#   get.sh roots [NAME...]  what is there: "NAME VERSION FOLDER"
#
# They go to ${XDG_CACHE_HOME:-~/.cache}/ebpfprofiler/runtimes/NAME and stay until that folder is
# removed. The file "table" beside this one says what there is and where from. Packages come from the
# Debian mirror that this system's apt is set up with, over package lists of our own, and from npm;
# no script of a package runs, and nothing of this system is touched. What is not to be had is said
# with "skip NAME: why" and does no harm.
set -u
here=$(cd "$(dirname "$0")" && pwd)
table=$here/table
cache=${XDG_CACHE_HOME:-$HOME/.cache}/ebpfprofiler/runtimes
qemu=$cache/qemu-user/root/usr/bin/qemu-aarch64-static
mkdir -p "$cache/bin" || exit 1

skip() { # skip NAME WHY
    echo "skip $1: $2"
}

# rows WORD [NAME]: the rest of the table's rows that start with WORD and then NAME.
rows() {
    sed -n "s/^$1 \(${2:-[^ ]*}\( .*\)\)\$/\1/p" "$table"
}

names() { # names default|extra|all|arm64
    awk -v what="$1" '
        $1 == "extra" { extra = 1 }
        $1 == "add" { added[$2] }
        $1 != "get" { next }
        what == "arm64" { if ($3 == "debian" && !extra) arm[++n] = $2; next }
        what == "all" || (what == "extra") == (extra + 0) { print $2 }
        END { for (i = 1; i <= n; i++) if (!(arm[i] in added)) print arm[i] "-arm64" }' "$table"
}

# The unit that a name belongs to: itself, or the one that a variant is started from.
unit_of() {
    base=${1%-arm64}
    suffix=${1#"$base"}
    [ -n "$(rows get "$base")" ] && echo "$1" && return
    rows run "$base" | { read -r _ unit _ && echo "$unit$suffix"; }
}

# --- Debian -------------------------------------------------------------------------------------

# The address of the mirror in use.
mirror() {
    case $1 in *-security) label=Debian-Security ;; *) label=Debian ;; esac
    # shellcheck disable=SC2016
    apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' "Label: $label" 2>/dev/null |
        sort -u | head -n 1
}

# apt_of SUITES ARCH TOOL ARG...: apt with lists of its own over an empty system of that
# architecture. An old suite's lists may have run out. dpkg is out of its reach.
apt_of() {
    apt=$cache/.apt/$1-$2 arch=$2 tool=$3
    shift 3
    "$tool" -o Dir="$apt" -o Dir::Etc="$apt" -o Dir::State="$apt" -o Dir::Cache="$apt" \
        -o Dir::State::status="$apt/status" -o Dir::Cache::archives="$work/debs" \
        -o Dir::Bin::dpkg=/bin/false -o APT::Architecture="$arch" -o APT::Architectures="$arch" \
        -o APT::Install-Recommends=false -o APT::Sandbox::User=root -o Acquire::Languages=none \
        -o Acquire::Check-Valid-Until=false -o Acquire::Retries=3 "$@"
}

# lists SUITES ARCH: package lists that are younger than a day. "" when there is no mirror.
lists() {
    apt=$cache/.apt/$1-$2
    mkdir -p "$apt/lists/partial" "$work/debs/partial" "$apt/sources.list.d" \
        "$apt/preferences.d" "$apt/apt.conf.d"
    : >"$apt/status"
    [ -n "$(find "$apt/done" -mtime -1 2>/dev/null)" ] && return
    for suite in $(echo "$1" | tr , ' '); do
        uri=$(mirror "$suite")
        [ -n "$uri" ] || return
        echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $uri $suite main"
    done >"$apt/sources.list"
    apt_of "$1" "$2" apt-get -qq update >"$work/log" 2>&1 && : >"$apt/done"
}

# unpack ROOT DEB...: no documents, and what a maintainer's script would have left at the least.
unpack() {
    root=$1
    shift
    mkdir -p "$root/etc" "$root/var" "$root/tmp" "$root/proc" "$root/dev"
    for d in bin sbin lib lib64; do
        mkdir -p "$root/usr/$d" && ln -s "usr/$d" "$root/$d"
    done
    for deb; do
        dpkg-deb --fsys-tarfile "$deb" |
            tar -x -C "$root" --keep-directory-symlink --no-same-owner --exclude=./usr/share/doc \
                --exclude=./usr/share/man --exclude=./usr/share/locale || return
    done
    echo root:x:0:0:root:/root:/bin/sh >"$root/etc/passwd"
    echo nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin >>"$root/etc/passwd"
    printf 'root:x:0:\nnogroup:x:65534:\n' >"$root/etc/group"
}

get_debian() { # get_debian NAME DIR ARCH SUITES PACKAGE...
    name=$1 dir=$2 arch=$3 suites=$4
    shift 4
    lists "$suites" "$arch"
    set -- install libc-bin "$@"
    plan=$(apt_of "$suites" "$arch" apt-get -qq -y -s "$@" 2>"$work/log" |
        sed -n 's/^Inst \([^ ]*\) (\([^ ]*\) .*/\1 \2/p')
    if [ -z "$plan" ]; then
        skip "$name" "$suites: $(grep -m1 '^E:' "$work/log" || echo 'no package lists')"
        return 1
    fi
    if ! apt_of "$suites" "$arch" apt-get -qq -y --download-only "$@" >"$work/log" 2>&1; then
        skip "$name" "$suites: $(grep -m1 '^E:' "$work/log")"
        return 1
    fi
    # apt names its files PACKAGE_VERSION_ARCH.deb, with ":" written as "%3a".
    debs=$(echo "$plan" | sed 's/:[^ ]* / /; s/:/%3a/g' | while read -r p v; do
        ls "$work/debs/${p}_${v}_$arch.deb" "$work/debs/${p}_${v}_all.deb" 2>/dev/null
    done)
    # shellcheck disable=SC2086
    unpack "$dir/root" $debs || return
    echo "$plan" >"$dir/packages"
}

# --- npm, pyenv ---------------------------------------------------------------------------------

# Unpacks a package of npm into /opt of the unit; its folder of libraries goes to the loader's list.
add_npm() { # add_npm NAME DIR PACKAGE VERSION [FOLDER]
    if ! command -v npm >/dev/null; then
        skip "$1" "npm is missing"
        return 1
    fi
    if ! (cd "$2" && npm pack --silent "$3@$4" >/dev/null 2>"$work/log"); then
        skip "$1" "npm: $3@$4: $(head -n 1 "$work/log")"
        return 1
    fi
    mkdir "$2/root/opt" &&
        tar -xzf "$2"/*.tgz -C "$2/root/opt" --strip-components=1 --no-same-owner &&
        rm "$2"/*.tgz && chmod -R a+x "$2/root/opt" || return
    echo "$3 $4" >>"$2/packages"
    [ $# -lt 5 ] || { echo "/opt/$5" >"$2/root/etc/ld.so.conf" && ldconfig -r "$2/root"; }
}

get_pyenv() { # get_pyenv NAME DIR X.Y
    found=$(ls -d "${PYENV_ROOT:-$HOME/.pyenv}/versions/$3".* 2>/dev/null | sort -V | tail -n 1)
    if [ -z "$found" ]; then
        skip "$1" "pyenv has no $3"
        return 1
    fi
    ln -s "$found" "$2/root"
}

# --- what can be started ------------------------------------------------------------------------

# How a program is asked for its version.
version_of() { # version_of NAME COMMAND
    case $1 in
    *-fpm*) set -- "$2" -v ;;
    cpython-*) set -- "$2" -c 'import sys; print(sys.version.split()[0] +
        ("" if getattr(sys, "_is_gil_enabled", lambda: 1)() else "t"))' ;;
    php-*) set -- "$2" -n -r 'echo PHP_VERSION, PHP_ZTS ? "-zts" : "";' ;;
    ruby-*) set -- "$2" -e 'puts "#{RUBY_VERSION}p#{RUBY_PATCHLEVEL}"' ;;
    *) set -- "$2" --version ;;
    esac
    timeout 60 "$@" 2>"$work/log" </dev/null | head -n 1
}

# The command that starts a variant: $cache/bin/VARIANT.
wrapper() { # wrapper VARIANT UNIT KIND ARCH [VARIABLE=VALUE...] PROGRAM ARG...
    to=$cache/bin/$1 root=$cache/$2/root start=$3-$4
    shift 4
    {
        echo '#!/bin/sh'
        while :; do
            case $1 in
            *=*) echo "export $1" ;;
            *) break ;;
            esac
            shift
        done
        program=$1
        shift
        case $start in
        debian-amd64) echo "exec '$cache/enter' '$root' '$program' $* \"\$@\"" ;;
        debian-arm64) echo "exec '$qemu' -L '$root' '$root$program' $* \"\$@\"" ;;
        *) echo "exec '$root/$program' $* \"\$@\"" ;;
        esac
    } >"$to.new"
    chmod 755 "$to.new" && mv "$to.new" "$to"
}

# A program of ours, linked to a library of the unit.
link() { # link DIR ARCH PROGRAM SOURCE LIBRARY
    lib=$(find "$1/root" -name "$5" | head -n 1)
    cc=gcc
    [ "$2" = amd64 ] || cc=aarch64-linux-gnu-gcc
    [ -n "$lib" ] && $cc -O2 -o "$1/root$3" "$here/$4" "$lib" -Wl,--allow-shlib-undefined \
        2>"$work/log" || return
    # The loader asks for the library's own name, which a package may leave to its scripts.
    soname=$(readelf -d "$lib" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')
    dir=$1/root/usr/lib
    [ -e "$(dirname "$lib")/$soname" ] || [ -L "$dir/$soname" ] ||
        ln -s "${lib#"$1/root"}" "$dir/$soname"
}

# fetch NAME: a unit, whole or not at all.
fetch() {
    name=$1 base=${1%-arm64} arch=amd64
    [ "$base" = "$1" ] || arch=arm64
    # shellcheck disable=SC2046
    set -- $(rows get "$base")
    kind=${2:-none}
    [ "$kind" = debian ] && [ -z "$(rows add "$base")" ] || [ $arch = amd64 ] || kind=none
    dir=$work/$name
    mkdir "$dir" || return
    shift $(($# < 2 ? $# : 2))
    case $kind in
    debian) get_debian "$name" "$dir" $arch "$@" ;;
    pyenv) get_pyenv "$name" "$dir" "$@" ;;
    *) skip "$name" "no such runtime" && return 1 ;;
    esac || return
    # shellcheck disable=SC2046
    set -- $(rows add "$base")
    if [ $# -gt 0 ]; then
        shift
        add_npm "$name" "$dir" "$@" || return
    fi
    rows link "$base" | while read -r _ program source library; do
        link "$dir" $arch "$program" "$source" "$library" ||
            skip "$name" "cannot link $program: $(tail -n 1 "$work/log")"
    done
    keep=$(rows keep "$base" | cut -d' ' -f2)
    [ -z "$keep" ] || find "$dir/root" -type f ! -name "$keep" -delete
    rm -rf "${cache:?}/$name" && mv "$dir" "$cache/$name"
}

# offer UNIT: prints the commands of a unit's variants, as far as they are there.
offer() {
    base=${1%-arm64} arch=amd64 suffix=
    [ "$base" = "$1" ] || arch=arm64 suffix=-arm64
    broken=
    [ ! -e "$cache/$1/broken" ] || broken=$(cat "$cache/$1/broken")
    awk -v unit="$base" '
        $1 == "get" { kind[$2] = $3 }
        $1 == "run" && $3 == unit {
            for (i = 4; $i ~ /=/; i++);
            print $2, kind[unit], $i, $0
        }' "$table" | while read -r variant kind program _ _ _ command; do
        [ -e "$cache/$1/root/$program" ] || continue
        case "
$broken
" in *"
$variant$suffix
"*) continue ;; esac
        to=$cache/bin/$variant$suffix
        # shellcheck disable=SC2086
        [ "$to" -nt "$table" ] && [ "$to" -nt "$here/get.sh" ] ||
            wrapper "$variant$suffix" "$1" "$kind" $arch $command
        echo "$variant$suffix $to"
    done
}

# Starts each variant of a unit; the first one's word is the unit's version.
prove() {
    offer "$1" >"$work/offer"
    while read -r variant command; do
        version=$(version_of "$variant" "$command")
        if [ -z "$version" ]; then
            skip "$variant" "does not start: $(head -n 1 "$work/log")"
            echo "$variant" >>"$cache/$1/broken"
        fi
        echo "$version"
    done <"$work/offer" >"$work/versions"
    grep '^skip' "$work/versions"
    if ! grep -vm1 '^skip\|^$' "$work/versions" >"$work/version"; then
        rm -rf "${cache:?}/$1"
        return 1
    fi
    du -smD "$cache/$1/root" | cut -f1 >"$cache/$1/size"
    mv "$work/version" "$cache/$1/version"
}

get() {
    start=$(date +%s)
    if [ ! -s "$cache/$1/version" ]; then
        case $1 in *-arm64) [ -x "$qemu" ] || fetch qemu-user || return ;; esac
        fetch "$1" && prove "$1" || return
    fi
    echo "$1 $(cat "$cache/$1/version") $(cat "$cache/$1/size") MB" \
        "$(($(date +%s) - start)) s"
}

present() {
    for d in "$cache"/*/version; do
        [ ! -e "$d" ] || basename "$(dirname "$d")"
    done
}

# The units meant by arguments: names of units, of variants and of groups.
units() {
    for arg; do
        case $arg in
        default | all | extra | arm64) names "$arg" ;;
        *) unit_of "$arg" | grep . || echo "$arg" ;;
        esac
    done | awk '!seen[$0]++'
}

mode=get
case ${1:-} in list | roots) mode=$1; shift ;; esac
case $mode-$# in
get-0) units=$(names default) ;;
*-0) units=$(present) ;;
*) units=$(units "$@") ;;
esac

work=$(mktemp -d "$cache/.work.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
for u in $units; do
    case $mode in
    list) [ ! -s "$cache/$u/version" ] || offer "$u" ;;
    roots) [ ! -s "$cache/$u/version" ] ||
        echo "$u $(cat "$cache/$u/version") $(readlink -f "$cache/$u/root")" ;;
    esac
done
[ $mode = get ] || exit 0

# One at a time on a machine: a second caller waits for the first and then finds all there.
exec 9>"$cache/.lock"
flock 9
find "$cache" -maxdepth 1 -name '.work.*' -mtime +0 -exec rm -rf {} + # of one that was killed
gcc -O2 -o "$cache/enter.new" "$here/enter.c" && mv "$cache/enter.new" "$cache/enter" || exit 1
for u in $units; do
    get "$u"
done
