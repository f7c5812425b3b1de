//! `emberlm scale fit`: fits the laws of a study, and prints, draws and reports them.

use clap::{Args, ValueHint};
use serde::Serialize;

use super::laws::{Interval, Laws, Minimum, Parametric, Point, PowerLaw};
use super::picture;
use super::source::{Source, SourceArgs};
use crate::commands::report::{Block, Document, ReportFile};
use crate::error::CliError;
use crate::examples;
use crate::output::{Align, Table, print, print_json};
use crate::plot::{Page, PictureFile, short, svg};

/// Arguments of `scale fit`.
#[derive(Debug, Args)]
#[command(after_help = examples::SCALE)]
pub struct FitArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub source: SourceArgs,
    /// Write the losses of each budget with the fits as a picture
    #[arg(long, value_name = PictureFile::VALUE_NAME, value_parser = PictureFile::parse, value_hint = ValueHint::FilePath)]
    pub plot: Option<PictureFile>,
    /// Write a report: a page with pictures, or Markdown without them
    #[arg(long, value_name = ReportFile::VALUE_NAME, value_parser = ReportFile::parse, value_hint = ValueHint::FilePath)]
    pub out: Option<ReportFile>,
    /// Print {"runs", "floor", "minima", "optimal", "parametric"}
    #[arg(long)]
    pub json: bool,
}

/// A value with its 95% interval.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Estimated {
    pub value: f64,
    pub interval: Option<Interval>,
}

/// The fits of a study.
#[derive(Serialize)]
struct Output<'a> {
    runs: &'a [Point],
    /// The known irreducible loss of the data.
    floor: Option<f64>,
    minima: &'a [Minimum],
    /// The exponents and coefficients of the power laws.
    optimal: Option<OptimalOutput>,
    parametric: Option<ParametricOutput>,
}

#[derive(Serialize)]
struct OptimalOutput {
    parameters: PowerLawOutput,
    tokens: PowerLawOutput,
}

#[derive(Serialize)]
struct PowerLawOutput {
    coefficient: f64,
    exponent: Estimated,
}

#[derive(Serialize)]
struct ParametricOutput {
    irreducible: Estimated,
    a: Estimated,
    b: Estimated,
    alpha: Estimated,
    beta: Estimated,
    /// The mean Huber loss of the residuals of the logarithms.
    objective: f64,
    /// The mean of the residuals' absolute values, as parts of the losses.
    error: f64,
}

/// Fits the laws.
///
/// # Errors
/// Returns an error if the runs cannot be read, no law can be fitted, or a file cannot be written.
pub fn run(args: &FitArgs) -> Result<(), CliError> {
    let source = args.source.read()?;
    let laws = args.source.fit(&source.points)?;
    let output = Output::new(&source, &laws);
    let document = document(args, &source, &laws, &output)?;
    if let Some(file) = &args.plot {
        let picture = picture::loss_by_size(&source.points, &laws)?;
        let page = Page {
            title: &document.title,
            headings: &MINIMA,
            rows: &minima(&laws),
        };
        file.write(&picture, &page)?;
    }
    if let Some(file) = &args.out {
        file.write(&document)?;
    }
    match args.json {
        true => print_json(&output),
        false => print(&text(&document)),
    }
}

impl<'a> Output<'a> {
    fn new(source: &'a Source, laws: &'a Laws) -> Self {
        let optimal = laws.optimal.as_ref().map(|optimal| {
            let law = |law: PowerLaw, interval| PowerLawOutput {
                coefficient: law.coefficient,
                exponent: Estimated {
                    value: law.exponent,
                    interval,
                },
            };
            OptimalOutput {
                parameters: law(
                    optimal.parameters,
                    laws.optimal_interval(|one| one.parameters.exponent),
                ),
                tokens: law(
                    optimal.tokens,
                    laws.optimal_interval(|one| one.tokens.exponent),
                ),
            }
        });
        let parametric = laws.parametric.as_ref().ok().map(|law| {
            let estimated = |value: fn(&Parametric) -> f64| Estimated {
                value: value(law),
                interval: laws.parametric_interval(value),
            };
            let points = &source.points;
            let errors = points
                .iter()
                .map(|point| (law.loss(point.parameters, point.tokens) / point.loss - 1.0).abs());
            ParametricOutput {
                irreducible: estimated(|law| law.irreducible),
                a: estimated(|law| law.a),
                b: estimated(|law| law.b),
                alpha: estimated(|law| law.alpha),
                beta: estimated(|law| law.beta),
                objective: law.objective(points),
                error: errors.sum::<f64>() / points.len() as f64,
            }
        });
        Self {
            runs: &source.points,
            floor: source.floor,
            minima: &laws.minima,
            optimal,
            parametric,
        }
    }
}

/// The headings of the table of minima.
const MINIMA: [&str; 7] = [
    "FLOPs",
    "sizes",
    "parameters N*",
    "tokens D*",
    "D* / N*",
    "loss",
    "minimum",
];

