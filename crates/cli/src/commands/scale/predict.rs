//! `emberlm scale predict`: the model, the tokens and the loss of a budget, and the command that trains it.

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

use super::base::Base;
use super::fit::{Estimated, bracketed};
use super::laws::{Laws, Point, budgets};
use super::sizes::nearest;
use super::source::{SourceArgs, point};
use super::{INTERVAL, STUDY_FILE};
use crate::commands::sweep::{self, SweepFile};
use crate::error::CliError;
use crate::examples;
use crate::output::{Align, Table, print, print_json};
use crate::plot::short;
use crate::run_history::History;
use crate::shell::shell_word;
use crate::values;

/// Arguments of `scale predict`.
#[derive(Debug, Args)]
#[command(after_help = examples::SCALE)]
pub struct PredictArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub source: SourceArgs,
    /// The budget in floating-point operations, such as 1e18
    #[arg(long, value_name = "C", value_parser = values::positive)]
    pub flops: f64,
    /// Compare the loss of a finished run with its prediction
    #[arg(long, value_name = "RUN")]
    pub run: Option<PathBuf>,
    /// Print {"flops", "isoflop", "parametric", "configuration", "command", "run"}
    #[arg(long)]
    pub json: bool,
}

/// The command's output.
#[derive(Serialize)]
struct Prediction {
    flops: f64,
    /// By the power laws through the minima.
    isoflop: Option<Optimum>,
    /// By the parametric law.
    parametric: Option<Optimum>,
    configuration: Option<Expected>,
    /// The command that trains the configuration.
    command: Option<String>,
    /// The run to compare with.
    run: Option<Comparison>,
}

/// The best model of the budget.
#[derive(Serialize)]
struct Optimum {
    parameters: Estimated,
    tokens: Estimated,
    /// By the parametric law.
    loss: Option<Estimated>,
}

/// A run with its predicted loss.
#[derive(Serialize)]
struct Expected {
    parameters: f64,
    tokens: f64,
    loss: Option<Estimated>,
}

#[derive(Serialize)]
struct Comparison {
    #[serde(flatten)]
    predicted: Expected,
    measured: f64,
    /// `predicted / measured - 1`.
    error: Option<f64>,
}

/// Predicts the budget.
///
/// # Errors
/// Returns an error if the runs cannot be read, or no law can be fitted.
pub fn run(args: &PredictArgs) -> Result<(), CliError> {
    let source = args.source.read()?;
    let laws = args.source.fit(&source.points)?;
    let mut prediction = Prediction {
        flops: args.flops,
        isoflop: isoflop(&laws, args.flops),
        parametric: parametric(&laws, args.flops, per_pair(&source.points)),
        configuration: None,
        command: None,
        run: None,
    };
    let best = prediction
        .isoflop
        .as_ref()
        .or(prediction.parametric.as_ref());
    let parameters = best.map(|best| best.parameters.value);
    let parameters = parameters.filter(|best| is_near(*best, &source.points));
    let study = args.source.dir.as_ref().map(|dir| dir.join(STUDY_FILE));
    let study = study.filter(|path| path.exists());
    if let Some((path, parameters)) = study.zip(parameters) {
        let mut file = SweepFile::read(&path)?;
        let base = Base::of(&file)?;
        let size = nearest(&base.model, parameters)?;
        let steps = base.steps(args.flops / size.flops_per_token);
        let tokens = steps as f64 * base.step_tokens;
        // The run evaluates as often as its configuration says.
        file.common.retain(|(key, _)| key != INTERVAL);
        let settings = base.settings(&size, steps);
        // Beside the study, whose fits include all runs in its folder.
        let study = path.parent().unwrap_or(Path::new(""));
        let out = format!("{}-{:e}", study.display(), args.flops);
        let words = sweep::arguments(&file, &settings, Path::new(&out), &[]);
        let words = words.iter().map(|word| shell_word(&word.to_string_lossy()));
        // A sweep prints plainly, since it captures the output.
        let words = words.take_while(|word| word != "--renderer");
        let words: Vec<String> = std::iter::once("emberlm".to_owned()).chain(words).collect();
        prediction.configuration = Some(Expected::new(&laws, size.parameters, tokens));
        prediction.command = Some(words.join(" "));
    }
    if let Some(run) = &args.run {
        let made = point(run, &History::read(run)?)?;
        let predicted = Expected::new(&laws, made.parameters, made.tokens);
        let error = predicted.loss.map(|loss| loss.value / made.loss - 1.0);
        prediction.run = Some(Comparison {
            predicted,
            measured: made.loss,
            error,
        });
    }
    match args.json {
        true => print_json(&prediction),
        false => print(&prediction.text()),
    }
}

