//! `emberlm completions`: generates shell completion scripts.

use clap::{Args, Command, CommandFactory};
use clap_complete::Shell;

use crate::commands::Cli;
use crate::error::CliError;
use crate::examples;
use crate::output::print;

/// Arguments of `completions`.
#[derive(Clone, Copy, Debug, Args)]
#[command(after_help = examples::COMPLETIONS)]
pub struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Prints the completion script of a shell.
///
/// # Errors
/// Returns an error if stdout cannot be written.
pub fn run(args: CompletionsArgs) -> Result<(), CliError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut visible(), "emberlm", &mut script);
    print(String::from_utf8_lossy(&script).trim_end())
}

/// The command line without hidden commands, which clap's generators would include.
fn visible() -> Command {
    let whole = Cli::command();
    let commands = whole.get_subcommands();
    Command::new("emberlm")
        .args(whole.get_arguments().cloned())
        .subcommands(commands.filter(|command| !command.is_hide_set()).cloned())
}
