# Completion for zeroth and finetune in bash. The flags are those that their --help lists, so they are never out of date.
# Installed for both names; by hand: source zeroth.bash

declare -gA _zeroth_said=()

# PROGRAM: sees to it that ${_zeroth_said[PROGRAM]} is what its --help says; asked once per shell.
_zeroth_ask() {
  [[ -v _zeroth_said[$1] ]] || _zeroth_said[$1]=$("$1" --help 2>/dev/null </dev/null)
}

# PROGRAM: its flags, one a line.
_zeroth_flags() {
  sed -nE 's/^  (-[^ ]+).*/\1/p' <<<"${_zeroth_said[$1]}" | tr ',' '\n'
}

# PROGRAM FLAG: what the value of the flag is, as FILE or N; nothing for a flag without one.
_zeroth_value() {
  local line
  while IFS= read -r line; do
    [[ $line =~ ^\ \ (-[^ ]+)\ ([NX]|[A-Z][A-Z]+)(\ |$) ]] || continue
    [[ ,${BASH_REMATCH[1]}, == *,"$2",* ]] && printf '%s' "${BASH_REMATCH[2]}" && return
  done <<<"${_zeroth_said[$1]}"
}

# KIND: the words of a kind that fit $cur.
_zeroth_words() {
  mapfile -t COMPREPLY < <(compgen "$@" -- "$cur")
}

# PROGRAM: its flags, or the value of the flag before. Fails where neither is due.
_zeroth_flag_or_value() {
  local value
  _zeroth_ask "$1"
  value=$(_zeroth_value "$1" "$prev")
  case $value in
    DIR) compopt -o filenames 2>/dev/null; _zeroth_words -d ;;
    FILE) compopt -o filenames 2>/dev/null; _zeroth_words -f ;;
    BOOL) _zeroth_words -W "true false" ;;
    LAUNCHER) _zeroth_words -W "pdsh ssh openmpi mpich impi slurm" ;;
    LEVEL) _zeroth_words -W "debug info warning error critical" ;;
    ?*) COMPREPLY=() ;;
    *) [[ $cur == -* ]] && _zeroth_words -W "$(_zeroth_flags "$1")" ;;
  esac
}

# Where PROGRAM stands on zeroth's command line, in $program; 0 while it is not there.
_zeroth_find_program() {
  local i word
  program=0
  _zeroth_ask "${COMP_WORDS[0]}"
  for ((i = 1; i < COMP_CWORD; ++i)); do
    word=${COMP_WORDS[i]}
    if [[ $word != -* ]]; then
      program=$i
      return
    elif [[ ${COMP_WORDS[i + 1]} == "=" ]]; then
      ((i += 2))
    elif [[ -n $(_zeroth_value "${COMP_WORDS[0]}" "$word") ]]; then
      ((i += 1))
    fi
  done
}

# NAME: the file that zeroth would start: beside itself, then along PATH.
_zeroth_file() {
  local own
  own=$(dirname -- "$(readlink -f -- "$(type -P -- "${COMP_WORDS[0]}")")")
  [[ $1 != */* && -x $own/$1 ]] && printf '%s' "$own/$1" || printf '%s' "$1"
}

# Sets $cur, the word to complete, and $prev, the one before it; the = of --flag=value is a word too, and no answer.
_zeroth_here() {
  cur=${COMP_WORDS[COMP_CWORD]}
  prev=${COMP_WORDS[COMP_CWORD - 1]}
  if [[ $cur == "=" ]]; then
    cur=
  elif [[ $prev == "=" ]]; then
    prev=${COMP_WORDS[COMP_CWORD - 2]}
  fi
}

# zeroth checkpoint COMMAND DIR
_zeroth_checkpoint() {
  if [[ $cur == -* ]]; then
    _zeroth_words -W "--keep --damaged --dry-run --help"
  elif ((COMP_CWORD == program + 1)); then
    _zeroth_words -W "list show verify prune"
  else
    compopt -o filenames 2>/dev/null
    _zeroth_words -d
  fi
}

# zeroth export DIR OUT
_zeroth_export() {
  if [[ $prev == --dtype ]]; then
    _zeroth_words -W "fp32 bf16 fp16"
  elif [[ $cur == -* ]]; then
    _zeroth_words -W "--dtype --overwrite --help"
  else
    compopt -o filenames 2>/dev/null
    _zeroth_words -d
  fi
}

_zeroth() {
  local cur prev program
  _zeroth_here
  _zeroth_find_program
  if ((program == 0)); then
    _zeroth_flag_or_value "${COMP_WORDS[0]}" && return
    compopt -o filenames 2>/dev/null
    _zeroth_words -c -W "report check-config checkpoint export inspect-data tokenize merge finetune"
  elif [[ ${COMP_WORDS[program]##*/} == finetune ]]; then
    _zeroth_flag_or_value "$(_zeroth_file "${COMP_WORDS[program]}")"
  elif [[ ${COMP_WORDS[program]} == inspect-data || ${COMP_WORDS[program]} == tokenize ]]; then
    _zeroth_flag_or_value "$(_zeroth_file finetune)"
  elif [[ ${COMP_WORDS[program]} == checkpoint ]]; then
    _zeroth_checkpoint
  elif [[ ${COMP_WORDS[program]} == export ]]; then
    _zeroth_export
  else
    compopt -o filenames 2>/dev/null
    _zeroth_words -f
  fi
}

_finetune() {
  local cur prev
  _zeroth_here
  _zeroth_flag_or_value "${COMP_WORDS[0]}"
}

complete -F _zeroth zeroth
complete -o default -F _finetune finetune
