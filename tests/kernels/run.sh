#!/bin/sh
# Boots each kernel of fetch.sh on both architectures under qemu, without KVM, and judges what
# guest.c found there: one line per kernel, closing with "N passed, N failed, N skipped". All that
# a guest needs is in its initramfs, the daemon with its shared libraries included; results come
# over the serial line. Verifier figures must stay near insns.txt; the new ones are in
# $B/kernels/insns.txt, to be copied over it when a growth is meant. One arm64 guest also runs the
# unit tests of units.txt. ONLY="old-amd64 ..." boots those only. `make check-kernels` builds first.
set -u
: "${B:=build}"
out=$B/kernels
cache=${XDG_CACHE_HOME:-$HOME/.cache}/ebpfprofiler/kernels
here=$(dirname "$0")
required="old-amd64 old-arm64 stable-amd64 stable-arm64"
units_on=stable-arm64
seconds_max=120 # for one guest; 10 to 30 are usual
insns_max=50000 # per program: a tenth is what they take, and kernels differ by far more

# libraries ROOT TRIPLE FILE: what a program needs, by name; no loader runs, so of any architecture.
libraries() {
    for l in $(readelf -d "$3" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p') \
        $(readelf -lW "$3" | sed -n 's/.*program interpreter: \(.*\)\]/\1/p'); do
        case $l in /*) to=$1$l ;; *) to=$1/lib/$2/$l ;; esac
        [ -e "$to" ] && continue
        from=/lib/$2/$(basename "$l")
        [ -e "$from" ] || from=/usr/lib/$2/$(basename "$l")
        mkdir -p "$(dirname "$to")"
        cp -L "$from" "$to" || exit 1
        libraries "$1" "$2" "$to"
    done
}

pack() { (cd "$1" && find . | cpio -o -H newc --quiet) >"$2" || exit 1; }

# payload ARCH BUILD TRIPLE: $out/ARCH.cpio. Not compressed: unpacking is what an emulated machine
# is slow at.
payload() {
    root=$out/$1
    mkdir -p "$root/t" "$root/dev" "$root/proc" "$root/sys" "$root/tmp"
    cp "$2/guest/init" "$root/" || exit 1
    cp "$2/ebpfprofiler" "$2/guest/guest" "$2/guest/verifier.so" "$2/guest/deep" "$2/guest/flash" \
        "$2/guest/switch" "$root/t/" || exit 1
    for f in "$root"/t/*; do libraries "$root" "$3" "$f"; done
    echo guest >"$root/t/plan"
    pack "$root" "$out/$1.cpio"
}

# On top of it the unit tests, with what one of them has iconv load: $out/ARCH-units.cpio.
payload_units() {
    root=$out/$1
    mkdir -p "$root/t/tests" "$root/usr/lib/$3"
    cp -r tests/fixtures "$root/t/tests/"
    cp -r "/usr/lib/$3/gconv" "$root/usr/lib/$3/"
    while read -r t; do
        cp "$2/tests/$t" "$root/t/" || exit 1
        libraries "$root" "$3" "$root/t/$t"
        echo "$t" >>"$root/t/plan"
    done <"$here/units.txt"
    pack "$root" "$out/$1-units.cpio"
}

# boot NAME: the guest's words to its log. Once more when it died before its first word.
boot() {
    arch=${1##*-} log=$out/$1.log initrd=$out/$arch.cpio
    [ "$1" != $units_on ] || initrd=$out/$arch-units.cpio
    # One thread: the kernel patches its own code at boot, which races with code translated for
    # another virtual CPU. The architecture's own pointer signing takes half of all time.
    case $arch in
    amd64) set -- qemu-system-x86_64 -machine pc -cpu max -accel tcg,thread=single ttyS0 ;;
    *) set -- qemu-system-aarch64 -machine virt -cpu max,pauth-impdef=on -accel tcg ttyAMA0 ;;
    esac
    for _ in 1 2; do
        # shellcheck disable=SC2068
        timeout $seconds_max $1 $2 $3 $4 $5 $6 $7 -m 512 -smp 2 -display none -nodefaults \
            -no-reboot -serial stdio -kernel "$cache/$name/vmlinuz" -initrd "$initrd" \
            -append "console=$8 panic=-1 quiet" </dev/null 2>&1 | tr -d '\r' >"$log"
        grep -q '^@@ kernel' "$log" && return
    done
}

# Figures of one guest against those of insns.txt, as reasons to fail.
judge_insns() {
    sed -n 's/^@@ insns //p' "$out/$1.log" | sort -u | sed "s/^/$1 /" >"$out/$1.insns"
    awk -v name="$1" -v max=$insns_max '
        FILENAME == ARGV[1] { if ($1 == name) want[$2] = $3; next }
        { seen[$2] = 1 }
        $3 > max { print $2 " takes " $3 " insns, over " max; next }
        !$3 || !($2 in want) { print $2 " takes " $3 " insns, not in insns.txt"; next }
        $3 > 1.1 * want[$2] { print $2 " takes " $3 " insns, was " want[$2] }
        END { for (p in want) if (!(p in seen)) print p " was not loaded" }
    ' "$here/insns.txt" "$out/$1.insns"
}

# one NAME: boots it, prints its line.
one() {
    name=$1 start=$(date +%s)
    boot "$name"
    log=$out/$name.log
    {
        grep -q '^@@ end' "$log" || echo "did not come to its end"
        sed -n 's/^@@ not ok //p; s/^@@ exit [1-9][0-9]* [0-9.]* \(.*\)/\1 failed/p' "$log"
        judge_insns "$name"
    } >"$out/$name.why"
    printf '%s %-13s %-22s %s; %s samples, %s %% whole; %d s\n' \
        "$([ -s "$out/$name.why" ] && echo not ok || echo ok)" "$name" \
        "$(sed -n 's/^@@ kernel \([^ ]*\).*/\1/p' "$log")" \
        "$(awk '{ printf "%s%s %s", (NR > 1 ? ", " : ""), $2, $3 }' "$out/$name.insns")" \
        "$(sed -n 's/^@@ samples //p' "$log")" "$(sed -n 's/^@@ whole //p' "$log")" \
        $(($(date +%s) - start))
    [ ! -s "$out/$name.why" ] || sed "s|^|  $name: |" "$out/$name.why"
}

