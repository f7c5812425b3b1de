//! `emberlm lens`: the predictions that the last norm and the head would make after each block (logit lens, nostalgebraist 2020).
//!
//! A block adds to the residual stream, so the stream after each block is a state that the head can read, as if the later
//! blocks added nothing.

mod page;
mod streams;

use std::path::PathBuf;

use burn::tensor::Device;
use clap::{Args, ValueHint};
use emberlm_kernels::TrainingBackend;
use emberlm_model::id_tensor;
use emberlm_system::write::write_whole;
use emberlm_tokenizer::Tokenizer;
use serde::Serialize;

use crate::adapter_arg::AdapterArg;
use crate::backend::{BackendArg, Job};
use crate::error::CliError;
use crate::examples;
use crate::opened_model::OpenedModel;
use crate::output::{Align, Table, print, print_json};
use crate::plot::id_label;
use crate::text_arg::TextArg;
use streams::Streams;

/// Arguments of `lens`.
#[derive(Debug, Args)]
#[command(after_help = examples::LENS)]
pub struct LensArgs {
    /// A run, checkpoint or Hugging Face directory of a decoder
    pub model: PathBuf,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub text: TextArg,
    /// The token after which the predictions are printed, from 0 [default: the last one; with --json and --out all]
    #[arg(long, value_name = "N")]
    pub position: Option<usize>,
    /// The number of most probable tokens
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub top: usize,
    /// Write a page with a table of blocks and tokens
    #[arg(long, value_name = "FILE.html", value_hint = ValueHint::FilePath)]
    pub out: Option<PathBuf>,
    /// Print {"tokens", "positions": [{"position", "layers": [{"layer", "entropy", "rank", "probability", "top": [{"id", "token",
    /// "probability"}]}]}]}: "layer" is null before the first block, and "rank" and "probability" are those of the final prediction
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub adapter: AdapterArg,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub backend: BackendArg,
}

/// Computes the predictions and prints them.
pub fn run(args: LensArgs) -> Result<(), CliError> {
    let backend = args.backend.choose()?;
    let model = OpenedModel::open_with(&args.model, &args.adapter)?;
    let tokens = args.text.tokens(&model, &args.model)?;
    let positions = match args.position {
        Some(position) if position >= tokens.len() => {
            let (last, count) = (tokens.len() - 1, tokens.len());
            let message = format!("--position {position}: the text has {count} tokens");
            return Err(CliError::new(message).hint(format!("give one of 0 to {last}")));
        }
        Some(position) => position..position + 1,
        None if args.json || args.out.is_some() => 0..tokens.len(),
        None => tokens.len() - 1..tokens.len(),
    };
    let tokenizer = model.tokenizer()?;
    let distributions = backend.run(Lens {
        model: &model,
        tokens: &tokens,
    })??;
    let positions = positions.map(|position| {
        let layers = distributions.iter().map(|layer| &layer[position]);
        Predictions::new(position, layers, args.top, tokenizer.as_ref())
    });
    let report = Report {
        tokens: tokens.clone(),
        positions: positions.collect(),
    };
    if let Some(out) = &args.out {
        let title = format!("Predictions after each block of {}", args.model.display());
        let page = page::html(&report, &title, tokenizer.as_ref());
        write_whole(out, page.as_bytes()).map_err(CliError::io("write", out))?;
    }
    match (args.json, &args.out) {
        (true, _) => print_json(&report),
        (false, Some(out)) => {
            let (path, tokens) = (out.display(), report.positions.len());
            print(&format!("{path}: predictions after {tokens} tokens\n"))
        }
        (false, None) => print(&table(&report, tokenizer.as_ref())),
    }
}

/// Computes the probabilities, by layer, then position.
struct Lens<'a> {
    model: &'a OpenedModel,
    tokens: &'a [u32],
}

impl Job for Lens<'_> {
    type Output = Result<Vec<Vec<Vec<f64>>>, CliError>;

    fn run<B: TrainingBackend>(self, device: Device<B>) -> Self::Output {
        let OpenedModel::Decoder(model) = self.model else {
            return Err(CliError::new("only decoders predict the next token")
                .hint("emberlm activations MODEL writes the residual streams of encoders"));
        };
        let decoder = model.decoder::<B::InnerBackend>(&device)?;
        let mut streams = Streams::default();
        decoder.forward_probed(
            id_tensor(self.tokens, [1, self.tokens.len()], &device),
            &mut streams,
        );
        let streams = streams.tensors.into_iter().map(|stream| {
            let logits = decoder.lens(stream).squeeze_dim::<2>(0); // [seq, vocab_size]
            let width = logits.dims()[1].max(1);
            let logits: Vec<f32> = logits.into_data().iter::<f32>().collect();
            logits.chunks(width).map(softmax).collect()
        });
        Ok(streams.collect())
    }
}

