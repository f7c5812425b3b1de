//! Evaluates a model's loss on a dataset split.

use std::path::Path;

use burn::tensor::Device;
use emberlm_checkpoint::Model;
use emberlm_data::{
    Batch, Dataset, EvalBatches, EvalChoice, IGNORED, Packing, Split, SplitManifest, TokenBytes,
    Windows,
};
use emberlm_kernels::TrainingBackend;
use emberlm_trainer::config::ExchangeMemory;
use emberlm_trainer::peers::weights_hash;
use emberlm_trainer::{
    Evaluation, FileCheck, PositionLosses, evaluate_among, evaluate_positions_among,
    evaluated_windows,
};
use indicatif::HumanCount;
use serde::Serialize;

use super::{EvalArgs, check_memory, check_window};
use crate::backend::Job;
use crate::error::{CliError, warn};
use crate::model;
use crate::output::{Align, Table, print, print_json};
use crate::progress;
use crate::ranks::Ranks;
use crate::weights_arg::Formats;

/// Tokens per batch, unless `--batch-size` sets the number of windows.
const BATCH_TOKENS: usize = 4096;

/// Evaluates the model on the dataset in `data`.
pub fn run(args: &EvalArgs, data: &Path, ranks: &Ranks) -> Result<(), CliError> {
    let backend = args.backend.choose()?.of_local_rank(ranks.local_rank());
    let model = args.adapter.open_decoder(&args.model)?;
    let dataset = Dataset::open(data)?;
    model.check_dataset(&dataset)?;
    let manifest = dataset.manifest().split(args.split);
    if manifest.tokens < 2 {
        let (data, split) = (data.display(), args.split);
        return Err(CliError::new(format!(
            "the {split} split of {data} has no token to predict"
        ))
        .hint(
            "evaluate the other one with --split, or prepare the dataset with a --val-fraction",
        ));
    }
    let config = model.config();
    check_window(args.seq_len, config.seq_len())?;
    if args.documents.is_some_and(Packing::isolates_documents) {
        config.check_documents()?;
    }
    let choice = EvalChoice {
        packing: args.documents,
        seq_len: args.seq_len,
        context: config.seq_len(),
        isolates: config.check_documents().is_ok(),
    };
    let windows = dataset.evaluation_windows(args.split, choice)?;
    let (seq_len, packing) = (windows.seq_len(), windows.packing());
    let batch = args.batch.unwrap_or((BATCH_TOKENS / seq_len).max(1));
    let windows_in_all = match windows.packed() {
        Some(packed) => packed.rows,
        None => manifest.tokens.div_ceil(seq_len as u64),
    };
    let held = batch.min(usize::try_from(windows_in_all).unwrap_or(usize::MAX));
    let longest = usize::try_from(manifest.tokens).map_or(seq_len, |tokens| seq_len.min(tokens));
    check_memory(args, ranks, backend, &model, held, longest)?;
    let mut file_check = FileCheck::start([windows.split()]);
    let shards = manifest.shards.iter();
    let shards: Vec<&str> = shards.map(|shard| shard.blake3.as_str()).collect();
    ranks.agree(
        "evaluate",
        &[
            ("the backend", backend.name().to_owned()),
            ("the hash of the split", shards.join(" ")),
            ("--seq-len", seq_len.to_string()),
            ("--precision", args.weights.precision.name().to_owned()),
            ("--batch-size", batch.to_string()),
            ("--documents", packing.to_string()),
            ("--per-position", args.per_position.to_string()),
        ],
    )?;
    let found = backend.run(Evaluate {
        ranks,
        model: &model,
        formats: args.weights.with_cache(args.cache.cache),
        windows: &windows,
        batch,
        per_position: args.per_position,
        bytes: dataset.tokenizer().token_bytes(),
    })??;
    let left = file_check.left();
    if left > 0 {
        warn(&format!(
            "the dataset has no block hashes: waiting until its last {left} bytes are verified"
        ));
    }
    file_check.wait(|| false)?;
    if found.evaluation.tokens == 0 {
        let (data, split) = (data.display(), args.split);
        let message = format!("the {split} split of {data} has no token to predict");
        return Err(CliError::new(message)
            .hint("its masks exclude every token from the loss: see its dataset.json"));
    }
    if !ranks.rank().is_zero() {
        return Ok(());
    }
    let report = Report::new(&found, args.split);
    match args.json {
        true => print_json(&report),
        false => print(&report.text(manifest, found.positions.as_ref())),
    }
}

