//! The commands, one module each, with a `run` function.

pub mod attention;
pub mod bench;
pub mod chat;
pub mod classify;
pub mod completions;
pub mod data;
pub mod devices;
pub mod doctor;
pub mod embed;
pub mod eval;
pub mod export;
pub mod fit;
pub mod fit_step;
pub mod generate;
mod info;
pub mod logits;
pub mod man;
pub mod merge;
pub mod models;
mod new;
pub mod plot;
pub mod prepare;
mod preset_list;
pub mod pull;
pub mod reference;
pub mod runs;
pub mod serve;
pub mod sweep;
mod texts;
pub mod tokenizer;
pub mod train;
pub mod watch;

use std::path::PathBuf;

use crate::args::{Cli, Command};
use crate::error::CliError;
use crate::hub;

/// Runs the selected command. Models that are named by the Hub's names are downloaded first.
pub fn run(mut cli: Cli) -> Result<(), CliError> {
    for model in models(&mut cli.command) {
        hub::localize(model)?;
    }
    match cli.command {
        Command::Prepare(args) => prepare::run(args),
        Command::Data(args) => data::run(args),
        Command::Tokenizer(args) => tokenizer::run(args),
        Command::Train(args) => train::run(*args),
        Command::Sweep(args) => sweep::run(args),
        Command::Plot(args) => plot::run(args),
        Command::Runs(args) => runs::run(args),
        Command::Watch(args) => watch::run(args),
        Command::Serve(args) => serve::run(args),
        Command::Generate(args) => generate::run(args),
        Command::Chat(args) => chat::run(*args),
        Command::Bench(args) => bench::run(args),
        Command::Eval(args) => eval::run(args),
        Command::Embed(args) => embed::run(args),
        Command::Classify(args) => classify::run(args),
        Command::Logits(args) => logits::run(args),
        Command::Attention(args) => attention::run(args),
        Command::Models(args) => models::run(args),
        Command::Pull(args) => pull::run(args),
        Command::Info(args) => info::run(args),
        Command::New(args) => new::run(args),
        Command::Export(args) => export::run(args),
        Command::Merge(args) => merge::run(args),
        Command::Devices(args) => devices::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Fit(args) => fit::run(args),
        Command::Completions(args) => completions::run(args),
        Command::Man(args) => man::run(&args),
        Command::Measure(args) => doctor::measure::run(args),
        Command::FitStep(args) => fit_step::run(args),
        Command::Reference(args) => reference::run(args),
    }
}

/// The paths of models in the command's arguments. `serve`, `bench` and `info` find theirs themselves.
fn models(command: &mut Command) -> Vec<&mut PathBuf> {
    match command {
        Command::Generate(args) => std::iter::once(&mut args.model)
            .chain(&mut args.draft)
            .collect(),
        Command::Chat(args) => vec![&mut args.model],
        Command::Eval(args) => vec![&mut args.model],
        Command::Embed(args) => vec![&mut args.model],
        Command::Classify(args) => vec![&mut args.model],
        Command::Logits(args) => vec![&mut args.model],
        Command::Attention(args) => vec![&mut args.model],
        Command::Export(args) => vec![&mut args.model],
        Command::Merge(args) => vec![&mut args.model],
        Command::Train(args) => args.from.iter_mut().collect(),
        Command::Fit(args) => args.from.iter_mut().collect(),
        _ => Vec::new(),
    }
}
