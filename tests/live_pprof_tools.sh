#!/bin/sh
# Our profiles in other people's readers: both pprof tools, protoc with two schemas, pprof-format.
# PROFILE=FILE additionally puts a recorded profile through them.
# Needs: go, golang-github-google-pprof-dev (with its dependencies), protobuf-compiler, nodejs, npm.
: "${B:=build}"
T=$B/tests/test_pprof
here=$(dirname "$0")
src=$here/pprof_tools
gopath=/usr/share/gocode
public=$gopath/src/github.com/google/pprof/proto
out=$(mktemp -d) || exit 1
trap 'rm -rf "$out"' EXIT
export HOME="$out" PPROF_TMPDIR="$out" PPROF_BINARY_PATH="$out/none"
failed=0

# check NAME CONDITION-COMMAND...; the last tool's output is in $out/log.
check() {
    check_name=$1
    shift
    if "$@"; then
        echo "ok $check_name"
    else
        echo "not ok $check_name"
        sed 's/^/    /' "$out/log"
        failed=1
    fi
}
skip() {
    echo "skip $1: $2"
}
has() {
    grep -qE -- "$1" "$out/log"
}
lacks() {
    ! grep -qE -- "$1" "$out/log"
}
run() {
    timeout 120 "$@" >"$out/log" 2>&1
}

"$T" --write "$out/all.pb.gz" || {
    echo "not ok write_profile"
    exit 1
}
gunzip -c "$out/all.pb.gz" >"$out/all.pb"

# --- tools --------------------------------------------------------------------------------------
go=
command -v go >/dev/null && go tool -n pprof >/dev/null 2>&1 && go="go tool pprof"
pprof=
if command -v go >/dev/null && [ -d "$public" ]; then
    mkdir -p "$B"
    cache=$(cd "$B" && pwd)/gocache
    pprof=$(cd "$B" && pwd)/pprof
    [ -x "$pprof" ] || GO111MODULE=off GOPATH=$gopath GOCACHE=$cache \
        go build -o "$pprof" github.com/google/pprof || pprof=
fi

# What every pprof must make of the representative profile.
reads_it() {
    tool=$1
    shift
    run "$@" -raw "$out/all.pb.gz"
    check "${tool}_raw_reads_the_profile" has '^Samples:'
    check "${tool}_raw_shows_the_type" has '^cpu/nanoseconds'
    check "${tool}_raw_shows_the_period" has 'PeriodType: cpu nanoseconds'
    check "${tool}_raw_shows_the_first_comment" has 'first comment'
    check "${tool}_raw_shows_number_label_pid" has 'pid:\[(4242|4243)'
    check "${tool}_raw_shows_string_labels" has 'team:\[a\]'
    check "${tool}_raw_shows_main_binary_first" has '^1: 0x1000/0x3000/0x0 .*/svc'
    run "$@" -top "$out/all.pb.gz"
    check "${tool}_top_names_kernel_frames" has ' ksys_read$'
    check "${tool}_top_names_native_frames" has 'named_in_lib'
    check "${tool}_top_says_the_main_binary" has '^File: svc'
    check "${tool}_top_sums_all_samples" has 'Total samples = 421.*ms|Total samples = 0\.42s'
    check "${tool}_complains_about_no_address" lacks 'outside the mapping range'
    run "$@" -proto -output "$out/merged.pb.gz" "$out/all.pb.gz" "$out/all.pb.gz"
    run "$@" -top "$out/merged.pb.gz"
    check "${tool}_merges_two_profiles" has 'Total samples = 842.*ms|Total samples = 0\.84s'
}

