//! The newest values of the metrics that a display shows.

use super::{Metric, MetricValues, Phase, built_in, find};

/// The displayed metrics of one phase, with their newest values.
pub(crate) struct ShownMetrics {
    /// The metrics that are not built in.
    added: Vec<Metric>,
    phase: Phase,
    values: MetricValues,
}

impl ShownMetrics {
    /// No values yet. `added` are the metrics of the objective and of hooks.
    pub(crate) fn new(added: &[Metric], phase: Phase) -> Self {
        Self {
            added: added.to_vec(),
            phase,
            values: MetricValues::default(),
        }
    }

    /// Replaces the values of the metrics in `readings`.
    pub(crate) fn update(&mut self, readings: &MetricValues) {
        self.values.extend(readings.clone());
    }

    /// The value of a built-in metric as text, if it has one.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        Some(find(name)?.display(self.values.get(name)?))
    }

    /// The tab and the value, as text, of each metric that has a tab and is not one of `named`; `-` without a value.
    /// Ordered by tab.
    pub(crate) fn others(&self, named: &[&str]) -> Vec<(&str, String)> {
        let all = tabs(built_in().iter().chain(&self.added), self.phase);
        let others = all.filter(|(_, metric)| !named.contains(&metric.name.as_ref()));
        let shown = others.map(|(tab, metric)| {
            let value = self.values.get(&metric.name);
            (tab, value.map_or("-".to_owned(), |x| metric.display(x)))
        });
        let mut shown: Vec<_> = shown.collect();
        shown.sort();
        shown
    }

    /// The tab of each metric that has a value, with the value as it is displayed.
    pub(crate) fn points(&self) -> Vec<(String, f64)> {
        let all = tabs(built_in().iter().chain(&self.added), self.phase);
        let points = all.filter_map(|(tab, metric)| {
            let value = self.values.get(&metric.name)?;
            Some((tab.to_owned(), metric.scale * value))
        });
        points.collect()
    }
}

/// The metrics of a phase that have a tab in the dashboard.
fn tabs<'a>(
    metrics: impl IntoIterator<Item = &'a Metric>,
    phase: Phase,
) -> impl Iterator<Item = (&'a str, &'a Metric)> {
    let of_phase = metrics.into_iter();
    let of_phase = of_phase.filter(move |metric| metric.phase.includes(phase));
    of_phase.filter_map(|metric| Some((metric.tab.as_deref()?, metric)))
}
