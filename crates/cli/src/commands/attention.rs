//! `emberlm attention`: plots or summarizes the attention weights of each head.

use burn::tensor::{Device, Int, Tensor, TensorData};
use emberlm_checkpoint::Model;
use emberlm_kernels::TrainingBackend;
use emberlm_tokenizer::Tokenizer;
use serde::Serialize;

use crate::args::AttentionArgs;
use crate::backend::Job;
use crate::error::CliError;
use crate::head_habits::HeadHabits;
use crate::model::{self, needed};
use crate::output::{Align, Table, print, print_json};
use crate::plot::{Format, HeatMap, Page, PictureFile, heat_map, token_label};

/// Computes the attention weights, then plots or summarizes them.
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
        return Err(CliError::new("a single token attends only to itself").hint("pass more tokens"));
    }
    let choice = Choice {
        layers: chosen("layer", args.layer, config.n_layers())?,
        heads: chosen("head", args.head, config.heads())?,
    };
    if let Some(file) = &args.out {
        check_size(file, &choice, tokens.len())?;
    }
    let weights = backend.run(Weights {
        model: &model,
        tokens: &tokens,
        choice: &choice,
    })??;
    let labels = labels(&tokens, tokenizer.as_ref());
    let summary = summary(tokens, &choice, &weights);
    if let Some(file) = &args.out {
        let picture = HeatMap {
            title: format!("Attention of {}", args.model.display()),
            layers: &choice.layers,
            heads: &choice.heads,
            tokens: &labels,
            weights: &|layer, head| &weights[layer][head],
        };
        let page = Page {
            title: &picture.title,
            headings: &HEADINGS,
            rows: &summary.heads.iter().map(Head::cells).collect::<Vec<_>>(),
        };
        file.write(&picture, &page)?;
    }
    match (args.json, &args.out) {
        (true, _) => print_json(&summary),
        (false, None) => print(&table(&summary)),
        (false, Some(file)) => {
            let (layers, heads) = (choice.layers.len(), choice.heads.len());
            let panels = format!("{layers} x {heads} panels (layers x heads)");
            print(&format!("{}: {panels}\n", file.path.display()))
        }
    }
}

/// Maximum number of cells in an SVG picture, which makes about 30 MB of text.
const MOST_SVG_CELLS: usize = 250_000;

/// Rejects pictures that are too large for viewers.
fn check_size(file: &PictureFile, choice: &Choice, tokens: usize) -> Result<(), CliError> {
    let (layers, heads) = (choice.layers.len(), choice.heads.len());
    if !heat_map::fits(layers, heads) {
        let message = format!("{layers} layers of {heads} heads are too many for one picture");
        return Err(CliError::new(message).hint("select some with --layer N or --head N"));
    }
    let cells = heat_map::cells(layers, heads, tokens);
    if file.format != Format::Png && cells > MOST_SVG_CELLS {
        let message = format!(
            "a picture as SVG has at most {MOST_SVG_CELLS} cells; {layers} layers of {heads} heads and {tokens} tokens have {cells}"
        );
        return Err(CliError::new(message)
            .hint("use a .png file, or select some panels with --layer N or --head N"));
    }
    Ok(())
}

/// The selected layer and head indices.
struct Choice {
    layers: Vec<usize>,
    heads: Vec<usize>,
}

/// Selects one of `count` indices, or all of them.
fn chosen(name: &str, number: Option<usize>, count: usize) -> Result<Vec<usize>, CliError> {
    match number {
        None => Ok((0..count).collect()),
        Some(number) if number < count => Ok(vec![number]),
        Some(number) => {
            let message = format!("{name} {number} does not exist: the model has {count}");
            Err(CliError::new(message).hint(format!("give one of 0 to {}", count - 1)))
        }
    }
}

/// Attention weights by selected layer, then head. Rows are queries.
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
        Some(bytes) if !bytes.is_empty() => token_label(&bytes),
        _ => id.to_string(),
    };
    tokens.iter().map(label).collect()
}

/// The output of `--json`.
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

/// The table's column headings.
const HEADINGS: [&str; 6] = ["layer", "head", "entropy", "distance", "previous", "first"];

impl Head {
    fn cells(&self) -> Vec<String> {
        let habits = &self.habits;
        vec![
            self.layer.to_string(),
            self.head.to_string(),
            format!("{:.3}", habits.entropy),
            format!("{:.2}", habits.distance),
            format!("{:.3}", habits.previous),
            format!("{:.3}", habits.first),
        ]
    }
}

fn table(summary: &Summary) -> String {
    let mut table = Table::new([Align::Right; 6]);
    table.row(HEADINGS);
    for head in &summary.heads {
        table.row(head.cells());
    }
    table.render()
}
