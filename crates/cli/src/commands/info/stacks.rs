//! `emberlm info` of encoders and encoder–decoders.

use std::path::Path;

use emberlm_checkpoint::{EncoderDecoderModel, EncoderModel};
use emberlm_model::config::Position;
use emberlm_model::count::{self, ComponentParameters};
use emberlm_model::encoder::{EncoderHeadConfig, EncoderSettings};
use emberlm_model::encoder_decoder::EncoderDecoderSettings;
use emberlm_tokenizer::{Tokenizer, TokenizerSpec};
use indicatif::{HumanBytes, HumanCount};
use serde::Serialize;
use serde_json::Value;

use super::parameter_table;
use crate::error::CliError;
use crate::opened_model::OpenedModel;
use crate::output::{Align, Table, print, print_json};

/// The command's output.
#[derive(Debug, Serialize)]
struct StackInfo {
    /// The model's directory.
    name: String,
    about: String,
    parameters: Total,
    parameter_table: Vec<ComponentParameters>,
    memory_bytes: Weights,
    tokenizer: Option<TokenizerSpec>,
    config: Value,
    /// Names and values of the sizes, with notes.
    #[serde(skip)]
    sizes: Vec<(&'static str, String, String)>,
    /// True if the head is the embedding.
    #[serde(skip)]
    tied: bool,
}

#[derive(Debug, Serialize)]
struct Total {
    total: usize,
}

#[derive(Debug, Serialize)]
struct Weights {
    weights: usize,
}

/// Prints a model that is no decoder.
pub fn run(model: &OpenedModel, json: bool) -> Result<(), CliError> {
    let info = match model {
        OpenedModel::Decoder(_) => return Err(CliError::new("the model is a decoder")),
        OpenedModel::Encoder(model) => encoder(model)?,
        OpenedModel::EncoderDecoder(model) => encoder_decoder(model)?,
    };
    match json {
        true => print_json(&info),
        false => print(&info.text()),
    }
}

fn encoder(model: &EncoderModel) -> Result<StackInfo, CliError> {
    let config = model.config();
    let texts = format!("texts of at most {} tokens", model.longest_text());
    let head = match config.encoder_head() {
        None => "none".to_owned(),
        Some(EncoderHeadConfig::Pooler) => "pooler".to_owned(),
        Some(EncoderHeadConfig::MaskedLm { .. }) => "masked language model".to_owned(),
        Some(EncoderHeadConfig::Sequence { labels, .. }) => {
            format!("classifier of texts, {} labels", labels.len())
        }
        Some(EncoderHeadConfig::Token { labels, .. }) => {
            format!("classifier of tokens, {} labels", labels.len())
        }
    };
    let window = config.window().map(|window| {
        let n_layers = config.n_layers();
        let local = n_layers - window.full_layers.layers(n_layers).len();
        let note = format!("tokens on each side, in {local} of {n_layers} blocks");
        ("window", window.tokens.to_string(), note)
    });
    let size = |name, size: usize| (name, size.to_string(), String::new());
    let positions = config.seq_len() + config.first_position();
    let mut sizes = vec![
        (
            "vocab_size",
            config.vocab_size().to_string(),
            tokenizer_note(model.tokenizer()),
        ),
        ("positions", positions.to_string(), texts),
        size("segments", config.embeddings().segments),
        size("d_model", config.d_model()),
        size("n_layers", config.n_layers()),
        size("heads", config.heads()),
        ("head", head, String::new()),
    ];
    sizes.extend(window);
    Ok(StackInfo {
        sizes,
        tied: matches!(
            config.encoder_head(),
            Some(EncoderHeadConfig::MaskedLm { .. })
        ),
        ..StackInfo::new(
            model.model().path(),
            model.model().about()?,
            count::table(config),
            model.tokenizer(),
            serde_json::to_value(EncoderSettings::of(config))
                .map_err(|error| CliError::new(error.to_string()))?,
        )
    })
}

fn encoder_decoder(model: &EncoderDecoderModel) -> Result<StackInfo, CliError> {
    let config = model.config();
    let (buckets, distances) = match *config.position() {
        Position::Relative(positions) => {
            let from = positions.max_distance;
            let note = format!("relative; distances from {from} on are alike");
            (positions.buckets, note)
        }
        _ => (0, String::new()),
    };
    let size = |name, size: usize| (name, size.to_string(), String::new());
    Ok(StackInfo {
        sizes: vec![
            (
                "vocab_size",
                config.vocab_size().to_string(),
                tokenizer_note(model.tokenizer()),
            ),
            ("position buckets", buckets.to_string(), distances),
            size("d_model", config.d_model()),
            size("encoder layers", config.encoder_layers()),
            size("decoder layers", config.n_layers()),
            size("heads", config.heads()),
            size("head_dim", config.head_dim()),
        ],
        tied: config.head().tied,
        ..StackInfo::new(
            model.model().path(),
            model.model().about()?,
            count::table(config),
            model.tokenizer(),
            serde_json::to_value(EncoderDecoderSettings::of(config))
                .map_err(|error| CliError::new(error.to_string()))?,
        )
    })
}

fn tokenizer_note(tokenizer: Option<&Tokenizer>) -> String {
    tokenizer.map_or_else(String::new, |tokenizer| {
        format!("the {} tokenizer's", tokenizer.kind())
    })
}

impl StackInfo {
    fn new(
        path: &Path,
        about: String,
        parameter_table: Vec<ComponentParameters>,
        tokenizer: Option<&Tokenizer>,
        config: Value,
    ) -> Self {
        let totals = parameter_table.iter().map(|row| row.total);
        let total = totals.fold(0, usize::saturating_add);
        Self {
            name: path.display().to_string(),
            about,
            parameters: Total { total },
            parameter_table,
            memory_bytes: Weights {
                weights: total.saturating_mul(size_of::<f32>()),
            },
            tokenizer: tokenizer.map(Tokenizer::spec),
            config,
            sizes: Vec::new(),
            tied: false,
        }
    }

    fn text(&self) -> String {
        let mut parameters = parameter_table(&self.parameter_table, self.tied);
        let total = HumanCount(self.parameters.total as u64).to_string();
        parameters.row(["total", "", &total, ""]);
        let mut memory = Table::new([Align::Left, Align::Right]);
        let weights = HumanBytes(self.memory_bytes.weights as u64).to_string();
        memory.row(["weights", &weights]);
        let mut sizes = Table::new([Align::Left, Align::Right, Align::Left]);
        for (name, size, note) in &self.sizes {
            sizes.row([*name, size, note]);
        }
        format!(
            "{}: {}\n\nParameters\n{}\nMemory in f32\n{}\nSizes\n{}",
            self.name,
            self.about,
            parameters.render(),
            memory.render(),
            sizes.render(),
        )
    }
}
