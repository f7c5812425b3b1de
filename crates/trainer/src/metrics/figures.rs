//! The figures of a log line for Burn's renderers.

use std::sync::Arc;

use burn::train::ItemLazy;
use burn::train::metric::Adaptor;

use super::{MetricValues, built_in};
use crate::events::Event;

/// The figures of a logged step or of an evaluation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// The values of all metrics.
    pub readings: MetricValues,
    /// The predicted seconds to the last step.
    pub seconds_left: f64,
    /// The newest validation loss.
    pub validation: Option<f64>,
    /// In an evaluation, the loss on each dataset if there are several.
    pub datasets: Arc<str>,
    /// The newest note about the run.
    pub note: Arc<str>,
    /// The newest sample.
    pub sample: Arc<str>,
}

impl Figures {
    /// The figures from the events of one step.
    pub(crate) fn of<'a>(events: impl IntoIterator<Item = &'a Event>) -> Self {
        let mut readings = MetricValues::default();
        for event in events {
            let found = event.readings().map(|(_, found)| found);
            for (name, value) in found.into_iter().flatten() {
                readings.insert(name, value);
            }
        }
        Self {
            readings,
            ..Self::default()
        }
    }

    /// A loss and its perplexity.
    pub(crate) fn of_loss(loss: f64) -> Self {
        let mut figures = Self::default();
        figures.readings.insert("loss", loss);
        figures.readings.insert("perplexity", loss.exp());
        figures
    }

    /// The value of a metric that every step has.
    pub(crate) fn reading(&self, name: &str) -> f64 {
        self.readings.get(name).unwrap_or_default()
    }

    /// The values of metrics that are not built in.
    pub(crate) fn added(&self) -> impl Iterator<Item = (&str, f64)> {
        let is_built_in = |name: &str| built_in().iter().any(|metric| metric.name == name);
        self.readings
            .iter()
            .filter(move |(name, _)| !is_built_in(name))
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
