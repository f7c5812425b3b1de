//! Values of metrics.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Aggregation;

/// Values by metric name. JSON has no infinity and no NaN: they are written as null and read as NaN.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct MetricValues(BTreeMap<String, Option<f64>>);

impl MetricValues {
    /// Returns true if there is no value.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sets the value of a metric.
    pub fn insert(&mut self, name: &str, value: f64) {
        self.0.insert(name.to_owned(), Some(value));
    }

    /// The value of a metric.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.0.get(name).map(|value| value.unwrap_or(f64::NAN))
    }

    /// All values, ordered by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        let number = |value: &Option<f64>| value.unwrap_or(f64::NAN);
        self.0
            .iter()
            .map(move |(name, value)| (name.as_str(), number(value)))
    }

    /// Adds the values of others.
    pub fn extend(&mut self, others: Self) {
        self.0.extend(others.0);
    }
}

impl PartialEq for MetricValues {
    /// Compares values by their bits: NaN equals NaN.
    fn eq(&self, other: &Self) -> bool {
        let bits = |values: &Self| -> Vec<(String, u64)> {
            let bits = values
                .iter()
                .map(|(name, x)| (name.to_owned(), x.to_bits()));
            bits.collect()
        };
        bits(self) == bits(other)
    }
}

/// The running aggregate of a metric.
#[derive(Clone, Copy, Debug)]
pub struct Accumulator {
    aggregation: Aggregation,
    value: f64,
    count: usize,
}

impl Accumulator {
    /// An aggregate without values.
    pub fn new(aggregation: Aggregation) -> Self {
        Self {
            aggregation,
            value: 0.0,
            count: 0,
        }
    }

    /// Adds a value.
    pub fn add(&mut self, reading: f64) {
        self.value = match self.aggregation {
            _ if self.count == 0 => match self.aggregation {
                Aggregation::GeometricMean => reading.ln(),
                _ => reading,
            },
            Aggregation::Mean | Aggregation::Sum => self.value + reading,
            Aggregation::GeometricMean => self.value + reading.ln(),
            Aggregation::Last => reading,
            Aggregation::Min => self.value.min(reading),
            Aggregation::Max => self.value.max(reading),
        };
        self.count += 1;
    }

    /// The aggregate; `None` without a value.
    pub fn aggregate(&self) -> Option<f64> {
        let count = self.count as f64;
        (self.count > 0).then(|| match self.aggregation {
            Aggregation::Mean => self.value / count,
            Aggregation::GeometricMean => (self.value / count).exp(),
            _ => self.value,
        })
    }

    /// Takes the aggregate and resets it.
    pub fn take(&mut self) -> Option<f64> {
        let aggregate = self.aggregate();
        *self = Self::new(self.aggregation);
        aggregate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_are_aggregated_as_declared() {
        let of = |aggregation| {
            let mut all = Accumulator::new(aggregation);
            assert_eq!(all.aggregate(), None);
            [4.0, 1.0, 2.0].into_iter().for_each(|x| all.add(x));
            let taken = all.take();
            assert_eq!(all.aggregate(), None);
            taken.map(|x| (1e9 * x).round() / 1e9)
        };
        assert_eq!(of(Aggregation::Mean), Some(2.333_333_333));
        assert_eq!(of(Aggregation::GeometricMean), Some(2.0));
        assert_eq!(of(Aggregation::Last), Some(2.0));
        assert_eq!(of(Aggregation::Sum), Some(7.0));
        assert_eq!(of(Aggregation::Min), Some(1.0));
        assert_eq!(of(Aggregation::Max), Some(4.0));
    }
}
