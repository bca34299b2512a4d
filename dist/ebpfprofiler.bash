# bash completion for ebpfprofiler. Commands and options come from the program's own help, so that
# they cannot be others than it has.
_ebpfprofiler()
{
    local cur=${COMP_WORDS[COMP_CWORD]} prev= command= i commands
    COMPREPLY=()
    [ "$COMP_CWORD" -gt 0 ] && prev=${COMP_WORDS[COMP_CWORD - 1]}
    commands=$("${COMP_WORDS[0]}" help 2>/dev/null | sed -n 's/^  \([a-z-]*\) .*/\1/p')
    if [ "$COMP_CWORD" -eq 1 ] && [[ $cur != -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$commands" -- "$cur")
        return
    fi
    command=${COMP_WORDS[1]}
    # Behind "--" is another program's command line.
    for ((i = 2; i < COMP_CWORD; i++)); do
        if [ "${COMP_WORDS[i]}" = -- ]; then
            COMPREPLY=()
            compopt -o default 2>/dev/null
            return
        fi
    done
    case $prev in
    -p | --pid)
        mapfile -t COMPREPLY < <(compgen -W "$(cd /proc && echo [0-9]*)" -- "$cur")
        return ;;
    -e)
        mapfile -t COMPREPLY < <(compgen -W "cpu offcpu lock" -- "$cur")
        return ;;
    --format)
        mapfile -t COMPREPLY < <(compgen -W "pprof folded" -- "$cur")
        return ;;
    esac
    if [[ $cur == -* ]]; then
        # A command that is an option itself is `run`.
        [[ $command == -* ]] && command=run
        mapfile -t COMPREPLY < <(compgen -W "$("${COMP_WORDS[0]}" "$command" --help 2>/dev/null |
            grep -oE -e '(^|[^a-zA-Z0-9-])--?[a-zA-Z][a-z-]*' | grep -oE -e '--?[a-zA-Z][a-z-]*')" -- "$cur")
        return
    fi
    case $command in
    dump) mapfile -t COMPREPLY < <(compgen -W "$(cd /proc && echo [0-9]*)" -- "$cur") ;;
    fixture) mapfile -t COMPREPLY < <(compgen -W "record replay" -- "$cur") ;;
    esac
    [ ${#COMPREPLY[@]} -gt 0 ] || compopt -o default 2>/dev/null
}
complete -F _ebpfprofiler ebpfprofiler
