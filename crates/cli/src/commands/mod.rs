//! The commands, one module each, with a `run` function.

pub mod activations;
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
pub mod lens;
pub mod logits;
mod lr_find;
pub mod man;
pub mod measure;
pub mod merge;
pub mod models;
mod new;
pub mod patch;
pub mod plot;
pub mod prepare;
mod preset_list;
pub mod pull;
pub mod reference;
pub mod report;
pub mod runs;
pub mod scale;
pub mod serve;
pub mod sweep;
mod texts;
pub mod tokenizer;
pub mod train;
pub mod watch;

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::error::CliError;
use crate::hub;

/// Train, evaluate and sample GPT-class language models
#[derive(Debug, Parser)]
#[command(name = "emberlm", version, max_term_width = 100)]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Convert texts and records into a dataset
    Prepare(prepare::PrepareArgs),
    /// Inspect, verify, adopt and export datasets
    Data(data::DataArgs),
    /// Train, compare and convert tokenizers
    Tokenizer(tokenizer::TokenizerArgs),
    /// Train a model
    Train(Box<train::TrainArgs>),
    /// Find a learning rate: train a few steps with a rising one
    LrFind(Box<lr_find::LrFindArgs>),
    /// Train many configurations and compare them
    Sweep(sweep::SweepArgs),
    /// Fit scaling laws: plan, train and predict the best model of a budget
    Scale(Box<scale::ScaleArgs>),
    /// Draw loss and metric curves of runs
    Plot(plot::PlotArgs),
    /// List, show, remove, tag and compare runs
    Runs(runs::RunsArgs),
    /// Write a run or a sweep as one document
    Report(report::ReportArgs),
    /// Serve a live page of runs
    Watch(watch::WatchArgs),
    /// Find a micro-batch that fits into memory
    Fit(fit::FitArgs),
    /// List the devices of this machine
    Devices(devices::DevicesArgs),
    /// Compare a backend with the CPU on this machine
    Doctor(doctor::DoctorArgs),
    /// Continue a text
    Generate(generate::GenerateArgs),
    /// Chat with a model
    Chat(Box<chat::ChatArgs>),
    /// Serve models over HTTP: an OpenAI-compatible API and a playground
    Serve(serve::ServeArgs),
    /// Measure the speed of a model: prompts and decoding
    Bench(bench::BenchArgs),
    /// Evaluate a model on a dataset, HellaSwag or LAMBADA
    Eval(eval::EvalArgs),
    /// Print the embeddings of texts
    Embed(embed::EmbedArgs),
    /// Print the labels of texts
    Classify(classify::ClassifyArgs),
    /// Write a model's logits for given tokens
    Logits(logits::LogitsArgs),
    /// Show the attention weights of a model's heads
    Attention(attention::AttentionArgs),
    /// Show what a decoder would predict after each block
    Lens(lens::LensArgs),
    /// Write the tensors inside a model's pass over a text
    Activations(activations::ActivationsArgs),
    /// Replace activations of a decoder and measure the effect on a prediction
    Patch(patch::PatchArgs),
    /// List the models on this machine: the Hugging Face cache and trained runs
    Models(models::ModelsArgs),
    /// Download models of the Hugging Face Hub
    Pull(pull::PullArgs),
    /// Show the size of a model or preset, or list the presets
    Info(info::InfoArgs),
    /// Create a model with initial weights
    New(new::NewArgs),
    /// Write a model as a Hugging Face directory
    Export(export::ExportArgs),
    /// Add an adapter to the weights of its model
    Merge(merge::MergeArgs),
    /// Print shell completions
    Completions(completions::CompletionsArgs),
    /// Write a man page for each command
    Man(man::ManArgs),
    /// Measure the memory of training steps (run by `emberlm fit`)
    #[command(hide = true)]
    FitStep(fit_step::FitStepArgs),
    /// Count the work that a training step gives a GPU, for the developers of kernels
    #[command(hide = true)]
    Measure(measure::MeasureArgs),
    /// Print a generated page of the documentation
    #[command(hide = true)]
    Reference(reference::ReferenceArgs),
}

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
        Command::LrFind(args) => lr_find::run(*args),
        Command::Sweep(args) => sweep::run(args),
        Command::Scale(args) => scale::run(*args),
        Command::Plot(args) => plot::run(args),
        Command::Runs(args) => runs::run(args),
        Command::Report(args) => report::run(args),
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
        Command::Activations(args) => activations::run(args),
        Command::Lens(args) => lens::run(args),
        Command::Patch(args) => patch::run(args),
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
        Command::Measure(args) => measure::run(args),
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
        Command::Activations(args) => vec![&mut args.model],
        Command::Lens(args) => vec![&mut args.model],
        Command::Patch(args) => vec![&mut args.model],
        Command::Export(args) => vec![&mut args.model],
        Command::Merge(args) => vec![&mut args.model],
        Command::Train(args) => args.from.iter_mut().collect(),
        Command::LrFind(args) => args.train.from.iter_mut().collect(),
        Command::Fit(args) => args.from.iter_mut().collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use clap::{Command as Parsed, CommandFactory};

    use super::*;

    /// Splits an example's shell line into words, up to a redirection. Handles single quotes.
    fn words(line: &str) -> Vec<String> {
        let line = line.split(" > ").next().unwrap_or(line);
        // Parsing the option opens the tokenizer's file.
        let line = line.replace("tokenizers/book", "byte");
        let parts = line.split('\'').enumerate();
        parts
            .flat_map(|(at, part)| match at % 2 {
                0 => part.split_whitespace().map(str::to_owned).collect(),
                _ => vec![part.to_owned()],
            })
            .collect()
    }

    fn examples(command: &Parsed) -> Vec<String> {
        let help = command.get_after_help().map(ToString::to_string);
        let help = help.unwrap_or_default();
        let lines = help.lines().map(str::trim);
        lines
            .filter(|line| line.starts_with("emberlm "))
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn every_command_has_examples_that_parse() {
        let whole = Cli::command();
        for command in whole
            .get_subcommands()
            .filter(|command| !command.is_hide_set())
        {
            let examples = examples(command);
            assert!(!examples.is_empty(), "{}", command.get_name());
            for line in examples {
                let parsed = Cli::try_parse_from(words(&line));
                assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
            }
        }
    }
}
