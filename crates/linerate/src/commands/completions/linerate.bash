# Completions of linerate for bash.

_linerate() {
    local line=${COMP_LINE:0:COMP_POINT} words word
    # bash splits words at ":" and "=" too (netns:far, --format=json).
    read -ra words <<<"$line"
    [[ $line == *[[:space:]] ]] && words+=("")
    word=${words[-1]}
    local kept=${word%"${word##*[:=]}"}
    COMPREPLY=()
    local found
    while IFS=$'\t' read -r found _; do
        COMPREPLY+=("${found#"$kept"}")
    done < <("${words[0]/#\~/$HOME}" complete -- "${words[@]:1}" 2>/dev/null)
}

# Files where linerate has no words.
complete -o bashdefault -o default -F _linerate linerate
