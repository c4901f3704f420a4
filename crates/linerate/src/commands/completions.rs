//! `linerate completions`.

use linerate_model::exit::Outcome;

use crate::cli::help;
use crate::console::say::Say;

/// `linerate completions`.
pub(crate) fn run(shell: clap_complete::Shell, say: &Say) -> Outcome<()> {
    let mut text = Vec::new();
    let mut command = help::visible(&help::command());
    clap_complete::generate(shell, &mut command, "linerate", &mut text);
    say.data(&String::from_utf8_lossy(&text))
}
