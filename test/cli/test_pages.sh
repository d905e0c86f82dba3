#!/bin/bash
# ctest: timeout=120
# Manual pages and completion: every option of every command is in both, groff reads the pages without a warning, and
# bash completes commands, options, values and files.
set -u
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"

# try ARGUMENT...: weft with stdout, stderr and status in $out, $err, $status
try() {
    "$weft" "$@" >out 2>err </dev/null
    status=$?
    out=$(cat out)
    err=$(cat err)
}
commands=$("$weft" --help | sed -n '/^commands:/,/^$/s/^  \([a-z]*\) .*/\1/p')
# in_help COMMAND: the options that its help lists, long and short
in_help() {
    "$weft" "$1" --help | sed -nE 's/^  (-[A-Za-z], |    )--([a-z0-9-]+).*/\1--\2/p' | tr -d ' ' | tr ',' '\n' | sort
}
in_man() {
    "$weft" --man "$1" | sed -n '/^\.TP$/{n;s/\\-/-/g;s/\\f[RI]/\n/g;p}' | sed -n 's/.*\\fB-/-/p' | sort
}

"$weft" --completion >completion || fail "status $?"
name="bash reads the completion, in a function as bash-completion does it, too"
bash -n completion || fail "bash cannot read it"
# shellcheck disable=SC1091,SC2154 # it is made above
load() { . ./completion; }
load
complete -p weft | grep -qF -- '-F _weft weft' || fail "$(complete -p weft)"

options=0
for command in $commands; do
    name="weft $command"
    in_help "$command" >expected
    in_man "$command" >page
    tr ' ' '\n' <<<"${_weft_options[$command]}" | sort >completed
    expect_same expected page
    expect_same expected completed
    "$weft" "$command" --help | LC_ALL=C.UTF-8 grep -E '.{81}' && fail "lines of over 80 columns"
    grep -qx -- --help expected || fail "no options were found"
    options=$((options + $(wc -l <expected)))
    "$weft" --man "$command" >page.1 || fail "status $?"
    grep -q "^weft.-$command .- ." page.1 || fail "no name: $(grep -A1 NAME page.1)"
    for section in SYNOPSIS DESCRIPTION OPTIONS '"SEE ALSO"'; do
        grep -qxF ".SH $section" page.1 || fail "no section $section"
    done
    "$weft" --man | grep -qF "weft\\-$command" || fail "weft(1) does not name it"
done
[ $options -ge 100 ] || fail "only $options options were found"

if command -v groff >/dev/null; then
    for command in '' $commands; do
        name="the page of weft $command"
        "$weft" --man $command | groff -man -Tutf8 -ww >rendered 2>err || fail "groff fails"
        [ ! -s err ] || fail "$(cat err)"
        sed 's/\x1b\[[0-9;]*m//g; s/.\x08//g' rendered | grep -q "^NAME" || fail "$(head -n 5 rendered)"
    done
else
    echo "not tried: reading the pages: there is no groff"
fi
name="settings are in weft(1)"
"$weft" --man >page.1
for setting in $("$weft" info | grep -oE '^WEFT_[A-Z_]+'); do
    grep -qF "\\fB$setting\\fR" page.1 || fail "$setting is missing"
done
grep -qF WEFT_TIMEOUT page.1 || fail "there are none"