# Waits by themselves, and beside samples on CPU in one file.
"$T" --write-waits "$out/waits.pb.gz" "$out/both.pb.gz" || failed=1
reads_waits() {
    tool=$1
    shift
    run "$@" -raw "$out/waits.pb.gz"
    check "${tool}_raw_shows_both_values_of_waits" has '^waits/count offcpu/nanoseconds\[dflt\]'
    check "${tool}_raw_shows_what_was_waited_for" has 'thread.state:\[S\] wait:\[futex\]'
    run "$@" -top "$out/waits.pb.gz"
    check "${tool}_top_shows_waits_in_seconds" has 'Total samples = 7s'
    run "$@" -sample_index=waits -top "$out/waits.pb.gz"
    check "${tool}_top_counts_waits" has 'Total samples = 2'
    run "$@" -top "$out/both.pb.gz"
    check "${tool}_top_of_both_shows_the_first_type" has 'Total samples = 157.89ms'
    run "$@" -sample_index=offcpu -top "$out/both.pb.gz"
    check "${tool}_top_of_both_shows_the_other_on_demand" has 'Total samples = 7s'
}
if [ -n "$go" ]; then reads_waits go_tool_pprof $go; fi
if [ -n "$pprof" ]; then reads_waits pprof "$pprof"; fi
if [ -n "$go" ]; then reads_it go_tool_pprof $go; else skip go_tool_pprof "no go tool pprof"; fi
if [ -n "$pprof" ]; then
    reads_it pprof "$pprof"
else
    skip pprof "needs go and golang-github-google-pprof-dev"
fi

# --- schemas ------------------------------------------------------------------------------------
if command -v protoc >/dev/null; then
    run protoc --proto_path="$here/../core" --decode=pprof.Profile profile.proto <"$out/all.pb"
    cp "$out/log" "$out/own.txt"
    check protoc_decodes_with_our_schema has '^string_table: "cpu"'
    check protoc_knows_every_field lacks '^ *[0-9]+[:{ ]'
    for f in waits both; do
        gunzip -c "$out/$f.pb.gz" >"$out/$f.pb"
        run protoc --proto_path="$here/../core" --decode=pprof.Profile profile.proto <"$out/$f.pb"
        check "protoc_knows_every_field_of_$f" lacks '^ *[0-9]+[:{ ]'
    done
    if [ -d "$public" ]; then
        run protoc --proto_path="$public" --decode=perftools.profiles.Profile profile.proto \
            <"$out/all.pb"
        cp "$out/log" "$out/public.txt"
        diff "$out/own.txt" "$out/public.txt" >"$out/log" 2>&1
        check protoc_reads_the_same_with_the_public_schema cmp -s "$out/own.txt" "$out/public.txt"
    else
        skip protoc_public_schema "needs golang-github-google-pprof-dev"
    fi
else
    skip protoc "needs protobuf-compiler"
fi

# --- pprof-format -------------------------------------------------------------------------------
node=$B/node
if command -v npm >/dev/null && { [ -d "$node/node_modules/pprof-format" ] ||
    HOME="$out" timeout 60 npm install --silent --no-audit --no-fund --prefix "$node" \
        pprof-format@2; } >"$out/log" 2>&1; then
    run node "$src/decode.js" "$(cd "$node" && pwd)" "$out/all.pb.gz"
    check pprof_format_reads_the_type has '^type cpu nanoseconds$'
    check pprof_format_reads_the_period has '^period cpu nanoseconds 52631578$'
    check pprof_format_reads_the_stack has '^sample 263157890 ksys_read;ext4_read;\?;named_in_lib;'
    cp "$out/log" "$out/node.log"
    run node "$src/decode.js" "$(cd "$node" && pwd)" "$out/both.pb.gz"
    check pprof_format_reads_all_types has '^types cpu/nanoseconds waits/count offcpu/nanoseconds default cpu$'
    check pprof_format_reads_all_values has '^sample 0,2,7000000123 futex_wait;lock_it .*wait=futex'
    cp "$out/node.log" "$out/log"
    check pprof_format_reads_the_labels has 'thread.name=worker pid=4243 container=c0ffee '
else
    skip pprof_format "npm could not fetch it"
fi

# --- the call that never returns ----------------------------------------------------------------
# Prints the file offset of an address in an executable's code segment.
offset_of() {
    readelf -lW "$1" | awk '$1 == "LOAD" && / R E / { print $2, $3 }' | while read -r off vaddr; do
        printf '%x\n' $(($2 - vaddr + off))
    done
}
build_id_of() {
    readelf -n "$1" | sed -n 's/.*Build ID: //p'
}

