# Completions of linerate for fish. Files where linerate has no words.

function __linerate_words
    set --local words (commandline --tokenize --cut-at-cursor --current-process)
    set --local word (commandline --current-token --cut-at-cursor)
    $words[1] complete -- $words[2..] "$word" 2>/dev/null
end

complete --command linerate --no-files --condition 'test -n "$(__linerate_words)"' --arguments '(__linerate_words)'
