//! Evaluates a model's loss on a split of one or several datasets.

use std::path::{Path, PathBuf};

use emberlm_checkpoint::Model;
use emberlm_data::{
    Batch, Dataset, EvalBatches, EvalChoice, IGNORED, Packing, Split, SplitManifest, TokenBytes,
    Windows,
};
use emberlm_kernels::Backend;
use emberlm_model::Transformer;
use emberlm_trainer::peers::Peers;
use emberlm_trainer::{FileCheck, evaluate_among, evaluate_positions_among};

use super::among_ranks::{AmongRanks, ModelEvaluation};
use super::split_report::{NamedReport, Protocol, Report, Reports, SplitResult};
use super::{EvalArgs, check_memory, check_window};
use crate::error::{CliError, warn};
use crate::output::{print, print_json};
use crate::progress;
use crate::ranks::Ranks;

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
    let found = backend.run(AmongRanks {
        ranks,
        model: &model,
        formats: args.weights.with_cache(args.cache.cache),
        evaluation: Evaluate {
            ranks,
            splits: &splits,
            per_position: args.per_position,
        },
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
    let reports: Vec<Report> = found
        .iter()
        .map(|found| Report::new(found, args.split))
        .collect();
    let positions = found.iter().map(|found| found.positions.as_ref());
    if let ([split], [report], [found]) = (&splits[..], &reports[..], &found[..]) {
        return match args.json {
            true => print_json(report),
            false => print(&report.text(split.manifest(args.split), found.positions.as_ref())),
        };
    }
    let named = splits.iter().zip(&reports).zip(positions);
    let named = named.map(|((split, report), positions)| NamedReport {
        data: split.path,
        report,
        positions,
    });
    let reports = Reports {
        datasets: named.collect(),
    };
    match args.json {
        true => print_json(&reports),
        false => print(&reports.text()),
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
    splits: &'a [OpenSplit<'a>],
    per_position: bool,
}

impl ModelEvaluation for Evaluate<'_> {
    type Output = Vec<SplitResult>;

    fn evaluate<B: Backend>(
        self,
        decoder: &Transformer<B>,
        peers: &dyn Peers<B>,
    ) -> Result<Vec<SplitResult>, CliError> {
        let splits = self.splits.iter();
        splits
            .map(|split| self.evaluated(split, decoder, peers))
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