# noreturn VARIANT CFLAGS...: one layout of addresses and file offsets.
noreturn() {
    v=$1
    bin=$out/$v
    shift
    flags="-g -O2 -falign-functions=1 -fno-toplevel-reorder -fno-optimize-sibling-calls"
    flags="$flags -Wl,--build-id=sha1"
    # x86 only; elsewhere nothing is put in front of a function.
    case $(uname -m) in x86_64) flags="$flags -fcf-protection=none" ;; esac
    if ! cc $flags "$@" -o "$bin" "$src/noreturn.c" >"$out/log" 2>&1; then
        skip "noreturn_$v" "cc cannot build it"
        return
    fi
    next=0x$(nm "$bin" | awk '$3 == "successor" { print $1 }')
    end=$(nm -S "$bin" | awk '$4 == "caller" { print "0x" $1 "+0x" $2 }')
    : >"$out/log"
    check "noreturn_${v}_call_is_the_last_instruction" [ $(($end)) -eq $(($next)) ]
    ret=$(offset_of "$bin" "$next")
    call=$(printf '%x' $((0x$ret - 1)))
    id=$(build_id_of "$bin")

    "$T" --write "$out/call.pb.gz" "$bin:$call"
    "$T" --write "$out/ret.pb.gz" "$bin:$ret"
    "$T" --write "$out/named.pb.gz" "caller=$bin:$call"
    "$T" --write "$out/mixed.pb.gz" "already=$bin:$ret" "$bin:$call"
    if [ -n "$go" ]; then
        run $go -symbolize=local -top "$out/call.pb.gz"
        check "noreturn_${v}_go_tool_pprof_names_the_caller" has ' caller$'
        # Control: this is what an address that was not moved would be called.
        run $go -symbolize=local -top "$out/ret.pb.gz"
        check "noreturn_${v}_go_tool_pprof_control" has ' successor$'
        run $go -symbolize=local -top "$out/named.pb.gz"
        check "noreturn_${v}_go_tool_pprof_keeps_a_given_name" has ' caller$'
    fi
    [ -n "$pprof" ] || return 0
    # The file is found by its build id alone.
    mkdir -p "$out/store/$id"
    cp "$bin" "$out/store/$id/$v"
    mv "$bin" "$bin.away"
    PPROF_BINARY_PATH=$out/store
    run "$pprof" -symbolize=local -top "$out/call.pb.gz"
    check "noreturn_${v}_pprof_names_the_caller_by_build_id" has ' caller$'
    run "$pprof" -symbolize=local -top "$out/ret.pb.gz"
    check "noreturn_${v}_pprof_control" has ' successor$'
    run "$pprof" -symbolize=local -top "$out/named.pb.gz"
    check "noreturn_${v}_pprof_keeps_a_given_name" has ' caller$'
    # A named frame of the same segment must not hide that another one is still to be named.
    run "$pprof" -symbolize=local -top "$out/mixed.pb.gz"
    check "noreturn_${v}_pprof_names_what_is_unnamed_beside_a_name" has ' caller$'
    check "noreturn_${v}_pprof_keeps_the_name_beside_it" has ' already$'
    # The file could not be read here: file offsets instead of addresses.
    "$T" --write-unreadable "$out/gone.pb.gz" "$id" "$bin:$call"
    run "$pprof" -symbolize=local -top "$out/gone.pb.gz"
    check "noreturn_${v}_pprof_names_frames_of_an_unreadable_file" has ' caller$'
    PPROF_BINARY_PATH=$out/none
}
if command -v cc >/dev/null && command -v readelf >/dev/null; then
    noreturn pie -pie -fPIE
    noreturn nopie -no-pie -fno-pie
    noreturn moved -pie -fPIE -Wl,-Ttext-segment=0x200000
else
    skip noreturn "needs cc and readelf"
fi

# --- a recorded profile -------------------------------------------------------------------------
if [ -n "${PROFILE-}" ]; then
    for tool in "$go" "$pprof"; do
        [ -n "$tool" ] || continue
        run $tool -top "$PROFILE"
        name=$(basename "${tool%% *}")
        check "recorded_profile_in_$name" has 'flat%'
        check "recorded_profile_addresses_in_$name" lacks 'outside the mapping range'
    done
fi
exit $failed
