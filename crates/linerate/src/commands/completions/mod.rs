//! `linerate completions`. The scripts for bash, zsh and fish ask `linerate complete` on each Tab; those for other shells
//! have the commands and options only.

use clap_complete::Shell;
use linerate_model::exit::Outcome;
use linerate_runtime::cli::help;
use linerate_runtime::console::say::Say;

/// `linerate completions`.
pub(crate) fn run(shell: Shell, say: &Say) -> Outcome<()> {
    let script = match shell {
        Shell::Bash => include_str!("linerate.bash"),
        Shell::Zsh => include_str!("linerate.zsh"),
        Shell::Fish => include_str!("linerate.fish"),
        _ => {
            let mut text = Vec::new();
            let mut command = help::visible(&help::command());
            clap_complete::generate(shell, &mut command, "linerate", &mut text);
            return say.data(&String::from_utf8_lossy(&text));
        }
    };
    say.data(script.trim_end())
}
