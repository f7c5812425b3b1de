//! `emberlm classify`: the labels of texts, or of pairs of texts.

use std::path::PathBuf;

use burn::tensor::Device;
use clap::Args;
use emberlm_checkpoint::EncoderModel;
use emberlm_kernels::TrainingBackend;
use emberlm_model::encoder::{EncoderHeadConfig, ProblemType, most_probable};
use serde::Serialize;

use super::texts::{self, TextEncoder, TextFields};
use crate::backend::{BackendArg, Job};
use crate::error::CliError;
use crate::examples;
use crate::memory_guard::{MemoryArg, MemoryGuard};
use crate::model;
use crate::output::print_json;

/// Texts that are read, classified and printed at a time.
const BATCH: usize = 1024;

/// Arguments of `classify`.
#[derive(Debug, Args)]
#[command(after_help = examples::CLASSIFY)]
pub struct ClassifyArgs {
    /// A run, checkpoint or Hugging Face directory of an encoder with a classifier of texts
    pub model: PathBuf,
    /// Files with a text per line; - reads standard input
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Read JSON lines, and the text from their field `text`, or a pair from `text` and `text_pair`
    #[arg(long, help_heading = "Input")]
    pub jsonl: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub backend: BackendArg,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub memory: MemoryArg,
}

/// Prints `{"label": "...", "probability": p}` per text; of a regression `{"label": "...", "score": x}`.
pub fn run(args: ClassifyArgs) -> Result<(), CliError> {
    let backend = args.backend.choose()?;
    let model = model::open_encoder(&args.model)?;
    let head = model.config().encoder_head();
    let Some(EncoderHeadConfig::Sequence {
        labels, problem, ..
    }) = head
    else {
        let path = args.model.display();
        let message = format!("{path} has no classifier of texts");
        let hint = "give a model whose config.json has an architecture …ForSequenceClassification";
        return Err(CliError::new(message).hint(hint));
    };
    backend.run(Classify {
        args: &args,
        model: &model,
        labels,
        problem: *problem,
        guard: args.memory.guard(backend),
    })?
}

#[derive(Serialize)]
struct Line<'a> {
    label: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    probability: Option<f32>,
    /// The number that a regression predicts.
    #[serde(skip_serializing_if = "Option::is_none")]
    score: Option<f32>,
}

struct Classify<'a> {
    args: &'a ClassifyArgs,
    model: &'a EncoderModel,
    labels: &'a [String],
    problem: ProblemType,
    guard: MemoryGuard,
}

impl Job for Classify<'_> {
    type Output = Result<(), CliError>;

    fn run<B: TrainingBackend>(self, device: Device<B>) -> Self::Output {
        let Self {
            args,
            model,
            labels,
            problem,
            guard,
        } = self;
        let line = |label, score| {
            let (probability, score) = match problem {
                ProblemType::Regression => (None, Some(score)),
                _ => (Some(score), None),
            };
            Line {
                label,
                probability,
                score,
            }
        };
        texts::check_memory::<B::InnerBackend>("classifying", model, guard)?;
        let embedder = model.embedder::<B::InnerBackend>(&device)?;
        let fields = args.jsonl.then_some(TextFields::PAIR);
        let mut encoder = TextEncoder::new(embedder.sequences());
        texts::in_batches(&args.files, fields, BATCH, |inputs| {
            let sequences = encoder.encode(inputs)?;
            let scores = embedder.class_scores(&sequences)?.unwrap_or_default();
            scores
                .iter()
                .try_for_each(|of_labels| match most_probable(labels, of_labels) {
                    Some((label, score)) => print_json(&line(label, score)),
                    None => Ok(()),
                })
        })?;
        encoder.finish();
        Ok(())
    }
}
