#!/bin/sh
# Boots each kernel of fetch.sh on both architectures under qemu, without KVM, and judges what
# guest.c found there: one line per kernel, closing with "N passed, N failed, N skipped". All that
# a guest needs is in its initramfs, the daemon with its shared libraries included; results come
# over the serial line. What the verifier walks for each program must stay under insns_max and near
# insns.txt; the new figures are in $B/kernels/insns.txt, to be copied over it when a growth is
# meant. What doctor finds must be what features.txt says. MATRIX=1 boots the matrix alone, without
# the cases of plan(), pages of another size and the guest units-arm64, which runs the unit tests of
# units.txt; ONLY="old-amd64 ..." boots those only. A guest that has passed with the same kernel, programs,
# and files of this folder is not booted again for 30 days, unless FRESH=1 says so. `make check-kernels`
# builds first.
set -u
: "${B:=build}"
out=$B/kernels
cache=${XDG_CACHE_HOME:-$HOME/.cache}/ebpfprofiler/kernels
here=$(dirname "$0")
roles="stable old oldest next rc stable16k next16k"
required="old-amd64 old-arm64 stable-amd64 stable-arm64"
units=units-arm64
seconds_max=400 # for one guest; 15 to 60 are usual on a quiet machine
boot_max=90 # until its first word; an emulated boot may hang for good
silent_max=150 # between two words: so may an emulated machine later on
insns_max=50000 # of the verifier, per program; the kernel's own limit is a million
insns_margin=10 # percent over insns.txt

# plan NAME: what a guest runs, a command per line; without arguments, guest checks the base. What
# does not depend on the processor is looked at on one only.
plan() {
    [ "$1" != $units ] || { cat "$here/units.txt"; return; }
    echo guest
    case $1 in
    oldest-amd64 | stable-amd64 | rc-amd64 | old-arm64 | next-arm64) echo guest waits-by-tables ;;
    *16k-*) ;;
    *) echo guest waits-by-frame-pointers ;;
    esac
    # Lists as interpreters have them, in each place that reads them.
    case $1 in
    *16k-*) ;;
    oldest-*) printf 'list_judge /t/lister %s list 1 10\n' offcpu outside ;; # no iterator may read there
    stable-*) printf 'list_judge /t/lister %s 1 10\n' 'sample array' 'sample jit' ;;
    *) printf 'list_judge /t/lister %s list 1 10\n' offcpu iterator ;;
    esac
    case ${MATRIX:+-}$1 in
    old-amd64) echo guest rights ;;
    stable-*) echo guest hotplug ;;
    next-amd64) printf 'guest sysctls\nguest lockdown\n' ;;
    next-arm64) echo guest sysctls ;;
    rc-amd64) echo guest known-bad ;;
    esac
}

# cpus NAME: numbers of CPUs that are odd, for qemu; what the kernel is told besides.
cpus() {
    case $1 in
    oldest-*) echo 1 ;;
    next-amd64) echo 2,maxcpus=16 ;;
    next-arm64) echo 4 ;; # two of them stay offline, see tell()
    rc-*) echo 3 ;;
    *) echo 2 ;;
    esac
}
# The kernel that a guest boots.
kernel() {
    case $1 in
    $units) echo "$cache/stable-arm64/vmlinuz" ;;
    *) echo "$cache/$1/vmlinuz" ;;
    esac
}
tell() { case $1 in next-arm64) echo maxcpus=2 ;; esac; }

. "$here/payload.sh"

# payload ARCH BUILD TRIPLE: $out/ARCH.cpio. Not compressed: unpacking is what an emulated machine
# is slow at.
payload() {
    root=$out/$1
    mkdir -p "$root/t" "$root/dev" "$root/proc" "$root/sys" "$root/tmp"
    cp "$2/guest/init" "$root/" || exit 1
    cp "$here/run.ini" "$root/t/" || exit 1
    for f in ebpfprofiler guest/guest guest/verifier.so guest/deep guest/flash guest/switch \
        guest/waits guest/lister tests/list_judge; do
        put "$2/$f" "$root" "$3"
    done
    for r in $roles; do plan "$r-$1" >"$root/t/$r"; done
    pack "$root" "$out/$1.cpio"
}

# On top of it the unit tests, with what iconv() and pthread_exit() load: $out/ARCH-units.cpio.
payload_units() {
    root=$out/$1-units
    mkdir -p "$root/t/tests" "$root/usr/lib/$3/gconv"
    cp -r tests/fixtures "$root/t/tests/"
    cp -r "/usr/lib/$3/gconv/gconv-modules"* "/usr/lib/$3/gconv/UTF-32.so" "$root/usr/lib/$3/gconv/"
    mkdir -p "$root/lib/$3"
    cp -L "/lib/$3/libgcc_s.so.1" "$root/lib/$3/" || exit 1
    plan $units >"$root/t/${units%-*}"
    while read -r t _; do put "$2/tests/$t" "$root" "$3"; done <"$here/units.txt"
    pack "$root" "$out/$1-units.part"
    cat "$out/$1.cpio" "$out/$1-units.part" >"$out/$1-units.cpio"
}

