#!/bin/sh
# Single-steps programs of many compilers and languages and compares every stack of theirs with
# libunwind, and where that fails with libdw and the calls that were seen (tests/oracle/README.md).
# Needs no root and no BPF, only ptrace; takes some minutes. SCENARIOS="a b" runs those only,
# STOPS=N compares at up to N stops of each.
: "${B:=build}"
t=$B/tests/test_oracle
[ -x "$t" ] || { echo "skip oracle: $t is not built"; exit 0; }
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
src=tests/oracle
all="nested plt signal altstack vdso alloca aligned tail recurse vfork jump coroutine sort libc
     dlopen deep thread pthread_exit exit"

# trace NAME [OPTION...] PROGRAM ARG...
trace() {
    name=$1
    shift
    timeout 200 "$t" --name "$name" "$@" >"$tmp/out" 2>&1
    rc=$?
    grep -E '^(ok|not ok|skip) ' "$tmp/out" >>"$tmp/sum"
    [ "$rc" -le 1 ] || echo "not ok $name # ended with status $rc" | tee -a "$tmp/sum"
    grep '^#' "$tmp/out" | head -20
    grep -E '^(ok|not ok|skip) ' "$tmp/out"
}

# built NAME COMPILER FLAGS... FILE: prints a skip and fails when it cannot be built.
built() {
    name=$1
    shift
    command -v "$1" >/dev/null 2>&1 || { echo "skip oracle-$name: no $1"; return 1; }
    "$@" -o "$tmp/$name" 2>"$tmp/cc" || { echo "skip oracle-$name: does not compile"; return 1; }
}

# variant NAME COMPILER FLAGS...: all scenarios of target.c
variant() {
    v=$1
    built "$@" -w $src/target.c || return
    for s in ${SCENARIOS:-$all}; do
        case $s in
        deep) trace "$v/deep" --max 100 --frames 512 "$tmp/$v" deep ;;
        *) trace "$v/$s" --max "${STOPS:-1000}" "$tmp/$v" "$s" ;;
        esac
    done
}

variant gcc-O2 gcc -O2 -fomit-frame-pointer -Wl,-z,lazy
variant gcc-O0 gcc -O0 -fomit-frame-pointer -Wl,-z,lazy
variant gcc-Os-no-pie gcc -Os -fomit-frame-pointer -no-pie
variant gcc-cet gcc -O2 -fcf-protection=full -fstack-protector-all -fstack-clash-protection -Wl,-z,lazy
variant gcc-static gcc -O2 -static
variant gcc-debug_frame gcc -O2 -g -fno-asynchronous-unwind-tables -fno-unwind-tables
variant gcc-frame-pointer gcc -O1 -fno-omit-frame-pointer -fno-asynchronous-unwind-tables \
    -fno-unwind-tables
variant clang-O2 clang -O2 -Wl,-z,lazy
variant clang-O0 clang -O0 -Wl,-z,lazy

if [ -z "$SCENARIOS" ]; then
    built asm gcc $src/target.S && trace asm "$tmp/asm" && trace startup --start "$tmp/asm"
    for o in O0 O2; do
        for cxx in g++ clang++; do
            built "$cxx-$o" $cxx -$o -w $src/target.cc && trace "$cxx-$o/exceptions" "$tmp/$cxx-$o"
        done
    done
    if built crypto gcc -O2 $src/crypto.c -ldl; then
        "$tmp/crypto" none
        if [ $? -eq 77 ] && ldconfig -p 2>/dev/null | grep -q libcrypto; then
            for a in sha1 sha256 sha512 sha3-256 md5 blake2b512; do
                trace "crypto/$a" --max 2500 --every 50 "$tmp/crypto" $a
            done
            # Most of it is preparation: seldom stops reach the multiplication.
            trace crypto/power --max 6000 --every 250 "$tmp/crypto" power
        else
            echo "skip oracle-crypto: no libcrypto"
        fi
    fi
    if command -v go >/dev/null 2>&1; then
        if go build -o "$tmp/go" $src/target.go 2>"$tmp/cc"; then
            trace go "$tmp/go"
        else
            echo "skip oracle-go: does not compile"
        fi
    else
        echo "skip oracle-go: no go"
    fi
    # The linker that Rust prefers, and the one that libunwind can follow.
    built rust rustc -O $src/target.rs && trace rust "$tmp/rust"
    built rust-bfd rustc -O -C link-arg=-fuse-ld=bfd $src/target.rs && trace rust-bfd "$tmp/rust-bfd"
fi

# At least 99.9 % of what a table covers agrees, over all of them.
awk '/ # steps / {
        for (i = 1; i < NF; i++) {
            n = $(i + 1) + 0
            if ($i == "stops") stops += n
            if ($i == "frames") frames += n
            if ($i == "equal") equal += n
            if ($i == "covered") covered += n
            if ($i == "agreed") agreed += n
            if ($i ~ /^(unexplained|no-|bridged-|libunwind-)/) why[$i] += n
            if ($i ~ /^(signal|deref|scaled|plt|register|end|unsupported|frame-pointer)$/) rule[$i] += n
        }
    }
    END {
        share = covered ? 100 * agreed / covered : 0
        verdict = (share < 99.9) ? "not ok" : "ok"
        same = frames ? 100 * equal / frames : 0
        printf "%s oracle_agrees # %d stops, %d frames, %.3f %% equal at once; ", verdict, stops, frames, same
        printf "of %d covered %.4f %% agree", covered, share
        for (w in why) printf ", %s %d", w, why[w]
        printf "; rules"
        for (w in rule) printf " %s %d", w, rule[w]
        printf "\n"
    }' "$tmp/sum"
exit 0