struct Evaluate<'a> {
    ranks: &'a Ranks,
    model: &'a Model,
    formats: Formats,
    windows: &'a Windows,
    batch: usize,
    per_position: bool,
    bytes: Option<TokenBytes>,
}

/// The result of an evaluation.
#[derive(Debug)]
struct SplitResult {
    evaluation: Evaluation,
    positions: Option<PositionLosses>,
    /// Bytes of text that the predicted tokens represent, if known.
    bytes: Option<u64>,
    protocol: Protocol,
}

/// The division of the split into windows.
#[derive(Clone, Copy, Debug)]
struct Protocol {
    windows: u64,
    /// Window length, and distance between the starts of windows, in tokens.
    window: usize,
    documents: Packing,
    /// Documents that are longer than a row, if documents are isolated.
    cut: Option<u64>,
}

impl Job for Evaluate<'_> {
    type Output = Result<SplitResult, CliError>;

    fn run<B: TrainingBackend>(self, device: Device<B>) -> Self::Output {
        let (windows, batch) = (self.windows, self.batch);
        let decoder = model::decoder_in::<B::InnerBackend>(self.model, self.formats, &device)?;
        self.ranks.agree(
            "evaluate",
            &[("the hash of the weights", weights_hash(&decoder))],
        )?;
        let peers = self
            .ranks
            .peers::<B::InnerBackend>(ExchangeMemory::Host, &device)?;
        let batches = EvalBatches::new(windows, batch, None)?;
        let protocol = Protocol {
            windows: batches.windows(),
            window: windows.seq_len(),
            documents: windows.packing(),
            cut: windows.packed().map(|packed| packed.cut),
        };
        let bar = progress::tokens(batches.positions(), self.ranks.rank());
        let mut bytes = self.bytes.as_ref().map(|_| 0);
        let observe = |batch: &Batch| {
            bar.inc(batch.targets.len() as u64);
            bytes = bytes.and_then(|sum| Some(sum + text_bytes(self.bytes.as_ref()?, batch)?));
        };
        let (evaluation, positions) = match self.per_position {
            true => {
                let found = evaluate_positions_among(&*peers, &decoder, windows, batch, observe)?;
                (found.overall(), Some(found))
            }
            false => {
                let found = evaluate_among(&*peers, &decoder, windows, batch, None, observe)?;
                (found, None)
            }
        };
        bar.finish_and_clear();
        Ok(SplitResult {
            evaluation,
            positions,
            bytes,
            protocol,
        })
    }
}

/// Returns the bytes of text that a batch's predicted tokens represent.
fn text_bytes(bytes: &TokenBytes, batch: &Batch) -> Option<u64> {
    let pairs = batch.inputs.iter().zip(&batch.targets);
    pairs
        .filter(|(_, id)| **id != IGNORED)
        .map(|(&previous, &id)| bytes.after(previous, id).map(u64::from))
        .sum()
}

/// The result of an evaluation in comparable units.
#[derive(Debug, Serialize)]
struct Report {
    loss: f64,
    perplexity: f64,
    /// Unknown if the tokens' text lengths are unknown.
    bits_per_byte: Option<f64>,
    /// Bytes of text that the predicted tokens represent.
    bytes: Option<u64>,
    tokens: u64,
    split: &'static str,
    /// The number of windows.
    windows: u64,
    /// Window length, and distance between the starts of windows, in tokens.
    window: usize,
    stride: usize,
    documents: Packing,
    /// The first token that a token is predicted from.
    context: ContextStart,
    /// Documents that are longer than a window. Their rest is predicted without what is before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    cut_documents: Option<u64>,
    /// Loss by position, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    positions: Option<Vec<Position>>,
}

/// The beginning of the text that a token is predicted from.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum ContextStart {
    /// The first token of the window.
    Window,
    /// The first token of the document.
    Document,
}

