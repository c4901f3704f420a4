//! `linerate completions`.

use clap::CommandFactory;
use linerate_model::exit::Outcome;

use crate::cli::Cli;
use crate::console::say::Say;

/// `linerate completions`.
pub(crate) fn run(shell: clap_complete::Shell, say: &Say) -> Outcome<()> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "linerate", &mut text);
    say.data(&String::from_utf8_lossy(&text))
}