# completes WORDS... : what bash offers for the last of them, in $out, in a row
completes() {
    COMP_WORDS=(weft "$@") COMP_CWORD=$# COMPREPLY=()
    name="completion of weft $*"
    _weft
    out=$(printf '%s\n' "${COMPREPLY[@]}" | sort | tr '\n' ' ')
    out=${out% }
}
offers() { [[ " $out " == *" $1 "* ]] || fail "'$1' is not offered: $out"; }
withholds() { [[ " $out " != *" $1 "* ]] || fail "'$1' is offered: $out"; }
exactly() { [ "$out" = "$1" ] || fail "'$out', not '$1'"; }
mkdir folder
touch file.json 'with space.json'
completes ''
for command in $commands; do offers "$command"; done
offers --help
completes tr
exactly train
completes help b
exactly bench
completes bench allr
exactly allreduce
completes bench hal
exactly halo
completes bench allreduce --it
exactly --iters
completes bench --type b
offers bf16
withholds f32
completes bench -t bf
exactly bf16
completes bench --json = fil
exactly file.json
completes bench --json with
exactly 'with space.json'
completes bench --json ''
offers folder
completes bench --ranks ''
exactly ''
completes bench --algo = ri
exactly ring
completes train --model gpt2-1
exactly 'gpt2-124m gpt2-1558m'
completes train --model fil
exactly file.json
completes train --lr-schedule ''
exactly 'constant cosine linear wsd'
completes train --out f
exactly folder
completes train --tensorboard --ste
exactly --steps
completes train --tensorboard f
exactly folder
completes train --overlap ''
exactly 'no yes'
completes train --no-such-option ''
exactly ''
completes run -n 4 --bi
exactly --bind
completes run -n 4 --bind n
exactly none
completes run -n 4 ech
offers echo
completes run -n 4 --bind core echo fil
exactly file.json
completes run -n 4 --bind = core echo --n
exactly ''
for command in links pairs; do
    completes $command --profile ''
    exactly 'quick standard thorough'
done
completes doctor -l ''
exactly 'quick standard thorough'
for command in links pairs scaling; do
    completes $command --device ''
    exactly 'auto cpu cuda'
    completes $command --bind = ''
    exactly 'core none'
done
completes pairs run --capture ''
exactly 'nsys trace'
completes scaling --mode ''
exactly 'both strong weak'
completes scaling --precision b
exactly bf16
completes scaling --model gpt2-1
exactly 'gpt2-124m gpt2-1558m'
completes pairs ''
exactly 'compare list run'
completes pairs --profile quick r
exactly run
completes pairs compare f
exactly 'file.json folder'
completes pairs compare file.json with
exactly 'with space.json'
for verb in list run; do
    completes pairs $verb ''
    pairs=$out
    withholds file.json
done
completes pairs --profile = quick run hal
exactly halo
completes pairs run halo one
offers one-sided
# shellcheck disable=SC2086 # names have no blanks
"$weft" pairs list $pairs >listed || fail "a name that is offered is refused"
[ "$(tr ' ' '\n' <<<"$pairs" | sort | uniq -d)" = "" ] || fail "names are offered twice: $pairs"
"$weft" pairs list >all
expect_same all listed
completes report f
exactly 'file.json folder'
completes report folder wi
exactly 'with space.json'
completes report --title x -o fi
exactly file.json
completes doctor f
exactly folder
completes topo ''
exactly ''
completes pairs '$(touch executed)]' ''
withholds halo
[ ! -e executed ] || fail "a word of the line was executed"
completes nonsense ''
exactly ''

# Commands that take options alone say so in one sentence.
for command in train generate links topo info; do
    name="weft $command with an argument"
    try $command nonsense
    expect_status 2
    expect_in "$err" "weft $command: takes no arguments, but was given \"nonsense\"; weft $command --help"
done

name="weft --man of what there is not"
try --man nonsense
expect_status 2
expect_in "$err" "there is no manual page of 'nonsense'; weft --help lists the commands"
try --man brench
expect_status 2
expect_in "$err" "did you mean 'bench'?"
try --man bench train
expect_status 2
expect_in "$err" "--man takes one command at most, but was given 'train'"
for shell in bash zsh; do
    try --completion $shell
    expect_status 2
    expect_in "$err" "--completion takes no arguments, but was given '$shell': what it prints is for bash"
    [ -z "$out" ] || fail "it prints: $out"
done
try --competion
expect_status 2
expect_in "$err" "did you mean --completion?"

[ $failures = 0 ] || exit 1
echo "pages: $options options in both"