/// False for a model so far from the fitted sizes that its configuration is of no use.
fn is_near(parameters: f64, points: &[Point]) -> bool {
    const FACTOR: f64 = 1000.0;
    let sizes = || points.iter().map(|point| point.parameters);
    sizes().any(|size| parameters >= size / FACTOR)
        && sizes().any(|size| parameters <= size * FACTOR)
}

/// `C / (N D)` at the largest budget: near 6, and larger with attention over long sequences.
fn per_pair(points: &[Point]) -> f64 {
    let budgets = budgets(points);
    let largest = budgets.last().map(Vec::as_slice).unwrap_or_default();
    let logs = largest
        .iter()
        .map(|p| (p.flops / (p.parameters * p.tokens)).ln());
    (logs.sum::<f64>() / largest.len().max(1) as f64).exp()
}

fn isoflop(laws: &Laws, flops: f64) -> Option<Optimum> {
    let optimal = laws.optimal?;
    let (parameters, tokens) = (optimal.parameters.at(flops), optimal.tokens.at(flops));
    Some(Optimum {
        parameters: Estimated {
            value: parameters,
            interval: laws.optimal_interval(|laws| laws.parameters.at(flops)),
        },
        tokens: Estimated {
            value: tokens,
            interval: laws.optimal_interval(|laws| laws.tokens.at(flops)),
        },
        loss: loss(laws, parameters, tokens),
    })
}

fn parametric(laws: &Laws, flops: f64, per_pair: f64) -> Option<Optimum> {
    let law = laws.parametric.as_ref().ok()?;
    let (parameters, tokens) = law.optimum(flops, per_pair);
    Some(Optimum {
        parameters: Estimated {
            value: parameters,
            interval: laws.parametric_interval(|law| law.optimum(flops, per_pair).0),
        },
        tokens: Estimated {
            value: tokens,
            interval: laws.parametric_interval(|law| law.optimum(flops, per_pair).1),
        },
        loss: Some(Estimated {
            value: law.loss(parameters, tokens),
            interval: laws.parametric_interval(|law| {
                let (parameters, tokens) = law.optimum(flops, per_pair);
                law.loss(parameters, tokens)
            }),
        }),
    })
}

fn loss(laws: &Laws, parameters: f64, tokens: f64) -> Option<Estimated> {
    let law = laws.parametric.as_ref().ok()?;
    Some(Estimated {
        value: law.loss(parameters, tokens),
        interval: laws.parametric_interval(|law| law.loss(parameters, tokens)),
    })
}

impl Expected {
    fn new(laws: &Laws, parameters: f64, tokens: f64) -> Self {
        Self {
            parameters,
            tokens,
            loss: loss(laws, parameters, tokens),
        }
    }
}

impl Prediction {
    fn text(&self) -> String {
        let mut table = Table::new([Align::Left; 4]);
        table.row(["", "parameters", "tokens", "loss"]);
        let estimated = |estimated: Estimated, shown: fn(f64) -> String| {
            format!(
                "{}{}",
                shown(estimated.value),
                bracketed(estimated.interval, shown)
            )
        };
        let nats = |loss: f64| format!("{loss:.4}");
        let shown =
            |loss: Option<Estimated>| loss.map_or_else(String::new, |loss| estimated(loss, nats));
        for (name, best) in [
            ("minima of budgets", &self.isoflop),
            ("parametric law", &self.parametric),
        ] {
            let Some(best) = best else { continue };
            let [parameters, tokens] =
                [best.parameters, best.tokens].map(|one| estimated(one, short));
            table.row([name.to_owned(), parameters, tokens, shown(best.loss)]);
        }
        let rows = [
            ("nearest model", self.configuration.as_ref()),
            (
                "the run, predicted",
                self.run.as_ref().map(|run| &run.predicted),
            ),
        ];
        for (name, expected) in rows {
            let Some(expected) = expected else { continue };
            let [parameters, tokens] = [expected.parameters, expected.tokens].map(short);
            table.row([name.to_owned(), parameters, tokens, shown(expected.loss)]);
        }
        if let Some(run) = &self.run {
            let error = run.error.map_or_else(String::new, |error| {
                format!(" (the prediction is off by {:+.2}%)", 100.0 * error)
            });
            let measured = format!("{:.4}{error}", run.measured);
            table.row(["the run, measured", "", "", &measured]);
        }
        let mut text = format!("budget of {:.2e} FLOPs\n{}", self.flops, table.render());
        if let Some(command) = &self.command {
            text += &format!("train it:\n  {command}\n");
        }
        text
    }
}
