# bash completion of tapetum. Options and their values are read from the program's own help, so they
# are never out of date.

_tapetum() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} verb=${COMP_WORDS[1]}
    local program=${COMP_WORDS[0]}
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ] || { [ "$COMP_CWORD" -eq 2 ] && [ "$verb" = help ]; }; then
        mapfile -t COMPREPLY < <(compgen -W \
            "$("$program" --help 2>/dev/null | sed -n '/^Verbs:/,/^$/s/^  \([a-z]*\) .*/\1/p') --help --version" \
            -- "$word")
        return
    fi
    case $before in
    --nms) mapfile -t COMPREPLY < <(compgen -W "single iterative" -- "$word") && return ;;
    --gray) mapfile -t COMPREPLY < <(compgen -W "first luma" -- "$word") && return ;;
    --exif) mapfile -t COMPREPLY < <(compgen -W "ignore apply" -- "$word") && return ;;
    --coordinates) mapfile -t COMPREPLY < <(compgen -W "ratio centres" -- "$word") && return ;;
    --isa) mapfile -t COMPREPLY < <(compgen -W "scalar avx2 avx512 neon" -- "$word") && return ;;
    esac
    if [[ $word == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W \
            "$("$program" "$verb" --help 2>/dev/null | sed -n 's/^  .\{4\}\(--[a-z-]*\).*/\1/p')" -- "$word")
    elif [ "$COMP_CWORD" -eq 2 ] && [[ $verb =~ ^(serve|fetch|synth)$ ]]; then
        mapfile -t COMPREPLY < <(compgen -W "superpoint" -- "$word")
    else
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
    fi
}
complete -F _tapetum tapetum
