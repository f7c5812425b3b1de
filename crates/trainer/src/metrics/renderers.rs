//! Adapters that show the metrics in Burn's renderers.

use std::sync::Arc;

use burn::train::metric::{
    Metric as BurnMetric, MetricAttributes, MetricMetadata, MetricName, Numeric, NumericAttributes,
    NumericEntry, SerializedEntry,
};

use super::{Accumulator, Direction, Figures, Metric, significant};

/// A metric as one of Burn's numeric metrics.
#[derive(Clone)]
pub(crate) struct FigureMetric {
    metric: Metric,
    name: MetricName,
    /// The newest value.
    value: Option<f64>,
    sum: Accumulator,
    count: usize,
}

/// The names of metrics in the dashboard and the plain lines.
pub(crate) const LOSS: &str = "Loss";
pub(crate) const PERPLEXITY: &str = "Perplexity";
pub(crate) const LEARNING_RATE: &str = "Rate";
pub(crate) const GRADIENT_NORM: &str = "Gradient";
pub(crate) const TOKENS_PER_SECOND: &str = "Tokens/s";
pub(crate) const TIME_LEFT: &str = "Time left";
pub(crate) const DATASETS: &str = "Datasets";
pub(crate) const NOW: &str = "Now";

/// The metrics that have a place in a plain line.
pub(crate) const NAMED: [&str; 8] = [
    LOSS,
    PERPLEXITY,
    LEARNING_RATE,
    GRADIENT_NORM,
    TOKENS_PER_SECOND,
    TIME_LEFT,
    DATASETS,
    NOW,
];

impl FigureMetric {
    /// A metric, if it has a tab in the dashboard.
    pub(crate) fn new(metric: &Metric) -> Option<Self> {
        let tab = metric.tab.clone()?;
        Some(Self {
            name: Arc::new(tab.into_owned()),
            value: None,
            sum: Accumulator::new(metric.aggregation),
            count: 0,
            metric: metric.clone(),
        })
    }
}

impl FigureMetric {
    /// The newest value for display; NaN before the first.
    fn scaled(&self) -> f64 {
        self.value
            .map_or(f64::NAN, |value| self.metric.scale * value)
    }
}

impl BurnMetric for FigureMetric {
    type Input = Figures;

    fn name(&self) -> MetricName {
        self.name.clone()
    }

    fn attributes(&self) -> MetricAttributes {
        let unit = Some(self.metric.unit.clone().into_owned()).filter(|unit| !unit.is_empty());
        let higher_is_better = self.metric.direction == Direction::HigherIsBetter;
        NumericAttributes {
            unit,
            higher_is_better,
        }
        .into()
    }

    fn update(&mut self, figures: &Figures, _metadata: &MetricMetadata) -> SerializedEntry {
        if let Some(value) = figures.readings.get(&self.metric.name) {
            self.value = Some(value);
            self.sum.add(self.metric.scale * value);
            self.count += 1;
        }
        let shown = self
            .value
            .map_or_else(|| "-".to_owned(), |value| self.metric.display(value));
        SerializedEntry::new(shown, self.scaled().to_string())
    }

    fn clear(&mut self) {
        self.sum.take();
        self.count = 0;
    }
}

impl Numeric for FigureMetric {
    fn value(&self) -> NumericEntry {
        NumericEntry::Value(self.scaled())
    }

    fn running_value(&self) -> NumericEntry {
        NumericEntry::Aggregated {
            aggregated_value: self.sum.aggregate().unwrap_or_else(|| self.scaled()),
            count: self.count.max(1),
        }
    }
}

/// Figures as text.
#[derive(Clone)]
pub(crate) struct TextMetric {
    name: MetricName,
    pick: fn(&Figures) -> String,
}

impl TextMetric {
    /// The state of the run in a few lines. The dashboard truncates them, and an 80 × 24 terminal shows six
    /// lines of 28 columns.
    pub(crate) fn now() -> Self {
        Self::new(NOW, |figures| {
            let loss = figures.reading("loss");
            let mut items = vec![format!("loss {loss:.4}")];
            items.extend(figures.validation.map(|loss| format!("valid {loss:.4}")));
            let perplexity = figures.readings.get("perplexity");
            items.extend(perplexity.map(|value| format!("ppl {value:.2}")));
            items.extend([
                format!("|g| {:.3}", figures.reading("gradient_norm")),
                format!("rate {:.1e}", figures.reading("learning_rate")),
                format!("{:.0} tok/s", figures.reading("tokens_per_second")),
            ]);
            let percent = figures.readings.get("utilization").map(|part| 100.0 * part);
            items.extend(percent.map(|percent| format!("{percent:.0}% of matmul")));
            let memory = figures.readings.get("memory_mib");
            items.extend(memory.map(|mib| format!("{mib:.0} MiB")));
            let added = figures.added();
            items.extend(added.map(|(name, value)| format!("{name} {}", significant(value))));
            items.push(format!("{} left", duration(figures.seconds_left)));
            // The dashboard breaks lines at spaces, so an item has none.
            let items = items.iter().map(|item| item.replace(' ', "\u{a0}"));
            let mut items: Vec<String> = items.collect();
            items.extend((!figures.note.is_empty()).then(|| figures.note.to_string()));
            // The newest sample comes last and is cut off.
            let words: Vec<&str> = figures.sample.split_whitespace().collect();
            items.extend((!words.is_empty()).then(|| format!("“{}”", words.join(" "))));
            items.join("  ")
        })
    }

    /// The validation loss on each dataset.
    pub(crate) fn datasets() -> Self {
        Self::new(DATASETS, |figures| figures.datasets.to_string())
    }

    /// The remaining time.
    pub(crate) fn time_left() -> Self {
        Self::new(TIME_LEFT, |figures| duration(figures.seconds_left))
    }

    fn new(name: &str, pick: fn(&Figures) -> String) -> Self {
        let name = Arc::new(name.to_owned());
        Self { name, pick }
    }
}

impl BurnMetric for TextMetric {
    type Input = Figures;

    fn name(&self) -> MetricName {
        self.name.clone()
    }

    fn update(&mut self, figures: &Figures, _metadata: &MetricMetadata) -> SerializedEntry {
        let text = (self.pick)(figures);
        SerializedEntry::new(text.clone(), text)
    }

    fn clear(&mut self) {}
}

/// A duration in its two largest units.
fn duration(seconds: f64) -> String {
    let whole = seconds.max(0.0).round() as u64;
    let (minutes, seconds) = (whole / 60, whole % 60);
    let (hours, minutes) = (minutes / 60, minutes % 60);
    let (days, hours) = (hours / 24, hours % 24);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {seconds:02} s"),
        (0, _, _) => format!("{hours} h {minutes:02} min"),
        _ => format!("{days} d {hours:02} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::duration;

    #[test]
    fn durations_have_two_units() {
        let texts = [0.4, 59.4, 61.0, 3_600.0, 86_399.0, 200_000.0].map(duration);
        let expected = [
            "0 s",
            "59 s",
            "1 min 01 s",
            "1 h 00 min",
            "23 h 59 min",
            "2 d 07 h",
        ];
        assert_eq!(texts, expected);
    }
}
