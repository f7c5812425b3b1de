//! `emberlm info`: how large a model is.

use std::path::Path;

use emberlm_model::count::{self, Flops, Memory, Parameters};
use emberlm_model::{DecoderConfig, ModelConfig, families};
use emberlm_tokenizer::TokenizerSpec;
use indicatif::{HumanBytes, HumanCount};
use serde::Serialize;

use super::preset_list;
use crate::args::InfoArgs;
use crate::error::CliError;
use crate::model_source;
use crate::output::{Align, Table, operations, print, print_json};

/// Shows a preset, a trained model, or the list of presets.
pub fn run(args: InfoArgs) -> Result<(), CliError> {
    let Some(subject) = &args.subject else {
        return preset_list::run(args.json);
    };
    let info = match families::preset(subject) {
        Some(preset) => of_preset(&preset, args.vocab_size)?,
        None => of_model(Path::new(subject), args.vocab_size)?,
    };
    match args.json {
        true => print_json(&info),
        false => print(&info.text()),
    }
}

/// Everything that is shown.
#[derive(Debug, Serialize)]
struct Info {
    /// The preset's name or the checkpoint's directory.
    name: String,
    about: String,
    parameters: Parameters,
    flops_per_token: Flops,
    memory_bytes: Memory,
    /// Whether the vocabulary's size is made up, because a dataset would decide it.
    vocab_size_assumed: bool,
    tokenizer: Option<TokenizerSpec>,
    config: ModelConfig,
}

fn of_preset(preset: &families::Preset, vocab_size: Option<usize>) -> Result<Info, CliError> {
    let config = preset_list::checked(preset, vocab_size)?;
    Ok(Info {
        vocab_size_assumed: preset.config.vocab_size == 0 && vocab_size.is_none(),
        ..Info::new(preset.name.to_owned(), preset.about.to_owned(), &config)
    })
}

fn of_model(path: &Path, vocab_size: Option<usize>) -> Result<Info, CliError> {
    if !path.exists() && !path.to_string_lossy().contains(['/', '\\']) {
        return Err(
            CliError::new(format!("no such preset or model: {}", path.display()))
                .hint("list the presets: emberlm info")
                .hint("or give a run's or checkpoint's directory"),
        );
    }
    let checkpoint = model_source::open(path)?;
    if vocab_size.is_some() {
        return Err(CliError::usage(
            "--vocab-size is for presets: a trained model has its own",
        ));
    }
    let config = DecoderConfig::try_from(checkpoint.description.model.clone())?;
    let name = checkpoint.path.display().to_string();
    let steps = HumanCount(checkpoint.state.step as u64);
    Ok(Info {
        tokenizer: checkpoint.description.tokenizer,
        ..Info::new(name, format!("a checkpoint after {steps} steps"), &config)
    })
}

impl Info {
    fn new(name: String, about: String, config: &DecoderConfig) -> Self {
        Self {
            name,
            about,
            parameters: count::parameters(config),
            flops_per_token: count::flops_per_token(config),
            memory_bytes: count::memory(config),
            vocab_size_assumed: false,
            tokenizer: None,
            config: config.raw().clone(),
        }
    }

    fn text(&self) -> String {
        format!(
            "{}: {}\n\nParameters\n{}\nOperations per token, at the full {} tokens of context\n{}\n\
             Memory in f32\n{}\nSizes\n{}",
            self.name,
            self.about,
            self.parameters(),
            HumanCount(self.config.seq_len as u64),
            self.operations(),
            self.memory(),
            self.sizes(),
        )
    }

    fn parameters(&self) -> String {
        let parts = &self.parameters;
        let mut table = Table::new([Align::Left, Align::Right, Align::Left]);
        for (name, count) in [
            ("total", parts.total),
            ("embedding", parts.embedding),
            ("positions", parts.positions),
            ("attention", parts.attention),
            ("feed-forward", parts.feed_forward),
            ("norms", parts.norms),
            ("head", parts.head),
        ] {
            let tied = name == "head" && self.config.head.tied;
            let note = if tied { "tied to the embedding" } else { "" };
            table.row([name, &HumanCount(count as u64).to_string(), note]);
        }
        table.render()
    }

    fn operations(&self) -> String {
        let flops = &self.flops_per_token;
        let mut table = Table::new([Align::Left, Align::Right]);
        table.row(["forward", &operations(flops.forward as u64)]);
        table.row(["training", &operations(flops.training as u64)]);
        table.render()
    }

    fn memory(&self) -> String {
        let memory = &self.memory_bytes;
        let mut table = Table::new([Align::Left, Align::Right, Align::Left]);
        for (name, bytes, note) in [
            ("weights", memory.weights, ""),
            (
                "training state",
                memory.training_state,
                "weights, gradients and AdamW's moments; activations come on top",
            ),
            (
                "key-value cache",
                memory.kv_cache,
                "one sequence of the full length",
            ),
        ] {
            table.row([name, &HumanBytes(bytes as u64).to_string(), note]);
        }
        table.render()
    }

    fn sizes(&self) -> String {
        let config = &self.config;
        let mut table = Table::new([Align::Left, Align::Right, Align::Left]);
        let vocabulary = match (&self.tokenizer, self.vocab_size_assumed) {
            (Some(tokenizer), _) => format!("the {} tokenizer's", tokenizer.kind),
            (None, true) => "assumed: the dataset decides; another with --vocab-size N".to_owned(),
            (None, false) => String::new(),
        };
        table.row(["vocab_size", &config.vocab_size.to_string(), &vocabulary]);
        for (name, size) in [
            ("seq_len", config.seq_len),
            ("d_model", config.d_model),
            ("n_layers", config.n_layers),
            ("heads", config.heads),
            ("kv_heads", config.kv_heads),
            ("head_dim", config.head_dim),
        ] {
            table.row([name, &size.to_string(), ""]);
        }
        table.render()
    }
}
