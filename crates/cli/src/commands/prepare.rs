//! `emberlm prepare`: texts and records to a dataset.

mod args;
pub(super) mod summary;

use emberlm_data::{Encoding, InputOptions, Phase, PrepareOptions, Progress, prepare};
use indicatif::ProgressBar;

use crate::ending;
use crate::error::CliError;
use crate::output::{print, shell_word};
use crate::{progress, signals};

pub use args::PrepareArgs;

/// Makes the dataset and says what it is.
///
/// # Errors
/// Whatever keeps it from its end.
pub fn run(args: PrepareArgs) -> Result<(), CliError> {
    let bar = progress::bytes("reading", 0);
    listen(bar.clone())?;
    let options = options(&args);
    let prepared = prepare(&args.inputs, &args.out, &options, &|progress| {
        show(&bar, progress)
    });
    bar.finish_and_clear();
    print(&summary::prepared(&args.out, &prepared?))
}

/// The library's options.
pub fn options(args: &PrepareArgs) -> PrepareOptions {
    PrepareOptions {
        tokenizer: args.tokenizer.clone(),
        input: InputOptions {
            format: args.format,
            field: args.field.clone(),
            on_error: args.on_error,
            ..InputOptions::default()
        },
        encoding: match &args.chat_template {
            Some(template) => Encoding::Chat {
                template: template.clone(),
            },
            None => Encoding::Text,
        },
        split: args.split,
        val_fraction: args.val_fraction,
        val: args.val.clone(),
        dedup: args.dedup,
        shard_tokens: args.shard_tokens,
        threads: args.threads,
        force: args.force,
        resume: args.resume,
        command: command(),
        ..PrepareOptions::default()
    }
}

/// The command as it was given, but for `--continue`: the dataset is that of the command without it.
pub(super) fn command() -> String {
    let given = std::env::args_os().skip(1);
    let given = given.filter(|word| word != "--continue");
    let words = given.map(|word| shell_word(&word.to_string_lossy()));
    ["emberlm".to_owned()]
        .into_iter()
        .chain(words)
        .collect::<Vec<_>>()
        .join(" ")
}

/// Ends the process at once on Ctrl-C or SIGTERM. The recorded progress is enough to resume.
fn listen(bar: ProgressBar) -> Result<(), CliError> {
    /// As a shell says it of a process that Ctrl-C has ended.
    const INTERRUPTED: i32 = 130;
    let stop = move || {
        bar.finish_and_clear();
        let error = CliError::new("stopped before its end");
        error
            .hint("finished work is kept: repeat the command with --continue")
            .report();
        ending::at_once(INTERRUPTED);
    };
    signals::listen(stop)
}

fn show(bar: &ProgressBar, progress: Progress) {
    match progress {
        Progress::Start { phase, bytes } => {
            bar.reset();
            bar.set_length(bytes);
            bar.set_message(match phase {
                Phase::Scan => "reading",
                Phase::Tokenize => "tokenizing",
            });
        }
        Progress::Advance { bytes } => bar.inc(bytes),
    }
}
