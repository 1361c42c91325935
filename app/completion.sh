#!/usr/bin/env bash
# Writes convoy's shell completions and its man page from what `convoy --help` and each command's --help say, which is
# made from the option tables: so they name every option and every choice.
#
# usage: app/completion.sh bash|zsh|man CONVOY [FILE]        (default: stdout)
set -euo pipefail
kind=$1 convoy=$2
[ $# -lt 3 ] || exec > "$3"

# Lines of fields, separated by tabs: "command NAME SUMMARY", "about NAME TEXT", "option NAME TITLE HELP".
describe() {
  local name inner
  "$convoy" --help | sed -n 's/^  \([a-z][a-z-]*\)  *\(.*\)$/command\t\1\t\2/p'
  "$convoy" --help | sed -n 's/^  \([a-z][a-z-]*\)  .*$/\1/p' | while read -r name; do
    if "$convoy" "$name" --help | grep -q "^usage: convoy $name COMMAND"; then
      "$convoy" "$name" --help | sed -n 's/^  \([a-z][a-z-]*\)  .*$/\1/p' | while read -r inner; do
        describe_options "$name $inner"
      done
    else
      describe_options "$name"
    fi
  done
}

describe_options() {
  # shellcheck disable=SC2086 # "data import" is two words
  "$convoy" $1 --help | awk -v name="$1" -v OFS='\t' '
    NR == 1 { sub(/^usage: /, ""); print "usage", name, $0; next }
    NR == 3 { print "about", name, $0; next }
    /^  [-a-zA-Z]/ && substr($0, 34, 1) == " " && length($0) > 34 {
      title = substr($0, 3, 32); sub(/ +$/, "", title); print "option", name, title, substr($0, 35); next }
    /^  [-a-zA-Z]/ { long = substr($0, 3); next }
    /^ +[^ ]/ && long != "" { sub(/^ +/, ""); print "option", name, long, $0; long = "" }'
}

# Long options, a line each command: "NAME" tab "--a --b"; choices: "NAME --a" tab "x y", or @file, @folder.
words() {
  awk -F'\t' -v OFS='\t' '
    $1 == "command" { commands = commands " " $2 }
    $1 == "option" && match($3, /--[a-z0-9-]+/) {
      option = substr($3, RSTART, RLENGTH)
      value = substr($3, RSTART + RLENGTH + 1)
      if (!($2 in options)) order[++count] = $2
      options[$2] = options[$2] " " option
      if (value ~ /^[a-z0-9,]+(\|[a-z0-9,]+)+$/) { gsub(/\|/, " ", value); choices[$2 " " option] = value }
      else if (value == "DIR") choices[$2 " " option] = "@folder"
      else if (value ~ /FILE|PATH/) choices[$2 " " option] = "@file"
      else if (value != "") choices[$2 " " option] = "@none"
    }
    END {
      print "commands", substr(commands, 2)
      for (i = 1; i <= count; i++) {
        print "options", order[i], substr(options[order[i]], 2)
        split(order[i], part, " ")
        if (part[2] != "") inner[part[1]] = inner[part[1]] " " part[2]
      }
      for (name in inner) print "inner", name, substr(inner[name], 2)
      for (name in choices) print "choices", name, choices[name]
    }' | sort -s -k1,1 -k2,2
}

bash_completion() {
  cat << 'TEXT'
# bash completion for convoy(1); made from its option tables.
# shellcheck disable=SC2207 # IFS is a line end
_convoy_words() {
  case "$1" in
TEXT
  describe | words | awk -F'\t' '$1 == "commands" { printf "  \"\") echo \"%s --help --version\" ;;\n", $2; next }
    $1 == "inner" { printf "  \"%s\") echo \"%s --help\" ;;\n", $2, $3; next }
    $1 == "options" { printf "  \"%s\") echo \"%s\" ;;\n", $2, $3 " --help"; next }
    { printf "  \"%s\") echo \"%s\" ;;\n", $2, $3 }' | sed 's/ --help --help"/ --help"/'
  cat << 'TEXT'
  esac
}

_convoy() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} command="" words
  local IFS=$'\n' # file names may have blanks
  [ "$COMP_CWORD" -gt 1 ] && command=${COMP_WORDS[1]}
  if [ "$COMP_CWORD" -gt 2 ] && [ -n "$(_convoy_words "$command ${COMP_WORDS[2]}")" ]; then
    case "${COMP_WORDS[2]}" in
    -*) ;;
    *) command="$command ${COMP_WORDS[2]}" ;;
    esac
  fi
  COMPREPLY=()
  words=$(_convoy_words "$command")
  case "$previous" in
  -*) words=$(_convoy_words "$command $previous")
    [ -n "$words" ] || words=$(_convoy_words "$command") ;;
  esac
  case "$words" in
  @folder) COMPREPLY=($(compgen -d -- "$current")); return ;;
  @file) COMPREPLY=($(compgen -f -- "$current")); return ;;
  @none) return ;;
  esac
  case "$current" in
  -*) ;;
  *) case "$words" in
    --*) COMPREPLY=($(compgen -f -- "$current")); return ;;
    esac ;;
  esac
  COMPREPLY=($(compgen -W "${words// /$'\n'}" -- "$current"))
}
complete -o filenames -F _convoy convoy
TEXT
}

# zsh runs bash's function.
zsh_completion() {
  echo '#compdef convoy'
  echo '# zsh completion for convoy(1); made from its option tables.'
  bash_completion | sed '1d; /^complete /d'
  cat << 'TEXT'
autoload -U bashcompinit && bashcompinit
complete -o filenames -F _convoy convoy
TEXT
}

man_page() {
  local version
  version=$("$convoy" --version | awk 'NR == 1 { print $2 }')
  printf '.TH CONVOY 1 "" "convoy %s" "User Commands"\n' "$version"
  cat << 'TEXT'
.SH NAME
convoy \- train convolutional networks by MPI
.SH SYNOPSIS
.B convoy
.I COMMAND
.RI [ options ]
.br
.B mpirun \-n
.I RANKS
.B convoy train \-\-data
.I DIR
.B \-\-out
.I DIR
.RI [ options ]
.SH DESCRIPTION
One rank uses one GPU, or a share of the CPU's cores. Data are HDF5 shards, which
.B convoy data
makes from image files.
.SH COMMANDS
TEXT
  describe | awk -F'\t' '
    function plain(text) { gsub(/\\/, "\\e", text); gsub(/-/, "\\-", text); sub(/^[.'"'"']/, "\\\\\\&&", text); return text }
    $1 == "usage" { printf ".SS %s\n", plain("convoy " $2); next }
    $1 == "about" { print plain($3); next }
    $1 == "option" { title = plain($3); gsub(/\|/, "|\\:", title); printf ".TP\n.B %s\n%s\n", title, plain($4) }'
  cat << 'TEXT'
.SH EXIT STATUS
.TP
.B 0
done
.TP
.B 1
a library failed, or a fault in Convoy
.TP
.B 2
usage, configuration or input refused
.TP
.B 3
the loss is not finite
.TP
.B 4
storage: cannot write, disk full, no checkpoint loads
.TP
.B 5
communication: a peer died, froze or timed out
.TP
.B 75
stopped on request with a good checkpoint: start again with
.B \-\-resume
TEXT
}

case "$kind" in
bash) bash_completion ;;
zsh) zsh_completion ;;
man) man_page ;;
*)
  echo "usage: $0 bash|zsh|man CONVOY" >&2
  exit 2
  ;;
esac
