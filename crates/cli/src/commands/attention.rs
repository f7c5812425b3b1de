//! `emberlm attention`: where each head looks, as a picture or as numbers.

use std::path::Path;

use burn::tensor::{Device, Int, Tensor, TensorData};
use emberlm_checkpoint::Model;
use emberlm_kernels::TrainingBackend;
use emberlm_system::write::write_whole;
use emberlm_tokenizer::Tokenizer;
use serde::Serialize;

use crate::args::AttentionArgs;
use crate::backend::Job;
use crate::error::CliError;
use crate::head_habits::HeadHabits;
use crate::heat_map::{self, HeatMap};
use crate::model::{self, needed};
use crate::output::{Align, Table, print, print_json};

/// Computes the weights, then draws or summarises them.
pub fn run(args: AttentionArgs) -> Result<(), CliError> {
    let backend = args.backend.choose()?;
    let model = model::open(&args.model)?;
    let tokenizer = model.tokenizer()?;
    let tokens = match &args.prompt {
        Some(text) => needed(tokenizer.as_ref(), &args.model)?.encode_prompt(text)?,
        None => args.tokens.clone().unwrap_or_default(),
    };
    let config = model.config();
    config.check_tokens(&tokens)?;
    if tokens.len() == 1 {
        return Err(CliError::new("one token attends to itself alone").hint("give more tokens"));
    }
    let choice = Choice {
        layers: chosen("layer", args.layer, config.n_layers)?,
        heads: chosen("head", args.head, config.heads)?,
    };
    if args.out.is_some() && !heat_map::fits(choice.layers.len(), choice.heads.len()) {
        let message = format!(
            "{} layers of {} heads are too many for one picture",
            choice.layers.len(),
            choice.heads.len()
        );
        return Err(CliError::new(message).hint("choose some with --layer N or --head N"));
    }
    let weights = backend.run(Weights {
        model: &model,
        tokens: &tokens,
        choice: &choice,
    })??;
    if let Some(path) = &args.out {
        draw(
            path,
            &args.model,
            &choice,
            &labels(&tokens, tokenizer.as_ref()),
            &weights,
        )?;
    }
    match (args.json, &args.out) {
        (true, _) => print_json(&summary(tokens, &choice, &weights)),
        (false, None) => print(&table(&summary(tokens, &choice, &weights))),
        (false, Some(path)) => {
            let (layers, heads) = (choice.layers.len(), choice.heads.len());
            let panels = format!("{layers} x {heads} panels (layers x heads)");
            print(&format!("{}: {panels}\n", path.display()))
        }
    }
}

/// Which layers and heads, by their numbers.
struct Choice {
    layers: Vec<usize>,
    heads: Vec<usize>,
}

/// One of `count`, or all.
fn chosen(name: &str, number: Option<usize>, count: usize) -> Result<Vec<usize>, CliError> {
    match number {
        None => Ok((0..count).collect()),
        Some(number) if number < count => Ok(vec![number]),
        Some(number) => {
            let message = format!("there is no {name} {number}: the model has {count}");
            Err(CliError::new(message).hint(format!("give one of 0 to {}", count - 1)))
        }
    }
}

/// A chosen layer's, then a chosen head's weights: a row per query.
type HostWeights = Vec<Vec<Vec<f32>>>;

struct Weights<'a> {
    model: &'a Model,
    tokens: &'a [u32],
    choice: &'a Choice,
}

impl Job for Weights<'_> {
    type Output = Result<HostWeights, CliError>;

    fn run<B: TrainingBackend>(self, device: Device<B>) -> Self::Output {
        let decoder = self.model.decoder::<B::InnerBackend>(&device)?;
        let ids: Vec<i64> = self.tokens.iter().map(|&id| i64::from(id)).collect();
        let ids = TensorData::new(ids, [1, self.tokens.len()]);
        let ids = Tensor::<B::InnerBackend, 2, Int>::from_data(ids, &device); // [1, seq]
        let layers = decoder.attention_weights(ids).into_iter().enumerate();
        let layers = layers.filter(|(layer, _)| self.choice.layers.contains(layer));
        let heads = |weights: Tensor<B::InnerBackend, 4>| {
            let head = |&head: &usize| weights.clone().narrow(1, head, 1).into_data();
            let data = self.choice.heads.iter().map(head);
            data.map(|data| data.iter::<f32>().collect()).collect()
        };
        Ok(layers.map(|(_, weights)| heads(weights)).collect())
    }
}

fn labels(tokens: &[u32], tokenizer: Option<&Tokenizer>) -> Vec<String> {
    let bytes = |id| tokenizer.and_then(|tokenizer| tokenizer.decode_bytes(&[id]).ok());
    let label = |&id: &u32| match bytes(id) {
        Some(bytes) if !bytes.is_empty() => heat_map::label(&bytes),
        _ => id.to_string(),
    };
    tokens.iter().map(label).collect()
}

fn draw(
    path: &Path,
    model: &Path,
    choice: &Choice,
    labels: &[String],
    weights: &HostWeights,
) -> Result<(), CliError> {
    let picture = HeatMap {
        title: format!("Attention of {}", model.display()),
        layers: &choice.layers,
        heads: &choice.heads,
        tokens: labels,
        weights: &|layer, head| &weights[layer][head],
    };
    let file = picture
        .png()
        .map_err(|error| CliError::new(format!("cannot make a PNG file: {error}")))?;
    write_whole(path, &file).map_err(CliError::io("write", path))
}

/// `--json`'s output.
#[derive(Serialize)]
struct Summary {
    tokens: Vec<u32>,
    heads: Vec<Head>,
}

#[derive(Serialize)]
struct Head {
    layer: usize,
    head: usize,
    #[serde(flatten)]
    habits: HeadHabits,
}

fn summary(tokens: Vec<u32>, choice: &Choice, weights: &HostWeights) -> Summary {
    let mut heads = Vec::new();
    for (&layer, weights) in choice.layers.iter().zip(weights) {
        for (&head, weights) in choice.heads.iter().zip(weights) {
            heads.push(Head {
                layer,
                head,
                habits: HeadHabits::of(weights, tokens.len()),
            });
        }
    }
    Summary { tokens, heads }
}

fn table(summary: &Summary) -> String {
    let mut table = Table::new([Align::Right; 6]);
    table.row(["layer", "head", "entropy", "distance", "previous", "first"]);
    for Head {
        layer,
        head,
        habits,
    } in &summary.heads
    {
        table.row([
            layer.to_string(),
            head.to_string(),
            format!("{:.3}", habits.entropy),
            format!("{:.2}", habits.distance),
            format!("{:.3}", habits.previous),
            format!("{:.3}", habits.first),
        ]);
    }
    table.render()
}