# boot NAME: the guest's words to its log. Once more when it said nothing for too long.
boot() {
    arch=${1##*-} log=$out/$1.log initrd=$out/$arch.cpio name=$1
    [ "$1" != $units ] || initrd=$out/$arch-units.cpio
    # One thread: the kernel patches its own code at boot, which races with code translated for
    # another virtual CPU. The architecture's own pointer signing takes half of all time.
    case $arch in
    amd64) set -- qemu-system-x86_64 -machine pc -cpu max -accel tcg,thread=single ;;
    *) set -- qemu-system-aarch64 -machine virt -cpu max,pauth-impdef=on -accel tcg ;;
    esac
    console=$([ "$arch" = amd64 ] && echo ttyS0 || echo ttyAMA0)
    for _ in 1 2; do
        : >"$log.raw"
        timeout $seconds_max "$@" -m 512 -smp "$(cpus "$name")" -display none -nodefaults \
            -no-reboot -serial "file:$log.raw" -kernel "$(kernel "$name")" -initrd "$initrd" \
            -append "console=$console panic=-1 quiet $(tell "$name") -- /t/${name%-*}" \
            </dev/null >"$out/$name.qemu" 2>&1 &
        emulator=$! n=0 said=0 at=0
        while kill -0 $emulator 2>/dev/null; do
            sleep 0.5
            n=$((n + 1))
            now=$(stat -c %s "$log.raw")
            [ "$now" -eq $said ] || { said=$now at=$n; }
            [ $((n - at)) -ne $((2 * silent_max)) ] || kill $emulator
            [ $n -ne $((2 * boot_max)) ] || grep -q '^@@ kernel' "$log.raw" || kill $emulator
        done
        tr -d '\r' <"$log.raw" >"$log"
        rm "$log.raw"
        grep -q '^@@ kernel' "$log" && return
        echo "$name: said nothing in $((n / 2)) s" >&2
    done
}

# Figures of one guest against those of insns.txt, as reasons to fail. A program that was loaded
# in several ways counts with the most; the size of pages is of no matter.
judge_insns() {
    role=${1%-*}
    case $1 in *16k-*) all=0 ;; *) all=1 ;; esac # no command is run there, so no fork is followed
    sed -n 's/^@@ insns //p' "$out/$1.log" | sort -k1,1 -k2,2nr | sort -su -k1,1 |
        sed "s/^/${role%16k}-${1##*-} /" >"$out/$1.insns"
    awk -v name="${role%16k}-${1##*-}" -v all=$all -v max=$insns_max -v margin=$insns_margin '
        FILENAME == ARGV[1] { if ($1 == name) want[$2] = $3; next }
        { seen[$2] = 1 }
        $3 > max { print $2 " takes " $3 " insns, over " max; next }
        !$3 || !($2 in want) { print $2 " takes " $3 " insns, not in insns.txt"; next }
        $3 > (1 + margin / 100) * want[$2] { print $2 " takes " $3 " insns, was " want[$2] }
        END { for (p in want) if (all && !(p in seen)) print p " was not loaded" }
    ' "$here/insns.txt" "$out/$1.insns"
}

# What doctor said of the kernel against features.txt; pages of another size are of no matter.
judge_features() {
    sed -n 's/^.*"features":{\([^}]*\)}.*/\1/p' "$out/$1.log" | tr -d '"' | tr ',:' '\n ' >"$out/$1.features"
    role=${1%-*}
    awk -v role="${role%16k}" '
        /^#/ { next }
        FILENAME == ARGV[1] && !column { for (i = 2; i <= NF; i++) if ($i == role) column = i; next }
        FILENAME == ARGV[1] { want[$1] = $column; next }
        { seen[$1] = $2 }
        END {
            for (f in want)
                if (!(f in seen)) print f " is not told by doctor"
                else if (seen[f] != want[f]) print f " is " seen[f] ", not " want[f]
        }
    ' "$here/features.txt" "$out/$1.features"
}

# What the verifier walked, and what was sampled.
figures() {
    printf '%s; %s samples, %s %% whole; ' \
        "$(awk '{ printf "%s%s %s", (NR > 1 ? ", " : ""), $2, $3 }' "$out/$1.insns")" \
        "$(sed -n 's/^@@ samples //p' "$out/$1.log")" "$(sed -n 's/^@@ whole //p' "$out/$1.log")"
}

