//! Plots of a study.

use emberlm_trainer::metrics::{Aggregation, Direction, Metric};

use super::laws::{Laws, Minimum, Point, budgets};
use crate::error::CliError;
use crate::plot::{AxisOptions, Labels, Mean, Point as Dot, Position, Quantity, Scatter, Series};

/// The loss by model size: a colour for each budget, and the fitted parabolas.
///
/// # Errors
/// Returns an error if there is nothing to draw.
pub fn loss_by_size(points: &[Point], laws: &Laws) -> Result<Scatter, CliError> {
    let budgets = budgets(points).into_iter().zip(&laws.minima);
    let mut series: Vec<Series> = budgets
        .map(|(runs, minimum)| Series {
            name: format!("{:.2e} FLOPs", minimum.flops),
            points: runs
                .iter()
                .map(|run| dot(run.parameters, run.loss))
                .collect(),
            is_mean: false,
            line: parabola(minimum),
        })
        .collect();
    let minima = laws.minima.iter().filter_map(|minimum| minimum.optimum);
    let minima: Vec<Dot> = minima.map(|at| dot(at.parameters, at.loss)).collect();
    if !minima.is_empty() {
        series.push(Series {
            name: "minima".to_owned(),
            points: minima,
            is_mean: false,
            line: Vec::new(),
        });
    }
    let labels = Labels {
        title: "Loss by model size at equal operations".to_owned(),
        names: "budget".to_owned(),
        along: "parameters".to_owned(),
    };
    let metric = Metric::new("loss", "Loss").direction(Direction::LowerIsBetter);
    scatter(&series, labels, metric, false)
}

/// The best number of parameters by budget, and its power law.
///
/// # Errors
/// Returns an error if there is nothing to draw.
pub fn optimal(laws: &Laws) -> Result<Scatter, CliError> {
    let inside = laws
        .minima
        .iter()
        .filter_map(|minimum| Some((minimum.flops, minimum.optimum?)));
    let points: Vec<Dot> = inside
        .map(|(flops, at)| dot(flops, at.parameters))
        .collect();
    let flops: Vec<f64> = laws.minima.iter().map(|minimum| minimum.flops).collect();
    let line = laws.optimal.iter().flat_map(|optimal| {
        flops
            .iter()
            .map(|flops| (*flops, optimal.parameters.at(*flops)))
    });
    let series = [Series {
        name: "minima".to_owned(),
        line: line.collect(),
        points,
        is_mean: false,
    }];
    let labels = Labels {
        title: "Best model size by budget".to_owned(),
        names: String::new(),
        along: "floating-point operations".to_owned(),
    };
    scatter(
        &series,
        labels,
        Metric::new("parameters", "Parameters"),
        true,
    )
}

fn scatter(
    series: &[Series],
    labels: Labels,
    metric: Metric,
    log_y: bool,
) -> Result<Scatter, CliError> {
    let quantity = Quantity::new(metric.aggregation(Aggregation::Last));
    let options = AxisOptions {
        log_x: true,
        log_y,
        full_range: true,
    };
    Scatter::new(series, labels, &[], &quantity, options)
}

fn dot(x: f64, y: f64) -> Dot {
    Dot {
        name: String::new(),
        x: Position::Number(x),
        y: Mean {
            mean: y,
            deviation: 0.0,
        },
        runs: 1,
    }
}

/// The fitted curve of a budget between its smallest and its largest model.
fn parabola(minimum: &Minimum) -> Vec<(f64, f64)> {
    const PARTS: u32 = 40;
    let (low, high) = minimum.range;
    let places = (0..=PARTS).map(|at| low * (high / low).powf(f64::from(at) / f64::from(PARTS)));
    places.filter_map(|n| Some((n, minimum.loss(n)?))).collect()
}
