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
    --policy) mapfile -t COMPREPLY < <(compgen -W "served demo" -- "$word") && return ;;
    --precision) mapfile -t COMPREPLY < <(compgen -W "f32 f16 int8" -- "$word") && return ;;
    --rotations) mapfile -t COMPREPLY < <(compgen -W "network image" -- "$word") && return ;;
    --style) mapfile -t COMPREPLY < <(compgen -W "best mesh skeleton box" -- "$word") && return ;;
    --config) mapfile -t COMPREPLY < <(compgen -W "full tiny" -- "$word") && return ;;
    --dtype) mapfile -t COMPREPLY < <(compgen -W "f32 f16" -- "$word") && return ;;
    --isa) mapfile -t COMPREPLY < <(compgen -W "scalar avx2 avx512 avx512vnni amx neon" -- "$word") && return ;;
    esac
    if [[ $word == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W \
            "$("$program" "$verb" --help 2>/dev/null | sed -n 's/^  .\{4\}\(--[a-z-]*\).*/\1/p')" -- "$word")
    elif [ "$COMP_CWORD" -eq 2 ] && [[ $verb =~ ^(serve|fetch|synth)$ ]]; then
        mapfile -t COMPREPLY < <(compgen -W "superpoint hamer" -- "$word")
    elif [ "$COMP_CWORD" -eq 2 ] && [ "$verb" = check ]; then
        mapfile -t COMPREPLY < <(compgen -W "hamer" -- "$word")
    else
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
    fi
}
complete -F _tapetum tapetum