fn minima(laws: &Laws) -> Vec<Vec<String>> {
    let row = |minimum: &Minimum| {
        let optimum = minimum.optimum;
        let shown = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        vec![
            format!("{:.2e}", minimum.flops),
            minimum.sizes.to_string(),
            shown(optimum.map(|at| short(at.parameters))),
            shown(optimum.map(|at| short(at.tokens))),
            shown(optimum.map(|at| format!("{:.1}", at.tokens / at.parameters))),
            shown(optimum.map(|at| format!("{:.4}", at.loss))),
            minimum.kind.name().to_owned(),
        ]
    };
    laws.minima.iter().map(row).collect()
}

/// An interval in brackets.
pub fn bracketed(interval: Option<Interval>, shown: impl Fn(f64) -> String) -> String {
    interval.map_or_else(String::new, |Interval { low, high }| {
        format!(" [{}, {}]", shown(low), shown(high))
    })
}

fn document(
    args: &FitArgs,
    source: &Source,
    laws: &Laws,
    output: &Output,
) -> Result<Document, CliError> {
    let mut blocks = vec![
        Block::Heading("Minima of the budgets".to_owned()),
        Block::Table {
            headings: MINIMA.map(str::to_owned).into(),
            rows: minima(laws),
        },
    ];
    let drawn = args.out.is_some();
    if drawn {
        blocks.push(Block::Picture(svg(&picture::loss_by_size(
            &source.points,
            laws,
        )?)?));
    }
    blocks.push(Block::Heading("Power laws through the minima".to_owned()));
    blocks.push(match &output.optimal {
        Some(optimal) => {
            let law = |law: &PowerLawOutput| {
                let interval = bracketed(law.exponent.interval, |value| format!("{value:.3}"));
                format!(
                    "{:.4e} · C^{:.3}{interval}",
                    law.coefficient, law.exponent.value
                )
            };
            Block::Facts(vec![
                ("N*(C)".to_owned(), law(&optimal.parameters)),
                ("D*(C)".to_owned(), law(&optimal.tokens)),
            ])
        }
        None => Block::Text(
            "fewer than two budgets have a minimum inside their sizes: there are no power laws"
                .to_owned(),
        ),
    });
    if drawn && laws.optimal.is_some() {
        blocks.push(Block::Picture(svg(&picture::optimal(laws)?)?));
    }
    blocks.push(Block::Heading(
        "Parametric law E + A / N^α + B / D^β".to_owned(),
    ));
    blocks.push(match (&output.parametric, &laws.parametric) {
        (Some(law), _) => Block::Facts(law.facts(args.source.irreducible, source.floor)),
        (None, Err(error)) => Block::Text(error.to_string()),
        (None, Ok(_)) => Block::Text(String::new()),
    });
    Ok(Document {
        title: format!("Scaling laws of {} runs", source.points.len()),
        blocks,
    })
}

impl ParametricOutput {
    fn facts(&self, fixed: Option<f64>, floor: Option<f64>) -> Vec<(String, String)> {
        let plain = |value: f64| format!("{value:.4}");
        let large = |value: f64| match value {
            0.01..1e5 => format!("{value:.2}"),
            value => format!("{value:.3e}"),
        };
        let fact = |name: &str, estimated: Estimated, shown: &dyn Fn(f64) -> String| {
            let interval = bracketed(estimated.interval, shown);
            (
                name.to_owned(),
                format!("{}{interval}", shown(estimated.value)),
            )
        };
        let mut facts = vec![
            match fixed {
                Some(value) => ("E".to_owned(), format!("{} (fixed)", plain(value))),
                None => fact("E", self.irreducible, &plain),
            },
            fact("A", self.a, &large),
            fact("B", self.b, &large),
            fact("α", self.alpha, &plain),
            fact("β", self.beta, &plain),
            (
                "mean error".to_owned(),
                format!("{:.2}% of the loss", 100.0 * self.error),
            ),
        ];
        if let Some(floor) = floor {
            let off = 100.0 * (self.irreducible.value / floor - 1.0);
            let difference = match fixed {
                None => format!("; the free fit is off by {off:+.1}%"),
                Some(_) => String::new(),
            };
            facts.push((
                "known entropy".to_owned(),
                format!("{}{difference}", plain(floor)),
            ));
        }
        facts
    }
}

/// The document as text, without pictures.
fn text(document: &Document) -> String {
    let mut text = format!("{}\n", document.title);
    for block in &document.blocks {
        text += &match block {
            Block::Heading(heading) => format!("\n{heading}\n"),
            Block::Facts(facts) => {
                let mut table = Table::new([Align::Left, Align::Left]);
                for (name, value) in facts {
                    table.row([name, value]);
                }
                table.render()
            }
            Block::Table { headings, rows } => {
                let mut table = Table::new(vec![Align::Right; headings.len()]);
                table.row(headings);
                for row in rows {
                    table.row(row);
                }
                table.render()
            }
            Block::Text(text) => format!("  {text}\n"),
            Block::Picture(_) => String::new(),
        };
    }
    text
}
