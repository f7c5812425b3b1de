//! The figures of a step, and the metrics that Burn's renderers show of them.

use std::sync::Arc;

use burn::train::ItemLazy;
use burn::train::metric::{
    Adaptor, Metric, MetricAttributes, MetricMetadata, MetricName, Numeric, NumericAttributes,
    NumericEntry, SerializedEntry,
};

/// What there is to say about a logged step, or about an evaluation (the loss alone).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// Mean loss in nats per token.
    pub loss: f64,
    /// Norm of all gradients together, before clipping.
    pub gradient_norm: f64,
    /// The rate of the update.
    pub learning_rate: f64,
    /// Speed since the line before.
    pub tokens_per_second: f64,
}

impl Figures {
    pub fn of_loss(loss: f64) -> Self {
        Self {
            loss,
            gradient_norm: 0.0,
            learning_rate: 0.0,
            tokens_per_second: 0.0,
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
        *self
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

/// What each metric is called, in the dashboard and the plain lines.
pub const LOSS: &str = "Loss";
pub const PERPLEXITY: &str = "Perplexity";
pub const LEARNING_RATE: &str = "Learning rate";
pub const GRADIENT_NORM: &str = "Gradient norm";
pub const TOKENS_PER_SECOND: &str = "Tokens/s";

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
