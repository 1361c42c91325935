#!/usr/bin/env bash
# Completions and man page, made from the option tables: bash, zsh and man read them.
# shellcheck source=tests/program/lib.sh
. "$(dirname "$0")/lib.sh"
here=$(dirname "$0")
generate=$here/../../app/completion.sh
for kind in bash zsh man; do
  bash "$generate" "$kind" "$CONVOY" "$WORK/$kind" || fail "completion.sh $kind"
  [ -s "$WORK/$kind" ] || fail "nothing for $kind"
done

# complete_after WORD...: what bash offers for the last word.
complete_after() {
  bash --norc -c '. "$1"; shift
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
    _convoy
    printf "%s\n" "${COMPREPLY[@]}"' bash "$WORK/bash" "$@" 2> "$WORK/err.txt"
}
offers() { # WHAT EXPECTED WORD...
  local what=$1 expected=$2
  shift 2
  complete_after "$@" > "$WORK/out.txt"
  [ -s "$WORK/err.txt" ] && fail "$what" "$WORK/err.txt"
  [ "$(paste -sd' ' "$WORK/out.txt")" = "$expected" ] || fail "$what: expected '$expected'" "$WORK/out.txt"
}
offers "a command" "train" convoy tr
offers "commands" "predict" convoy pre
offers "an option" "--precision" convoy train --prec
offers "choices" "fp32 tf32 bf16" convoy train --precision ""

offers "a choice with a comma" "flip,crop,cutout" convoy train --augment flip,crop,
offers "a command of data" "synth" convoy data sy
offers "an option of data synth" "--test --test-shards" convoy data synth --test
mkdir -p "$WORK/a folder/in"
touch "$WORK/a folder/file"
offers "a folder" "$WORK/a folder/in" convoy train --data "$WORK/a folder/"
offers "files" "$WORK/a folder/file $WORK/a folder/in" convoy eval --checkpoint "$WORK/a folder/"
offers "files of a command" "$WORK/a folder/file" convoy predict "$WORK/a folder/f"
count=0
for command in train eval predict report export import-weights "data import" "data synth" "bench step" "bench scaling" "bench predict" check; do
  # shellcheck disable=SC2086 # "data import" is two words
  for option in $("$CONVOY" $command --help | sed -n 's/^  \(-[a-zA-Z], \)\{0,1\}\(--[a-z0-9-]*\).*/\2/p'); do
    # shellcheck disable=SC2086
    complete_after convoy $command "$option" | grep -qx -e "$option" || fail "$command $option is not offered"
    count=$((count + 1))
  done
done
[ "$count" -gt 70 ] || fail "only $count options were tried"
pass "bash completes commands, $count options, choices, files and folders"

if program zsh; then
  mkdir "$WORK/zsh-functions"
  cp "$WORK/zsh" "$WORK/zsh-functions/_convoy"
  for try in 3 10; do # seconds to answer, on a busy machine
    timeout 60 zsh -f "$here/completion_zsh.zsh" "$WORK/zsh-functions" "convoy train --precision " "$try" > "$WORK/out.txt" 2>&1
    grep -q bf16 "$WORK/out.txt" && break
  done
  for choice in bf16 fp32 tf32; do
    grep -q $choice "$WORK/out.txt" || fail "zsh does not offer $choice" "$WORK/out.txt"
  done
  pass "zsh completes choices"
fi

for option in --momentum --checkpoint-minutes --init --metrics; do
  grep -qF -e ".B ${option//-/\\-}" "$WORK/man" || fail "the man page lacks $option" "$WORK/man"
done
if program man && works "the man page" man --version; then
  LC_ALL=C.UTF-8 MANWIDTH=100 man --warnings -l "$WORK/man" 2> "$WORK/err.txt" > "$WORK/out.txt" || fail "man" "$WORK/err.txt"
  [ -s "$WORK/err.txt" ] && fail "man complains" "$WORK/err.txt"
  grep -q "convoy import-weights" "$WORK/out.txt" || fail "the man page lacks a command" "$WORK/out.txt"
  pass "man shows the page without a warning"
fi
