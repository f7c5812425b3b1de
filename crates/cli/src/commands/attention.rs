//! `emberlm attention`: plots or summarizes the attention weights of each head.

mod args;
pub mod weights;

pub use args::AttentionArgs;

use emberlm_tokenizer::Tokenizer;
use serde::Serialize;

use crate::error::CliError;
use crate::head_habits::{AttentionPattern, HeadHabits};
use crate::output::{Align, Table, print, print_json};
use crate::plot::heat_map::Reach;
use crate::plot::{Format, HeatMap, Page, PictureFile, heat_map, id_label};
use weights::{Attended, Subject, Weights};

/// Computes the attention weights, then plots or summarizes them.
pub fn run(args: AttentionArgs) -> Result<(), CliError> {
    let backend = args.backend.choose()?;
    let subject = Subject::open(&args)?;
    let pattern = subject.pattern();
    let (layers, heads) = subject.sizes();
    let choice = Choice {
        layers: subject.with_weights(chosen("layer", args.layer, layers)?)?,
        heads: chosen("head", args.head, heads)?,
    };
    let check = |queries: usize, keys: usize| {
        if pattern != AttentionPattern::Cross && keys == 1 {
            return Err(
                CliError::new("a single token attends only to itself").hint("pass more tokens")
            );
        }
        match &args.out {
            Some(file) => check_size(file, &choice, (queries, keys), reach(pattern)),
            None => Ok(()),
        }
    };
    let attended = backend.run(Weights {
        subject: &subject,
        layers: &choice.layers,
        heads: &choice.heads,
        check: &check,
    })??;
    let summary = Summary::new(&choice, &attended, pattern);
    if let Some(file) = &args.out {
        let tokenizer = subject.tokenizer.as_ref();
        let picture = HeatMap {
            title: format!("{} of {}", subject.name(), args.model.display()),
            layers: &choice.layers,
            heads: &choice.heads,
            queries: &labels(&attended.queries, tokenizer),
            keys: &labels(&attended.keys, tokenizer),
            reach: reach(pattern),
            weights: &|layer, head| &attended.weights[layer][head],
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

/// The keys that a query may attend to.
fn reach(pattern: AttentionPattern) -> Reach {
    match pattern {
        AttentionPattern::Causal => Reach::Causal,
        AttentionPattern::Full | AttentionPattern::Cross => Reach::Full,
    }
}

/// Maximum number of cells in an SVG picture, which makes about 30 MB of text.
const MOST_SVG_CELLS: usize = 250_000;

/// Rejects pictures that are too large for viewers.
fn check_size(
    file: &PictureFile,
    choice: &Choice,
    (queries, keys): (usize, usize),
    reach: Reach,
) -> Result<(), CliError> {
    let (layers, heads) = (choice.layers.len(), choice.heads.len());
    if !heat_map::fits(layers, heads) {
        let message = format!("{layers} layers of {heads} heads are too many for one picture");
        return Err(CliError::new(message).hint("select some with --layer N or --head N"));
    }
    let cells = heat_map::cells((layers, heads), (queries, keys), reach);
    let tokens = match queries == keys {
        true => format!("{keys} tokens"),
        false => format!("{queries} by {keys} tokens"),
    };
    if file.format != Format::Png && cells > MOST_SVG_CELLS {
        let message = format!(
            "a picture as SVG has at most {MOST_SVG_CELLS} cells; {layers} layers of {heads} heads and {tokens} have {cells}"
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

fn labels(tokens: &[u32], tokenizer: Option<&Tokenizer>) -> Vec<String> {
    tokens.iter().map(|&id| id_label(id, tokenizer)).collect()
}

/// The output of `--json`.
#[derive(Serialize)]
struct Summary {
    /// The tokens that are attended to.
    tokens: Vec<u32>,
    /// The tokens that attend, if they are others.
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<Vec<u32>>,
    heads: Vec<Head>,
}

#[derive(Serialize)]
struct Head {
    layer: usize,
    head: usize,
    #[serde(flatten)]
    habits: HeadHabits,
}

impl Summary {
    fn new(choice: &Choice, attended: &Attended, pattern: AttentionPattern) -> Self {
        let keys = attended.keys.len();
        let mut heads = Vec::new();
        for (&layer, weights) in choice.layers.iter().zip(&attended.weights) {
            for (&head, weights) in choice.heads.iter().zip(weights) {
                heads.push(Head {
                    layer,
                    head,
                    habits: HeadHabits::of(weights, keys, pattern),
                });
            }
        }
        let crosses = pattern == AttentionPattern::Cross;
        Self {
            tokens: attended.keys.clone(),
            target: crosses.then(|| attended.queries.clone()),
            heads,
        }
    }
}

/// The table's column headings.
const HEADINGS: [&str; 6] = ["layer", "head", "entropy", "distance", "previous", "first"];

impl Head {
    fn cells(&self) -> Vec<String> {
        let habits = &self.habits;
        let optional = |value: Option<f64>, decimals: usize| {
            value.map_or("-".to_owned(), |value| format!("{value:.decimals$}"))
        };
        vec![
            self.layer.to_string(),
            self.head.to_string(),
            format!("{:.3}", habits.entropy),
            optional(habits.distance, 2),
            optional(habits.previous, 3),
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
