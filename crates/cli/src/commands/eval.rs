//! `emberlm eval`: a model's loss over a whole split.

use std::time::Duration;

use burn::tensor::Device;
use emberlm_data::{Dataset, SplitManifest, TokenSplit};
use emberlm_kernels::TrainingBackend;
use emberlm_trainer::{Evaluation, evaluate};
use indicatif::{HumanCount, ProgressBar};
use serde::Serialize;

use crate::args::EvalArgs;
use crate::backend::Job;
use crate::error::CliError;
use crate::model_source::Model;
use crate::output::{Align, Table, print, print_json};

/// Tokens in a batch, unless its windows are counted out.
const BATCH_TOKENS: usize = 4096;

/// Evaluates, and shows it as text or JSON.
pub fn run(args: EvalArgs) -> Result<(), CliError> {
    let backend = args.backend.choose()?;
    let model = Model::open(&args.model)?;
    let dataset = Dataset::open(&args.data)?;
    model.check_dataset(&dataset)?;
    let manifest = dataset.manifest().split(args.split);
    if manifest.tokens < 2 {
        let (data, split) = (args.data.display(), args.split);
        return Err(CliError::new(format!(
            "the {split} split of {data} has no token to predict"
        ))
        .hint(
            "evaluate the other one with --split, or prepare the dataset with a --val-fraction",
        ));
    }
    let seq_len = window(args.seq_len, model.config().seq_len)?;
    let evaluation = backend.run(Evaluate {
        model: &model,
        split: dataset.split(args.split)?,
        seq_len,
        batch: args.batch.unwrap_or((BATCH_TOKENS / seq_len).max(1)),
    })??;
    let report = Report::new(evaluation, seq_len, manifest);
    match args.json {
        true => print_json(&report),
        false => print(&report.table(manifest)),
    }
}

/// Longer contexts than this are not evaluated at their full length unless it is asked for: attention's scores grow with
/// its square.
const LONGEST_BY_DEFAULT: usize = 4096;

/// Tokens of a window.
fn window(asked: Option<usize>, context: usize) -> Result<usize, CliError> {
    match asked {
        Some(tokens) if tokens > context => Err(CliError::usage(format!(
            "--seq-len {tokens}: the model's context is {context}"
        ))),
        Some(tokens) => Ok(tokens),
        None => Ok(context.min(LONGEST_BY_DEFAULT)),
    }
}

struct Evaluate<'a> {
    model: &'a Model,
    split: TokenSplit,
    seq_len: usize,
    batch: usize,
}

impl Job for Evaluate<'_> {
    type Output = Result<Evaluation, CliError>;

    fn run<B: TrainingBackend>(self, device: Device<B>) -> Self::Output {
        let decoder = self.model.decoder::<B::InnerBackend>(&device)?;
        let targets = self.split.len().saturating_sub(1);
        let spinner = ProgressBar::new_spinner()
            .with_message(format!("evaluating {} tokens", HumanCount(targets)));
        spinner.enable_steady_tick(Duration::from_millis(200));
        let evaluation = evaluate(&decoder, &self.split, self.seq_len, self.batch, None);
        spinner.finish_and_clear();
        Ok(evaluation?)
    }
}

/// What an evaluation found, in the units that people compare.
#[derive(Debug, Serialize)]
struct Report {
    loss: f64,
    perplexity: f64,
    /// Unknown where the manifest does not say how much text the tokens stand for.
    bits_per_byte: Option<f64>,
    tokens: u64,
    /// Tokens of a window.
    #[serde(skip)]
    seq_len: usize,
}

impl Report {
    fn new(evaluation: Evaluation, seq_len: usize, split: &SplitManifest) -> Self {
        let Evaluation { loss, tokens } = evaluation;
        let bits = loss * tokens as f64 / std::f64::consts::LN_2;
        Self {
            loss,
            perplexity: loss.exp(),
            bits_per_byte: (split.bytes > 0).then(|| bits / split.bytes as f64),
            tokens,
            seq_len,
        }
    }

    fn table(&self, split: &SplitManifest) -> String {
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
        if let Some(bits) = self.bits_per_byte {
            table.row(["bits per byte", &format!("{bits:.4}"), ""]);
        }
        let windows = format!("predicted, in windows of {}", self.seq_len);
        table.row(["tokens", &HumanCount(self.tokens).to_string(), &windows]);
        table.render()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_follow_from_the_loss() {
        let split = SplitManifest {
            bytes: 40,
            ..SplitManifest::default()
        };
        let loss = 3.0 * std::f64::consts::LN_2;
        let report = Report::new(Evaluation { loss, tokens: 20 }, 8, &split);
        assert!((report.perplexity - 8.0).abs() < 1e-12);
        assert!((report.bits_per_byte.unwrap() - 1.5).abs() < 1e-12);
        let report = Report::new(
            Evaluation { loss, tokens: 20 },
            8,
            &SplitManifest::default(),
        );
        assert_eq!(report.bits_per_byte, None);
    }
}