matrix() {
    rm -rf "$out"
    mkdir -p "$out"
    sh "$here/fetch.sh" "$cache" || exit 1
    payload amd64 "$B" x86_64-linux-gnu
    payload arm64 "$B/arm64" aarch64-linux-gnu
    payload_units arm64 "$B/arm64" aarch64-linux-gnu
    list='' skipped=0 missing=0
    for role in stable old oldest next rc; do
        for arch in arm64 amd64; do
            name=$role-$arch
            case " ${ONLY:-$name} " in *" $name "*) ;; *) continue ;; esac
            if [ -s "$cache/$name/vmlinuz" ]; then
                list="$list $name"
            else
                case " $required " in
                *" $name "*) echo "not ok $name: no kernel, and it is required" && missing=$((missing + 1)) ;;
                *) echo "skip $name: the mirror has no such kernel" && skipped=$((skipped + 1)) ;;
                esac
            fi
        done
    done
    export B
    # shellcheck disable=SC2086
    printf '%s\n' $list | xargs -r -P 2 -n 1 sh "$0" one | tee "$out/summary"
    cat "$out"/*.insns >"$out/insns.txt" 2>/dev/null
    passed=$(grep -c '^ok ' "$out/summary")
    failed=$(($(grep -c '^not ok ' "$out/summary") + missing))
    [ $failed -eq 0 ] || echo "what the guests said is in $out/"
    echo "$passed passed, $failed failed, $skipped skipped"
    [ $failed -eq 0 ] && [ "$passed" -gt 0 ]
}

case ${1:-matrix} in
matrix) matrix ;;
one) one "$2" ;;
*) echo "usage: run.sh" >&2; exit 2 ;;
esac