/// The loss at one position of the window.
#[derive(Debug, Serialize)]
struct Position {
    loss: f64,
    tokens: u64,
}

impl Report {
    fn new(found: &SplitResult, split: Split) -> Self {
        let Protocol {
            windows,
            window,
            documents,
            cut,
        } = found.protocol;
        let Evaluation { loss, tokens } = found.evaluation;
        let bits = loss * tokens as f64 / std::f64::consts::LN_2;
        let bytes = found.bytes.filter(|&bytes| bytes > 0);
        let position = |Evaluation { loss, tokens }| Position { loss, tokens };
        let positions = found.positions.as_ref().map(PositionLosses::positions);
        Self {
            loss,
            perplexity: loss.exp(),
            bits_per_byte: bytes.map(|bytes| bits / bytes as f64),
            bytes,
            tokens,
            split: split.name(),
            windows,
            window,
            stride: window,
            documents,
            context: match documents.isolates_documents() {
                true => ContextStart::Document,
                false => ContextStart::Window,
            },
            cut_documents: cut,
            positions: positions.map(|all| all.into_iter().map(position).collect()),
        }
    }

    fn text(&self, split: &SplitManifest, positions: Option<&PositionLosses>) -> String {
        let mut table = Table::new([Align::Left, Align::Right, Align::Left]);
        table.row(["loss", &format!("{:.4}", self.loss), "nats per token"]);
        if let Some(floor) = &split.floor {
            table.row([
                "floor",
                &format!("{:.4}", floor.nats_per_token),
                &floor.source,
            ]);
        }
        table.row(["perplexity", &format!("{:.4}", self.perplexity), ""]);
        if let (Some(bits), Some(bytes)) = (self.bits_per_byte, self.bytes) {
            let of = format!("over {} bytes of text", HumanCount(bytes));
            table.row(["bits per byte", &format!("{bits:.4}"), &of]);
        }
        let windows = format!(
            "predicted, {}",
            evaluated_windows(self.window, self.documents)
        );
        table.row(["tokens", &HumanCount(self.tokens).to_string(), &windows]);
        let count = HumanCount(self.windows).to_string();
        table.row(["windows", &count, &self.context_text()]);
        let by_position = positions.map(|found| format!("\n{}", position_table(found)));
        table.render() + &by_position.unwrap_or_default()
    }

    /// A description of the text that a token is predicted from.
    fn context_text(&self) -> String {
        let start = match self.context {
            ContextStart::Window => "the context starts at the window's first token",
            ContextStart::Document => "the context starts at the document's first token",
        };
        match self.cut_documents {
            None | Some(0) => start.to_owned(),
            Some(1) => format!("{start}; 1 document is longer than a row and cut"),
            Some(cut) => {
                let cut = HumanCount(cut);
                format!("{start}; {cut} documents are longer than a row and cut")
            }
        }
    }
}

/// Formats the loss by position in powers of two, which fits a screen.
fn position_table(found: &PositionLosses) -> String {
    let mut table = Table::new([Align::Left, Align::Right, Align::Right]);
    table.row(["position", "loss", "tokens"]);
    for (first, last, Evaluation { loss, tokens }) in found.by_powers_of_two() {
        let positions = match first == last {
            true => first.to_string(),
            false => format!("{first}–{last}"),
        };
        let tokens = HumanCount(tokens).to_string();
        table.row([positions, format!("{loss:.4}"), tokens]);
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_follow_from_the_loss() {
        let loss = 3.0 * std::f64::consts::LN_2;
        let report = |bytes| {
            let found = SplitResult {
                evaluation: Evaluation { loss, tokens: 20 },
                positions: None,
                bytes,
                protocol: Protocol {
                    windows: 3,
                    window: 8,
                    documents: Packing::Stream,
                    cut: None,
                },
            };
            Report::new(&found, Split::Val)
        };
        let known = report(Some(40));
        assert!((known.perplexity - 8.0).abs() < 1e-12);
        assert!((known.bits_per_byte.unwrap() - 1.5).abs() < 1e-12);
        for unknown in [report(None), report(Some(0))] {
            assert_eq!(unknown.bits_per_byte, None);
        }
    }
}
