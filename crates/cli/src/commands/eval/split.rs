//! Evaluates a model's loss on a split of one or several datasets.

use std::path::{Path, PathBuf};

use burn::tensor::Device;
use emberlm_checkpoint::Model;
use emberlm_data::{
    Batch, Dataset, EvalBatches, EvalChoice, IGNORED, Packing, Split, SplitManifest, TokenBytes,
    Windows,
};
use emberlm_kernels::{Backend, TrainingBackend};
use emberlm_model::Transformer;
use emberlm_trainer::config::ExchangeMemory;
use emberlm_trainer::peers::{Peers, weights_hash};
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

/// Evaluates the model on the datasets in `data`.
pub fn run(args: &EvalArgs, data: &[PathBuf], ranks: &Ranks) -> Result<(), CliError> {
    let backend = args.backend.choose()?.of_local_rank(ranks.local_rank());
    let model = args.adapter.open_decoder(&args.model)?;
    let splits = data.iter().map(|path| OpenSplit::open(args, path, &model));
    let splits = splits.collect::<Result<Vec<_>, _>>()?;
    let work = splits.iter().map(OpenSplit::work);
    let largest = work.max_by_key(|(batch, seq_len)| batch * seq_len);
    let (batch, seq_len) = largest.unwrap_or((1, 1));
    check_memory(args, ranks, backend, &model, batch, seq_len)?;
    let of_splits = |of: &dyn Fn(&OpenSplit<'_>) -> String| {
        let each: Vec<String> = splits.iter().map(of).collect();
        each.join(" ")
    };
    ranks.agree(
        "evaluate",
        &[
            ("the backend", backend.name().to_owned()),
            (
                "the hash of the split",
                of_splits(&|split| hashes(split.manifest(args.split))),
            ),
            (
                "--seq-len",
                of_splits(&|split| split.windows.seq_len().to_string()),
            ),
            ("--precision", args.weights.precision.name().to_owned()),
            ("--batch-size", of_splits(&|split| split.batch.to_string())),
            (
                "--documents",
                of_splits(&|split| split.windows.packing().to_string()),
            ),
            ("--per-position", args.per_position.to_string()),
        ],
    )?;
    let mut file_check = FileCheck::start(splits.iter().map(|split| split.windows.split()));
    let found = backend.run(Evaluate {
        ranks,
        model: &model,
        formats: args.weights.with_cache(args.cache.cache),
        splits: &splits,
        per_position: args.per_position,
    })??;
    let left = file_check.left();
    if left > 0 {
        warn(&format!(
            "the data has no block hashes: waiting until its last {left} bytes are verified"
        ));
    }
    file_check.wait(|| false)?;
    for (split, found) in splits.iter().zip(&found) {
        if found.evaluation.tokens == 0 {
            let hint = "its masks exclude every token from the loss: see its dataset.json";
            return Err(empty(split.path, args.split).hint(hint));
        }
    }
    if !ranks.rank().is_zero() {
        return Ok(());
    }
    let reports = splits.iter().zip(&found);
    let reports: Vec<_> = reports
        .map(|(split, found)| (split, Report::new(found, args.split)))
        .collect();
    match (&reports[..], args.json) {
        ([(_, report)], true) => print_json(report),
        ([(split, report)], false) => {
            print(&report.text(split.manifest(args.split), found[0].positions.as_ref()))
        }
        (_, true) => print_json(&Reports {
            datasets: reports
                .iter()
                .map(|(split, report)| NamedReport {
                    data: split.path,
                    report,
                })
                .collect(),
        }),
        (_, false) => {
            let positions = found.iter().map(|found| found.positions.as_ref());
            print(&comparison(&reports, positions))
        }
    }
}

/// A split of a dataset to evaluate on.
struct OpenSplit<'a> {
    path: &'a Path,
    dataset: Dataset,
    windows: Windows,
    /// Windows per batch.
    batch: usize,
    /// The split's windows and tokens.
    size: (u64, u64),
}

impl<'a> OpenSplit<'a> {
    fn open(args: &EvalArgs, path: &'a Path, model: &Model) -> Result<Self, CliError> {
        let dataset = Dataset::open(path)?;
        model.check_dataset(&dataset)?;
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
        let tokens = dataset.manifest().split(args.split).tokens;
        if tokens < 2 {
            let hint =
                "evaluate the other one with --split, or prepare the dataset with a --val-fraction";
            return Err(empty(path, args.split).hint(hint));
        }
        let windows = dataset.evaluation_windows(args.split, choice)?;
        let seq_len = windows.seq_len();
        let count = match windows.packed() {
            Some(packed) => packed.rows,
            None => tokens.div_ceil(seq_len as u64),
        };
        Ok(Self {
            path,
            batch: args.batch.unwrap_or((BATCH_TOKENS / seq_len).max(1)),
            size: (count, tokens),
            dataset,
            windows,
        })
    }

