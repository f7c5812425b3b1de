//! `emberlm embed`: texts as vectors.

use std::path::PathBuf;

use burn::tensor::Device;
use clap::Args;
use emberlm_checkpoint::EncoderModel;
use emberlm_kernels::TrainingBackend;
use serde::Serialize;

use super::texts::{self, TextEncoder, TextFields};
use crate::backend::{BackendArg, Job};
use crate::error::CliError;
use crate::examples;
use crate::memory_guard::{MemoryArg, MemoryGuard};
use crate::model;
use crate::output::print_json;

/// Texts that are read, embedded and printed at a time.
const BATCH: usize = 4096;

/// Arguments of `embed`.
#[derive(Debug, Args)]
#[command(after_help = examples::EMBED)]
pub struct EmbedArgs {
    /// A run, checkpoint or Hugging Face directory of an encoder, such as one of sentence-transformers
    pub model: PathBuf,
    /// Files with a text per line; - reads standard input
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Read JSON lines, and the text from their field `text`
    #[arg(long, help_heading = "Input")]
    pub jsonl: bool,
    /// Print each text with its vector
    #[arg(long, help_heading = "Output")]
    pub with_text: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub backend: BackendArg,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub memory: MemoryArg,
}

/// Embeds every text and prints `{"embedding": [...]}` per text.
pub fn run(args: EmbedArgs) -> Result<(), CliError> {
    let backend = args.backend.choose()?;
    let model = model::open_encoder(&args.model)?;
    backend.run(Embed {
        args: &args,
        model: &model,
        guard: args.memory.guard(backend),
    })?
}

#[derive(Serialize)]
struct Line<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    embedding: &'a [f32],
}

struct Embed<'a> {
    args: &'a EmbedArgs,
    model: &'a EncoderModel,
    guard: MemoryGuard,
}

impl Job for Embed<'_> {
    type Output = Result<(), CliError>;

    fn run<B: TrainingBackend>(self, device: Device<B>) -> Self::Output {
        let Self { args, model, guard } = self;
        texts::check_memory::<B::InnerBackend>("embedding", model, guard)?;
        let embedder = model.embedder::<B::InnerBackend>(&device)?;
        let fields = args.jsonl.then_some(TextFields::TEXT);
        let mut encoder = TextEncoder::new(embedder.sequences());
        texts::in_batches(&args.files, fields, BATCH, |inputs| {
            let sequences = encoder.encode(inputs)?;
            let vectors = embedder.embed_sequences(&sequences)?;
            inputs.iter().zip(&vectors).try_for_each(|(input, vector)| {
                print_json(&Line {
                    text: args.with_text.then_some(input.text.as_str()),
                    embedding: vector,
                })
            })
        })?;
        encoder.finish();
        Ok(())
    }
}
