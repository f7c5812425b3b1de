//! The figures of a step, and the metrics that Burn's renderers show of them.

use std::sync::Arc;

use burn::train::ItemLazy;
use burn::train::metric::{
    Adaptor, Metric, MetricAttributes, MetricMetadata, MetricName, Numeric, NumericAttributes,
    NumericEntry, SerializedEntry,
};

/// What there is to say about a logged step, or about an evaluation (the loss and a sample).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// Mean loss in nats per token.
    pub loss: f64,
    /// Norm of all gradients together, before clipping.
    pub gradient_norm: f64,
    /// The rate of the update.
    pub learning_rate: f64,
    /// Positions computed per second since the line before.
    pub tokens_per_second: f64,
    /// The model's operations per second over those that the machine's matrix product reaches.
    pub utilization: Option<f64>,
    /// Resident memory now.
    pub memory_mib: Option<u64>,
    /// To the last step.
    pub seconds_left: f64,
    /// The newest validation loss.
    pub validation: Option<f64>,
    /// Of an evaluation: each dataset's own loss, where there are several.
    pub datasets: Arc<str>,
    /// What was last said of the run.
    pub note: Arc<str>,
    /// What the model wrote.
    pub sample: Arc<str>,
}

impl Figures {
    pub fn of_loss(loss: f64) -> Self {
        Self {
            loss,
            ..Self::default()
        }
    }
}

impl ItemLazy for Figures {
    type ItemSync = Self;

    fn sync(self) -> Self {
        self
    }
}

impl Adaptor<Figures> for Figures {
    fn adapt(&self) -> Self {
        self.clone()
    }
}

/// One of the figures as a metric.
#[derive(Clone)]
pub struct FigureMetric {
    name: MetricName,
    unit: Option<&'static str>,
    higher_is_better: bool,
    pick: fn(&Figures) -> f64,
    format: fn(f64) -> String,
    value: f64,
    sum: f64,
    count: usize,
}

/// What each metric is called, in the dashboard and the plain lines. The dashboard's tabs are in one row, which must fit
/// into 80 columns.
pub const LOSS: &str = "Loss";
pub const PERPLEXITY: &str = "Perplexity";
pub const LEARNING_RATE: &str = "Rate";
pub const GRADIENT_NORM: &str = "Gradient";
pub const TOKENS_PER_SECOND: &str = "Tokens/s";
pub const TIME_LEFT: &str = "Time left";
pub const DATASETS: &str = "Datasets";
const NOW: &str = "Now";

impl FigureMetric {
    fn new(name: &str, pick: fn(&Figures) -> f64, format: fn(f64) -> String) -> Self {
        Self {
            name: Arc::new(name.to_owned()),
            unit: None,
            higher_is_better: false,
            pick,
            format,
            value: 0.0,
            sum: 0.0,
            count: 0,
        }
    }

    pub fn loss() -> Self {
        Self::new(LOSS, |figures| figures.loss, |x| format!("{x:.4}"))
    }

    /// `exp(loss)`.
    pub fn perplexity() -> Self {
        Self::new(
            PERPLEXITY,
            |figures| figures.loss.exp(),
            |x| format!("{x:.2}"),
        )
    }

    pub fn learning_rate() -> Self {
        Self::new(
            LEARNING_RATE,
            |figures| figures.learning_rate,
            |x| format!("{x:.2e}"),
        )
    }

    pub fn gradient_norm() -> Self {
        Self::new(
            GRADIENT_NORM,
            |figures| figures.gradient_norm,
            |x| format!("{x:.3}"),
        )
    }

    pub fn tokens_per_second() -> Self {
        Self {
            higher_is_better: true,
            unit: Some("tokens/s"),
            ..Self::new(
                TOKENS_PER_SECOND,
                |figures| figures.tokens_per_second,
                |x| format!("{x:.0}"),
            )
        }
    }
}

impl Metric for FigureMetric {
    type Input = Figures;

    fn name(&self) -> MetricName {
        self.name.clone()
    }

    fn attributes(&self) -> MetricAttributes {
        let unit = self.unit.map(str::to_owned);
        let higher_is_better = self.higher_is_better;
        NumericAttributes {
            unit,
            higher_is_better,
        }
        .into()
    }

    fn update(&mut self, figures: &Figures, _metadata: &MetricMetadata) -> SerializedEntry {
        self.value = (self.pick)(figures);
        self.sum += self.value;
        self.count += 1;
        SerializedEntry::new((self.format)(self.value), self.value.to_string())
    }

    fn clear(&mut self) {
        self.sum = 0.0;
        self.count = 0;
    }
}

impl Numeric for FigureMetric {
    fn value(&self) -> NumericEntry {
        NumericEntry::Value(self.value)
    }

    fn running_value(&self) -> NumericEntry {
        NumericEntry::Aggregated {
            aggregated_value: self.sum / self.count.max(1) as f64,
            count: self.count,
        }
    }
}

/// Figures as words.
#[derive(Clone)]
pub struct TextMetric {
    name: MetricName,
    pick: fn(&Figures) -> String,
}

impl TextMetric {
    /// Everything that there is to say of a step, in few lines: the dashboard cuts off what does not fit, and an 80 × 24
    /// terminal has room for six lines of 28 columns.
    pub fn now() -> Self {
        Self::new(NOW, |figures| {
            let mut items = vec![format!("loss {:.4}", figures.loss)];
            items.extend(figures.validation.map(|loss| format!("valid {loss:.4}")));
            items.extend([
                format!("ppl {:.2}", figures.loss.exp()),
                format!("|g| {:.3}", figures.gradient_norm),
                format!("rate {:.1e}", figures.learning_rate),
                format!("{:.0} tok/s", figures.tokens_per_second),
            ]);
            let percent = figures.utilization.map(|part| 100.0 * part);
            items.extend(percent.map(|percent| format!("MFU {percent:.1}%")));
            items.extend(figures.memory_mib.map(|mib| format!("{mib} MiB")));
            items.push(format!("{} left", duration(figures.seconds_left)));
            // The dashboard breaks lines at spaces: not within an item.
            let items = items.iter().map(|item| item.replace(' ', "\u{a0}"));
            let mut items: Vec<String> = items.collect();
            items.extend((!figures.note.is_empty()).then(|| figures.note.to_string()));
            // The newest sample comes last, as much of it as there is room for.
            let words: Vec<&str> = figures.sample.split_whitespace().collect();
            items.extend((!words.is_empty()).then(|| format!("“{}”", words.join(" "))));
            items.join("  ")
        })
    }

    /// Each dataset's own validation loss.
    pub fn datasets() -> Self {
        Self::new(DATASETS, |figures| figures.datasets.to_string())
    }

    /// To the last step.
    pub fn time_left() -> Self {
        Self::new(TIME_LEFT, |figures| duration(figures.seconds_left))
    }

    fn new(name: &str, pick: fn(&Figures) -> String) -> Self {
        let name = Arc::new(name.to_owned());
        Self { name, pick }
    }
}

impl Metric for TextMetric {
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

/// A length of time in its two largest units.
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
    fn times_have_two_units() {
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