# All that the verdict on a guest depends on, as a number.
key() {
    {
        echo "$1 ${MATRIX:-}"
        cat "$here"/*.sh "$here"/*.txt "$(kernel "$1")"
        find "$out/${1##*-}" -type f -exec sha256sum {} + | sort
        [ "$1" != $units ] || find "$out/${1##*-}-units" -type f -exec sha256sum {} + | sort
    } | sha256sum | cut -c 1-32
}

# one NAME: boots it, prints its line; or the line that it had.
one() {
    name=$1 start=$(date +%s)
    result=$cache/results/$name-$(key "$name")
    if [ -z "${FRESH:-}" ] && [ -s "$result/line" ]; then
        [ "$name" = $units ] || cp "$result/insns" "$out/$name.insns"
        sed 's/$/ (not booted again)/' "$result/line"
        return
    fi
    boot "$name"
    log=$out/$name.log
    {
        grep -q '^@@ end' "$log" || echo "did not come to its end"
        sed -n 's/^@@ not ok //p; s/^@@ exit [1-9][0-9]* [0-9.]* \(.*\)/\1 failed/p' "$log"
        [ "$name" = $units ] || { judge_insns "$name"; judge_features "$name"; }
    } >"$out/$name.why"
    printf '%s %-15s %-29s %s%d checks, %d s\n' \
        "$([ -s "$out/$name.why" ] && echo not ok || echo ok)" "$name" \
        "$(sed -n 's/^@@ kernel \([^ ]*\).*/\1/p' "$log")" \
        "$([ "$name" = $units ] || figures "$name")" \
        "$(grep -cE '^@@ (ok|exit 0) ' "$log")" $(($(date +%s) - start)) | tee "$out/$name.line"
    if [ -s "$out/$name.why" ]; then
        sed "s|^|  $name: |" "$out/$name.why"
        return
    fi
    mkdir -p "$result"
    cp "$out/$name.line" "$result/line"
    [ "$name" = $units ] || cp "$out/$name.insns" "$result/insns"
}

# The guests to boot, the longest first; says which are not to be had.
guests() {
    for name in $units stable-arm64 old-arm64 old-amd64 next-arm64 next-amd64 stable-amd64 rc-arm64 \
        rc-amd64 oldest-arm64 oldest-amd64 stable16k-arm64 next16k-arm64; do
        case " ${ONLY:-$name} " in *" $name "*) ;; *) continue ;; esac
        case ${MATRIX:+matrix}$name in matrix*16k-* | matrix$units) continue ;; esac
        if [ -s "$(kernel "$name")" ]; then
            echo "$name" >>"$out/guests"
        else
            case " $required " in
            *" $name "*) echo "not ok $name: no such kernel on the mirror or in the cache, and it is required" ;;
            *) echo "skip $name: no such kernel on the mirror or in the cache" ;;
            esac | tee -a "$out/summary"
        fi
    done
}

matrix() {
    rm -rf "$out"
    mkdir -p "$out"
    : >"$out/guests"
    : >"$out/summary"
    find "$cache/results" -mindepth 1 -maxdepth 1 -mtime +30 -exec rm -r {} + 2>/dev/null
    sh "$here/fetch.sh" "$cache" || exit 1
    guests
    if grep -q -- '-amd64$' "$out/guests"; then payload amd64 "$B" x86_64-linux-gnu; fi
    if grep -q -- '-arm64$' "$out/guests"; then payload arm64 "$B/arm64" aarch64-linux-gnu; fi
    if grep -qx $units "$out/guests"; then payload_units arm64 "$B/arm64" aarch64-linux-gnu; fi
    export B
    xargs -r -P "$(nproc)" -n 1 sh "$0" one <"$out/guests" | tee -a "$out/summary"
    # What a guest found wrong is looked at once more, alone: two guests and a busy host are slow,
    # not wrong. Figures do not change.
    sed -n 's/^not ok \([a-z0-9]*-a[a-z0-9]*64\) .*/\1/p' "$out/summary" >"$out/again"
    while read -r name; do
        if grep -q '^@@ end' "$out/$name.log" && ! grep -qE '^@@ (not ok|exit [1-9])' "$out/$name.log"; then
            continue
        fi
        sed -i "/^not ok $name /d" "$out/summary"
        echo "once more, alone: $name"
        mv "$out/$name.log" "$out/$name.first.log"
        sh "$0" one "$name" </dev/null | tee -a "$out/summary"
    done <"$out/again"
    cat "$out"/*.insns | sort -u -k1,2 >"$out/insns.txt"
    passed=$(grep -c '^ok ' "$out/summary")
    failed=$(grep -c '^not ok ' "$out/summary")
    skipped=$(grep -c '^skip ' "$out/summary")
    [ "$failed" -eq 0 ] || echo "what the guests said is in $out/"
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
}

case ${1:-matrix} in
matrix) matrix ;;
one) one "$2" ;;
*) echo "usage: run.sh" >&2; exit 2 ;;
esac
