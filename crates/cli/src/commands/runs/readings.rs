//! The last and best values of a run's metrics.

use emberlm_trainer::metrics::{Direction, Metric, built_in};
use serde::Serialize;

use crate::run_history::{History, Series};

/// Readings of a metric in one phase.
#[derive(Debug, Serialize)]
pub struct Readings {
    pub name: String,
    pub phase: &'static str,
    /// The last reading of each run.
    pub last: Vec<Option<f64>>,
    /// The best reading of each run by the metric's direction, if it has one.
    pub best: Vec<Option<f64>>,
    #[serde(skip)]
    pub metric: Metric,
}

/// Readings of a metric, as pairs of step and value.
type Points = [(usize, f64)];
/// Selects the metrics of one phase of a run.
type Phase = fn(&History) -> &Series;

/// Readings of each metric that any of the runs has. Built-in metrics are listed first.
pub fn readings(histories: &[History]) -> Vec<Readings> {
    let mut metrics: Vec<&Metric> = built_in().iter().collect();
    for metric in histories.iter().flat_map(|history| &history.metrics) {
        if !metrics.iter().any(|known| known.name == metric.name) {
            metrics.push(metric);
        }
    }
    let series: [(&str, Phase); 2] = [
        ("training", |history| &history.trained),
        ("validation", |history| &history.validated),
    ];
    let of = |metric: &Metric, phase, series: Phase| {
        let each = |pick: &dyn Fn(&Points) -> Option<f64>| {
            let one = |history| pick(series(history).get(metric.name.as_ref())?);
            histories.iter().map(one).collect()
        };
        Readings {
            name: metric.name.clone().into_owned(),
            phase,
            last: each(&|points| points.last().map(|point| point.1)),
            best: each(&|points| best(metric.direction, points)),
            metric: metric.clone(),
        }
    };
    let all = metrics.into_iter().flat_map(|metric| {
        series
            .iter()
            .map(move |&(phase, series)| (metric, phase, series))
    });
    let all = all.map(|(metric, phase, series)| of(metric, phase, series));
    all.filter(|readings| readings.last.iter().any(Option::is_some))
        .collect()
}

fn best(direction: Direction, points: &Points) -> Option<f64> {
    let values = points.iter().map(|point| point.1);
    let values = values.filter(|value| !value.is_nan());
    match direction {
        Direction::LowerIsBetter => values.reduce(f64::min),
        Direction::HigherIsBetter => values.reduce(f64::max),
        Direction::Neutral => None,
    }
}

impl Readings {
    /// The name of the metric with its phase.
    pub fn title(&self) -> String {
        format!("{} {}", self.phase, self.metric.title.to_lowercase())
    }

    /// A value as it is displayed.
    pub fn shown(&self, value: Option<f64>) -> String {
        value.map_or_else(|| "-".to_owned(), |value| self.metric.display(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_reading_follows_the_direction() {
        let points = [(1, 2.0), (2, f64::NAN), (3, 1.0), (4, 3.0)];
        assert_eq!(best(Direction::LowerIsBetter, &points), Some(1.0));
        assert_eq!(best(Direction::HigherIsBetter, &points), Some(3.0));
        assert_eq!(best(Direction::Neutral, &points), None);
    }
}
