//! `emberlm info`: parameters, operations and memory of a model.

mod sizes;
mod texts;

use std::path::{Path, PathBuf};

use clap::Args;
use emberlm_checkpoint::{ModelKind, kind_of};

use emberlm_model::TransformerConfig;
use emberlm_model::count::{
    self, Component, ComponentParameters, Flops, Memory, Parameters, StackRole,
};
use emberlm_model::families::{self, Preset};
use emberlm_system::nearest::nearest;
use emberlm_tokenizer::TokenizerSpec;
use emberlm_trainer::presets;
use indicatif::{HumanBytes, HumanCount};
use serde::{Serialize, Serializer};

use super::preset_list;
use crate::adapter_arg::AdapterArg;
use crate::error::CliError;
use crate::examples;
use crate::hub;
use crate::model;
use crate::opened_model::OpenedModel;
use crate::output::{Align, Table, operations, print, print_json};
use crate::values;
use texts::ModelTexts;

/// Arguments of `info`.
#[derive(Debug, Args)]
#[command(after_help = examples::INFO)]
pub struct InfoArgs {
    /// A run, checkpoint or Hugging Face directory, or a preset's name; without it, the presets are listed
    #[arg(value_name = "MODEL|PRESET")]
    pub subject: Option<String>,
    /// Number of token ids, for a preset
    #[arg(long, value_name = "N", requires = "subject", value_parser = values::at_least_one)]
    pub vocab_size: Option<usize>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub adapter: AdapterArg,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Prints a preset, a trained model, or the list of presets.
pub fn run(args: InfoArgs) -> Result<(), CliError> {
    let Some(subject) = &args.subject else {
        return preset_list::run(args.json);
    };
    let is_path = Path::new(subject).exists();
    let name = match is_path {
        true => subject.clone(),
        false => subject.to_lowercase(),
    };
    let info = match preset(&name) {
        Some(_) if args.adapter.adapter.is_some() => {
            return Err(CliError::usage(format!(
                "--adapter is for models, and {subject} is a preset"
            )));
        }
        Some(preset) => of_preset(&preset, args.vocab_size)?,
        None => {
            let mut path = PathBuf::from(subject);
            hub::localize(&mut path)?;
            let path = path.as_path();
            check_model(path, args.vocab_size)?;
            of_model(&OpenedModel::open_with(path, &args.adapter)?)?
        }
    };
    match args.json {
        true => print_json(&info),
        false => print(&info.text()),
    }
}

/// The command's output.
#[derive(Debug, Serialize)]
struct Info {
    /// The preset's name or the checkpoint's directory.
    name: String,
    about: String,
    parameters: Parameters,
    parameter_table: Vec<ComponentParameters>,
    /// Absent for other kinds than decoders, whose operations are only estimated.
    #[serde(skip_serializing_if = "Option::is_none")]
    flops_per_token: Option<Flops>,
    memory_bytes: Memory,
    /// True if the vocabulary size is assumed, because a dataset would determine it.
    vocab_size_assumed: bool,
    tokenizer: Option<TokenizerSpec>,
    /// Absent for a preset.
    #[serde(flatten)]
    texts: Option<ModelTexts>,
    #[serde(serialize_with = "written")]
    config: TransformerConfig,
    /// The longest text that an encoder reads, in tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    longest_text: Option<usize>,
}

fn of_preset(preset: &Preset, vocab_size: Option<usize>) -> Result<Info, CliError> {
    let config = preset_list::checked(preset, vocab_size)?;
    Ok(Info {
        vocab_size_assumed: preset.config.vocab_size.is_none() && vocab_size.is_none(),
        ..Info::new(preset.name.to_owned(), preset.about.to_owned(), &config)
    })
}

/// Checks the path of a model and the options that do not apply to one.
fn check_model(path: &Path, vocab_size: Option<usize>) -> Result<(), CliError> {
    if !path.exists() && !path.to_string_lossy().contains(['/', '\\']) {
        return Err(
            CliError::new(format!("no such preset or model: {}", path.display()))
                .did_you_mean(nearest_preset(&path.to_string_lossy()))
                .hint("list the presets: emberlm info")
                .hint("or pass the directory of a run or checkpoint"),
        );
    }
    // An error about the model comes before one about the option.
    if vocab_size.is_some() {
        if kind_of(path) == ModelKind::Decoder {
            model::open(path)?;
        }
        return Err(CliError::usage(
            "--vocab-size is for presets: a trained model has its own",
        ));
    }
    Ok(())
}

fn of_model(opened: &OpenedModel) -> Result<Info, CliError> {
    let model = opened.model();
    let name = model.path().display().to_string();
    Ok(Info {
        tokenizer: model.tokenizer_spec()?,
        texts: match model.kind() {
            ModelKind::Encoder => None,
            ModelKind::Decoder | ModelKind::EncoderDecoder => Some(ModelTexts::of(model)?),
        },
        longest_text: match opened {
            OpenedModel::Encoder(model) => Some(model.longest_text()),
            OpenedModel::Decoder(_) | OpenedModel::EncoderDecoder(_) => None,
        },
        ..Info::new(name, model.about()?, model.config())
    })
}

/// The configuration as a file has it.
fn written<S: Serializer>(config: &TransformerConfig, serializer: S) -> Result<S::Ok, S::Error> {
    config.raw().serialize(serializer)
}

/// The preset of a name; that of a family is the name of its first one.
fn preset(name: &str) -> Option<Preset> {
    families::preset(name).or_else(|| presets::all().find(|preset| preset.name == name))
}

/// The preset with the name most similar to a mistyped one.
fn nearest_preset(name: &str) -> Option<&'static str> {
    nearest(name, presets::all().map(|preset| preset.name))
}

