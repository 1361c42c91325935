# completion_zsh.zsh FOLDER LINE: what zsh, with FOLDER's _convoy, offers after LINE and a tab; all of it to stdout.
zmodload zsh/zpty
zpty shell zsh -f -i
read_on() { local text; while zpty -r -t shell text 2> /dev/null; do print -rn -- "$text"; done }
zpty -w shell "PS1='> '; unsetopt zle_bracketed_paste; LISTMAX=1000; fpath=($1 \$fpath); autoload -U compinit; compinit -u -D; zstyle ':completion:*' list-prompt ''"
sleep 2
read_on > /dev/null
zpty -w -n shell "$2"$'\t\t'
sleep ${3:-3}
read_on
zpty -d shell