fn softmax(logits: &[f32]) -> Vec<f64> {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let powers = logits.iter().map(|&x| f64::from(x - max).exp());
    let powers: Vec<f64> = powers.collect();
    let sum: f64 = powers.iter().sum();
    powers.iter().map(|power| power / sum).collect()
}

/// The output of `--json`.
#[derive(Serialize)]
struct Report {
    tokens: Vec<u32>,
    positions: Vec<Predictions>,
}

/// The predictions of the token after one position.
#[derive(Serialize)]
struct Predictions {
    position: usize,
    layers: Vec<Layer>,
}

/// The prediction after one block.
#[derive(Serialize)]
struct Layer {
    /// The block; `None` before the first one.
    layer: Option<usize>,
    /// The entropy of the distribution in nats.
    entropy: f64,
    /// The rank of the final prediction, from 1.
    rank: usize,
    /// The probability of the final prediction.
    probability: f64,
    top: Vec<Predicted>,
}

#[derive(Serialize)]
struct Predicted {
    id: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    probability: f64,
}

impl Predictions {
    fn new<'a>(
        position: usize,
        layers: impl DoubleEndedIterator<Item = &'a Vec<f64>> + Clone,
        top: usize,
        tokenizer: Option<&Tokenizer>,
    ) -> Self {
        let last = layers.clone().next_back();
        let chosen = last.map_or(0, |last| best(last, 1).first().copied().unwrap_or(0));
        let layers = layers.enumerate().map(|(at, probabilities)| {
            let probability = probabilities.get(chosen).copied().unwrap_or(0.0);
            let predicted = best(probabilities, top).into_iter().map(|place| {
                let id = place as u32;
                Predicted {
                    id,
                    token: token(id, tokenizer),
                    probability: probabilities[place],
                }
            });
            let terms = probabilities.iter().filter(|&&p| p > 0.0);
            Layer {
                layer: at.checked_sub(1),
                entropy: -terms.map(|p| p * p.ln()).sum::<f64>(),
                rank: 1 + probabilities.iter().filter(|&&p| p > probability).count(),
                probability,
                top: predicted.collect(),
            }
        });
        Self {
            position,
            layers: layers.collect(),
        }
    }
}

/// The ids of the `count` largest probabilities, the largest first.
fn best(probabilities: &[f64], count: usize) -> Vec<usize> {
    let mut ids: Vec<usize> = (0..probabilities.len()).collect();
    ids.sort_by(|&a, &b| {
        probabilities[b]
            .total_cmp(&probabilities[a])
            .then(a.cmp(&b))
    });
    ids.truncate(count);
    ids
}

/// The text of a token.
fn token(id: u32, tokenizer: Option<&Tokenizer>) -> Option<String> {
    let bytes = tokenizer?.decode_bytes(&[id]).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn table(report: &Report, tokenizer: Option<&Tokenizer>) -> String {
    let mut text = String::new();
    for predictions in &report.positions {
        let read = report.tokens.get(predictions.position).copied();
        let read = id_label(read.unwrap_or_default(), tokenizer);
        text += &format!("After token {} ({read}):\n", predictions.position);
        let last = predictions.layers.last();
        let chosen = last.and_then(|last| last.top.first());
        let chosen = chosen.map_or_else(String::new, |chosen| id_label(chosen.id, tokenizer));
        let shown = predictions.layers.iter().map(|layer| layer.top.len()).max();
        let columns = [Align::Left, Align::Right, Align::Right].into_iter();
        let pairs = [Align::Left, Align::Right].repeat(shown.unwrap_or(0));
        let mut table = Table::new(columns.chain(pairs).collect::<Vec<_>>());
        table.row([
            "block".to_owned(),
            "entropy".to_owned(),
            format!("rank of {chosen}"),
            "most probable".to_owned(),
        ]);
        for layer in &predictions.layers {
            let block = layer
                .layer
                .map_or("-".to_owned(), |block| block.to_string());
            let first = [
                block,
                format!("{:.3}", layer.entropy),
                layer.rank.to_string(),
            ];
            let top = layer.top.iter().flat_map(|predicted| {
                let probability = format!("{:.3}", predicted.probability);
                [id_label(predicted.id, tokenizer), probability]
            });
            table.row(first.into_iter().chain(top));
        }
        text += &table.render();
    }
    text
}
