# fish completion of tapetum. Options are read from the program's own help.

function __tapetum_verbs
    tapetum --help 2>/dev/null | string match -rg '^  ([a-z]+)  +([A-Z].*)' | paste -d '\t' - -
end

function __tapetum_options
    set -l words (commandline -opc)
    test (count $words) -ge 2; or return
    tapetum $words[2] --help 2>/dev/null | string replace -rf '^  .{4}(--[a-z-]+)(?: [A-Za-z]+)? +(.*)' '$1\t$2'
end

complete -c tapetum -n 'test (count (commandline -opc)) -eq 1' -f -a '(__tapetum_verbs)'
complete -c tapetum -n 'string match -q -- "-*" (commandline -ct)' -f -a '(__tapetum_options)'
complete -c tapetum -n '__fish_seen_subcommand_from serve fetch synth' -a 'superpoint hamer'
complete -c tapetum -n '__fish_seen_subcommand_from check' -a hamer
