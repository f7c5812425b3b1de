//! `emberlm prepare`: converts texts and records into a dataset.

mod args;
pub(super) mod summary;

use emberlm_data::{
    DataError, Encoding, InputOptions, Phase, PrepareOptions, Progress, prepare_among,
};
use emberlm_trainer::Rank;
use indicatif::ProgressBar;

use crate::console;
use crate::ending;
use crate::error::CliError;
use crate::output::print;
use crate::ranks::Ranks;
use crate::shell::shell_word;
use crate::{progress, signals};

pub use args::PrepareArgs;

/// Creates the dataset, divided among the ranks of a job, and prints a summary.
///
/// # Errors
/// Returns the errors of [`prepare_among`], and an error if signals or stdout fail.
pub fn run(args: PrepareArgs) -> Result<(), CliError> {
    let ranks = Ranks::join()?;
    let result = run_as(&args, &ranks);
    ranks.end(result)
}

fn run_as(args: &PrepareArgs, ranks: &Ranks) -> Result<(), CliError> {
    let bar = match ranks.rank().is_zero() {
        true => progress::bytes("reading", 0),
        false => ProgressBar::hidden(),
    };
    listen(bar.clone(), ranks.rank())?;
    let options = options(args);
    let exchange = ranks.exchange();
    let prepared = prepare_among(&*exchange, &args.inputs, &args.out, &options, &|progress| {
        show(&bar, progress);
    });
    bar.finish_and_clear();
    if let Err(DataError::RankFailed { .. }) = &prepared {
        ranks.wait_for_abort();
    }
    match prepared? {
        Some(prepared) => print(&summary::prepared(&args.out, &prepared)),
        None => Ok(()),
    }
}

/// Converts the arguments into the library's options.
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

/// The command line without `--resume`, which is recorded in the dataset: a resumed preparation gives the
/// same dataset.
pub(super) fn command() -> String {
    let given = std::env::args_os().skip(1);
    let given = given.filter(|word| word != "--resume" && word != "--continue");
    let words = given.map(|word| shell_word(&word.to_string_lossy()));
    ["emberlm".to_owned()]
        .into_iter()
        .chain(words)
        .collect::<Vec<_>>()
        .join(" ")
}

/// Ends the process immediately on a stop signal. The recorded progress is enough to resume.
fn listen(bar: ProgressBar, rank: Rank) -> Result<(), CliError> {
    /// The exit code shells use for a process ended by Ctrl-C.
    const INTERRUPTED: i32 = 130;
    let stop = move || {
        bar.finish_and_clear();
        const KEPT: &str = "finished work is kept: repeat the command with --resume";
        if rank.world_size() == 1 {
            CliError::new("stopped before its end").hint(KEPT).report();
        } else if rank.is_zero() {
            // The launcher also sends the signal after an error of another rank.
            console::note(format!("stopped before its end; {KEPT}"));
        }
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