impl Info {
    fn new(name: String, about: String, config: &TransformerConfig) -> Self {
        Self {
            name,
            about,
            parameters: count::parameters(config),
            parameter_table: count::table(config),
            flops_per_token: (config.kind() == ModelKind::Decoder)
                .then(|| count::flops_per_token(config)),
            memory_bytes: count::memory(config),
            vocab_size_assumed: false,
            tokenizer: None,
            texts: None,
            config: config.clone(),
            longest_text: None,
        }
    }

    fn text(&self) -> String {
        format!(
            "{}: {}\n\nParameters\n{}\n{}Memory in f32\n{}\nSizes\n{}{}",
            self.name,
            self.about,
            self.parameters(),
            self.operations().unwrap_or_default(),
            self.memory(),
            self.sizes(),
            self.texts
                .as_ref()
                .map(ModelTexts::text)
                .unwrap_or_default(),
        )
    }

    fn parameters(&self) -> String {
        let number = |count: usize| HumanCount(count as u64).to_string();
        let mut table = parameter_table(&self.parameter_table, self.config.head().tied);
        table.row(["total", "", &number(self.parameters.total), ""]);
        if let Some(experts) = self.config.experts() {
            let note = format!("{} of {} experts", experts.active, experts.count);
            table.row(["per token", "", &number(self.parameters.active), &note]);
        }
        table.render()
    }

    fn operations(&self) -> Option<String> {
        let flops = self.flops_per_token.as_ref()?;
        let mut table = Table::new([Align::Left, Align::Right]);
        table.row(["forward", &operations(flops.forward as u64)]);
        table.row(["training", &operations(flops.training as u64)]);
        let context = HumanCount(self.config.seq_len() as u64);
        let table = table.render();
        Some(format!(
            "Operations per token, at the full {context} tokens of context\n{table}\n"
        ))
    }

    fn memory(&self) -> String {
        let memory = &self.memory_bytes;
        let mut table = Table::new([Align::Left, Align::Right, Align::Left]);
        let bytes = |bytes: usize| HumanBytes(bytes as u64).to_string();
        table.row(["weights", &bytes(memory.weights), ""]);
        let note = "weights, gradients and AdamW's moments; activations are extra";
        table.row(["training state", &bytes(memory.training_state), note]);
        if self.config.kind() == ModelKind::Decoder {
            let mut smaller = format!("; f16 {}", bytes(memory.kv_cache_f16));
            if let Some(q8) = memory.kv_cache_q8 {
                smaller += &format!(", q8 {}", bytes(q8));
            }
            let note = format!("one sequence of the full length{smaller}");
            table.row(["key-value cache", &bytes(memory.kv_cache), &note]);
        }
        table.render()
    }

    fn sizes(&self) -> String {
        let mut table = Table::new([Align::Left, Align::Right, Align::Left]);
        let vocabulary = match (&self.tokenizer, self.vocab_size_assumed) {
            (Some(tokenizer), _) => format!("the {} tokenizer's", tokenizer.kind),
            (None, true) => "assumed: the dataset decides; another with --vocab-size N".to_owned(),
            (None, false) => String::new(),
        };
        let vocab_size = self.config.vocab_size().to_string();
        table.row(["vocab_size", &vocab_size, &vocabulary]);
        for (name, size, note) in sizes::rows(&self.config, self.longest_text) {
            table.row([name, &size, &note]);
        }
        table.render()
    }
}

/// The table of parameters by component, without the total. Omits components that the model lacks, except the head: a
/// tied head is worth a line.
fn parameter_table(rows: &[ComponentParameters], tied: bool) -> Table {
    let number = |count: usize| HumanCount(count as u64).to_string();
    let mut table = Table::new([Align::Left, Align::Right, Align::Right, Align::Left]);
    table.row(["", "per layer", "in all", ""]);
    for row in rows {
        if row.total == 0 && !(row.component == Component::Head && tied) {
            continue;
        }
        let note = match row.layers {
            Some(layers) => format!("{layers} layers"),
            None if row.component == Component::Head && tied => match row.total {
                0 => "tied to the embedding".to_owned(),
                _ => "without its projection, the embedding".to_owned(),
            },
            None => String::new(),
        };
        let name = component_name(row.component);
        let name = match row.stack {
            Some(StackRole::Encoder) => format!("encoder: {name}"),
            Some(StackRole::Decoder) => format!("decoder: {name}"),
            None => name.to_owned(),
        };
        let per_layer = row.per_layer.map(number).unwrap_or_default();
        table.row([&name, &per_layer, &number(row.total), &note]);
    }
    table
}

fn component_name(component: Component) -> &'static str {
    match component {
        Component::TokenEmbedding => "token embedding",
        Component::Positions => "position embedding",
        Component::Segments => "segment embedding",
        Component::EmbeddingNorm => "embedding norm",
        Component::RelativeBias => "relative positions",
        Component::ResidualMix => "mix of embeddings",
        Component::Sinks => "attention sinks",
        Component::ValueEmbeddings => "value embeddings",
        Component::AttentionQkv => "attention: queries, keys, values",
        Component::AttentionGate => "attention: gate",
        Component::AttentionOut => "attention: output",
        Component::DeltaNet => "delta net",
        Component::CrossQueries => "cross-attention: queries",
        Component::CrossKeysValues => "cross-attention: keys, values",
        Component::CrossOut => "cross-attention: output",
        Component::FeedForwardUp => "feed-forward: in",
        Component::FeedForwardDown => "feed-forward: out",
        Component::Router => "router",
        Component::ExpertsUp => "experts: in",
        Component::ExpertsDown => "experts: out",
        Component::SharedExpert => "shared expert",
        Component::BlockNorms => "norms",
        Component::FinalNorm => "final norm",
        Component::Head => "head",
    }
}