    fn manifest(&self, split: Split) -> &SplitManifest {
        self.dataset.manifest().split(split)
    }

    /// The largest batch, and the tokens of its windows.
    fn work(&self) -> (usize, usize) {
        let of = |count: u64, most: usize| usize::try_from(count).map_or(most, |all| all.min(most));
        let (windows, tokens) = self.size;
        (of(windows, self.batch), of(tokens, self.windows.seq_len()))
    }
}

/// The hashes of a split's shards.
fn hashes(split: &SplitManifest) -> String {
    let shards = split.shards.iter();
    let shards: Vec<&str> = shards.map(|shard| shard.blake3.as_str()).collect();
    shards.join(" ")
}

/// The error of a split without a token to predict.
fn empty(path: &Path, split: Split) -> CliError {
    let path = path.display();
    CliError::new(format!(
        "the {split} split of {path} has no token to predict"
    ))
}

struct Evaluate<'a> {
    ranks: &'a Ranks,
    model: &'a Model,
    formats: Formats,
    splits: &'a [OpenSplit<'a>],
    per_position: bool,
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
    type Output = Result<Vec<SplitResult>, CliError>;

    fn run<B: TrainingBackend>(self, device: Device<B>) -> Self::Output {
        let decoder = model::decoder_in::<B::InnerBackend>(self.model, self.formats, &device)?;
        self.ranks.agree(
            "evaluate",
            &[("the hash of the weights", weights_hash(&decoder))],
        )?;
        let peers = self
            .ranks
            .peers::<B::InnerBackend>(ExchangeMemory::Host, &device)?;
        let splits = self.splits.iter();
        splits
            .map(|split| self.evaluated(split, &decoder, &*peers))
            .collect()
    }
}

impl Evaluate<'_> {
    fn evaluated<B: Backend>(
        &self,
        split: &OpenSplit<'_>,
        decoder: &Transformer<B>,
        peers: &dyn Peers<B>,
    ) -> Result<SplitResult, CliError> {
        let (windows, batch) = (&split.windows, split.batch);
        let batches = EvalBatches::new(windows, batch, None)?;
        let protocol = Protocol {
            windows: batches.windows(),
            window: windows.seq_len(),
            documents: windows.packing(),
            cut: windows.packed().map(|packed| packed.cut),
        };
        let token_bytes = split.dataset.tokenizer().token_bytes();
        let bar = progress::tokens(batches.positions(), self.ranks.rank());
        let mut bytes = token_bytes.as_ref().map(|_| 0);
        let observe = |batch: &Batch| {
            bar.inc(batch.targets.len() as u64);
            bytes = bytes.and_then(|sum| Some(sum + text_bytes(token_bytes.as_ref()?, batch)?));
        };
        let (evaluation, positions) = match self.per_position {
            true => {
                let found = evaluate_positions_among(peers, decoder, windows, batch, observe)?;
                (found.overall(), Some(found))
            }
            false => {
                let found = evaluate_among(peers, decoder, windows, batch, None, observe)?;
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

/// The reports on several datasets.
#[derive(Serialize)]
struct Reports<'a> {
    datasets: Vec<NamedReport<'a>>,
}

/// The report on one of several datasets.
#[derive(Serialize)]
struct NamedReport<'a> {
    data: &'a Path,
    #[serde(flatten)]
    report: &'a Report,
}

/// A table with a line for each dataset, and the losses by position if there are any.
fn comparison<'a>(
    reports: &[(&OpenSplit<'_>, Report)],
    positions: impl Iterator<Item = Option<&'a PositionLosses>>,
) -> String {
    let mut table = Table::new([
        Align::Left,
        Align::Right,
        Align::Right,
        Align::Right,
        Align::Right,
    ]);
    table.row(["dataset", "loss", "perplexity", "bits per byte", "tokens"]);
    let mut by_position = String::new();
    for ((split, report), positions) in reports.iter().zip(positions) {
        let name = split.path.display().to_string();
        if let Some(found) = positions {
            by_position += &format!("\n{name}\n{}", position_table(found));
        }
        let bits = report.bits_per_byte.map(|bits| format!("{bits:.4}"));
        table.row([
            name,
            format!("{:.4}", report.loss),
            format!("{:.4}", report.perplexity),
            bits.unwrap_or_else(|| "–".to_owned()),
            HumanCount(report.tokens).to_string(),
        ]);
    }
    table.render() + &by_position
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
