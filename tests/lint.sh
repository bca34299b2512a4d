#!/bin/sh
# Formatting, and who may include whom. Prints what is wrong; silent and 0 when all is well.
bad=0
say() { echo "lint: $*" >&2; bad=1; }

if command -v clang-format >/dev/null 2>&1; then
    clang-format --dry-run -Werror bpf/*.[ch] core/*.[ch] tests/*.[ch] tests/fuzz/*.c tests/kernels/*.c tests/fixtures/beside.c \
        $(ls unwinders/*.h unwinders/*/*.[ch] 2>/dev/null) || bad=1
else
    say "clang-format is missing: sh dist/deps.sh live"
fi

# Shelves, never upward. A file that is in none is an error: say where it belongs.
base="util maps gzip rootfile log stat htab cpus arena strtab reader demangle json headers notify"
books="features task_event perfmap module elfsym plt pclntab debugfile dwarfnames kallsyms process cgroup container otel match service identity context cfi table tablefile slabs tables listwalk target target_live target_files target_tape elfmem elfname layout frames runtime runtime_detect fixture wait"
line="pidns pprof_in view view_pprof view_print catalog sampler sideband stack fold names pprof store spool pprof_cut otlp envelope http upload line merge walker threads counts pending offcpu hostwalk openwaits timeline timeline_perfetto timeline_firefox"
edge="main cmd cmd_doctor cost cmd_run sending cmd_record cmd_tables agent report guard config preflight cmd_dump dump choice census cmd_fixture cmd_symbolize symbolize cmd_tree cmd_top web web_api web_assets recording local metrics remote"
level() {
    case " $base " in *" $1 "*) echo 1; return ;; esac
    case " $books " in *" $1 "*) echo 2; return ;; esac
    case " $line " in *" $1 "*) echo 3; return ;; esac
    case " $edge " in *" $1 "*) echo 4; return ;; esac
    echo 0
}
for f in core/*.[ch]; do
    name=$(basename "$f" | sed 's/\.[ch]$//')
    mine=$(level "$name")
    [ "$mine" -gt 0 ] || say "$f is on no shelf: name it in tests/lint.sh"
    for inc in $(sed -n 's/^#include "\(.*\)"$/\1/p' "$f"); do
        case $inc in
        bpf/abi.h | version.h) continue ;;
        profile.pb-c.h) case $name in pprof | pprof_in | pprof_cut | otlp | envelope | symbolize | view_pprof) ;;
            *) say "$f: pprof's schema is not for it" ;; esac; continue ;;
        envelope.pb-c.h) case $name in otlp | envelope) ;;
            *) say "$f: only otlp.c and envelope.c know the schemas of servers" ;; esac; continue ;;
        otel.pb-c.h) [ "$name" = otel ] || say "$f: only otel.c knows this schema"; continue ;;
        perfetto.pb-c.h) [ "$name" = timeline_perfetto ] || say "$f: only timeline_perfetto.c knows this schema"; continue ;;
        sample*.skel.h) [ "$name" = sampler ] || say "$f: only sampler.c includes the skeleton"; continue ;;
        offcpu*.skel.h) [ "$name" = offcpu ] || say "$f: only offcpu.c includes its skeleton"; continue ;;
        bpf/unwind.h) [ "$name" = hostwalk ] || say "$f: only hostwalk.c walks stacks"; continue ;;
        threads.skel.h) [ "$name" = threads ] || say "$f: only threads.c includes its skeleton"; continue ;;
        pidns.skel.h) [ "$name" = pidns ] || say "$f: only pidns.c includes its skeleton"; continue ;;
        unwinders/unwinder.h) continue ;;
        bpf/recipe.h) [ "$name" = listwalk ] || say "$f: only listwalk.c walks lists"; continue ;;
        bpf/* | unwinders/*) say "$f includes $inc: core sees bpf/abi.h and unwinders/unwinder.h only"; continue ;;
        esac
        theirs=$(level "${inc%.h}")
        [ "$theirs" -gt 0 ] || say "$f includes unknown $inc"
        [ "$theirs" -le "$mine" ] || say "$f (shelf $mine) includes $inc (shelf $theirs)"
    done
    case $name in sampler | features | pidns | threads | counts | pending | offcpu) continue ;; esac
    ! grep -qE '^#include <bpf/' "$f" || say "$f: only sampler.c and features.c include libbpf"
done
for f in bpf/*.[ch]; do
    for inc in $(sed -n 's/^#include "\(.*\)"$/\1/p' "$f"); do
        case $inc in bpf/*) ;; *) say "$f includes $inc: bpf/ includes bpf/ only" ;; esac
    done
done
if grep -nE -i 'cpython|\bruby\b|\bphp\b|nodejs|hotspot|dotnet' core/*.[ch] bpf/*.[ch] >&2; then
    say "core and bpf name no runtime"
fi
exit $bad
