#compdef linerate
# Completions of linerate for zsh.

_linerate() {
    local -a found
    local word about
    while IFS=$'\t' read -r word about; do
        found+=("${word//:/\\:}:$about")
    done < <("${(Q)words[1]/#\~/$HOME}" complete -- "${(@Q)words[2,CURRENT]}" 2>/dev/null)
    if (( $#found )); then
        _describe -V linerate found
    else
        # Files where linerate has no words.
        _files
    fi
}

if [[ $funcstack[1] == _linerate ]]; then
    _linerate "$@"
else
    compdef _linerate linerate
fi
