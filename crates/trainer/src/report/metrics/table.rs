//! The table of the metrics of every run.

use std::sync::LazyLock;

use super::Aggregation::{GeometricMean, Last};
use super::Direction::{HigherIsBetter, LowerIsBetter};
use super::NumberFormat::{Fixed, Scientific};
use super::{Metric, MetricValues, Phase};

/// The inputs of computed metrics at a log line.
pub(crate) struct StepReading {
    /// The loss scale of the next step, if it adapts.
    pub(crate) loss_scale: Option<f64>,
    /// The smallest and the largest share of a layer's work that an expert had in the step, if there are experts.
    pub(crate) expert_shares: Option<(f64, f64)>,
}

struct Row {
    metric: Metric,
    /// Computes the metric at each log line; `None` if the metric is a field of an event (`Event::readings`).
    compute: Option<fn(&StepReading) -> Option<f64>>,
}

impl Row {
    fn field(metric: Metric) -> Self {
        let compute = None;
        Self { metric, compute }
    }

    fn computed(metric: Metric, compute: fn(&StepReading) -> Option<f64>) -> Self {
        let compute = Some(compute);
        Self { metric, compute }
    }
}

const MIB: f64 = (1 << 20) as f64;

/// To add a metric computed from a [`StepReading`], add a row. The dashboard shows its tabs in one row, which
/// must fit into 80 columns.
fn rows() -> Vec<Row> {
    vec![
        Row::field(
            Metric::new("loss", "Loss")
                .unit("nats per token")
                .direction(LowerIsBetter)
                .phase(Phase::Both)
                .format(Fixed(4))
                .tab("Loss"),
        ),
        Row::field(
            Metric::new("perplexity", "Perplexity")
                .direction(LowerIsBetter)
                .aggregation(GeometricMean)
                .phase(Phase::Both)
                .format(Fixed(2))
                .tab("Perplexity"),
        ),
        Row::field(
            Metric::new("learning_rate", "Learning rate")
                .aggregation(Last)
                .format(Scientific(2))
                .tab("Rate"),
        ),
        Row::field(
            Metric::new("gradient_norm", "Gradient norm")
                .unit("before clipping")
                .format(Fixed(3))
                .tab("Gradient"),
        ),
        Row::field(
            Metric::new("tokens_per_second", "Throughput")
                .unit("tokens per second")
                .direction(HigherIsBetter)
                .format(Fixed(0))
                .tab("Tokens/s")
                .tag("speed/tokens_per_second"),
        ),
        Row::field(
            Metric::new("utilization", "Share of matrix product")
                .unit("% of the measured speed of a matrix product")
                .direction(HigherIsBetter)
                .scale(100.0)
                .format(Fixed(1))
                .tag("speed/utilization"),
        ),
        Row::field(
            Metric::new("memory_mib", "Memory")
                .unit("MiB resident")
                .aggregation(Last)
                .format(Fixed(0))
                .tag("memory/resident_mib"),
        ),
        Row::field(
            Metric::new("device_in_use", "Device memory")
                .unit("MiB in use")
                .aggregation(Last)
                .scale(1.0 / MIB)
                .format(Fixed(0))
                .tag("memory/device_in_use"),
        ),
        Row::field(
            Metric::new("device_reserved", "Reserved device memory")
                .unit("MiB")
                .aggregation(Last)
                .scale(1.0 / MIB)
                .format(Fixed(0))
                .tag("memory/device_reserved"),
        ),
        Row::computed(
            Metric::new("loss_scale", "Loss scale").aggregation(Last),
            |reading| reading.loss_scale,
        ),
        Row::computed(
            Metric::new("expert_share_max", "Busiest expert")
                .unit("% of its layer's work")
                .direction(LowerIsBetter)
                .scale(100.0)
                .format(Fixed(1))
                .tag("experts/share_max"),
            |reading| reading.expert_shares.map(|(_, most)| most),
        ),
        Row::computed(
            Metric::new("expert_share_min", "Least-used expert")
                .unit("% of its layer's work")
                .direction(HigherIsBetter)
                .scale(100.0)
                .format(Fixed(1))
                .tag("experts/share_min"),
            |reading| reading.expert_shares.map(|(least, _)| least),
        ),
    ]
}

static ROWS: LazyLock<Vec<Row>> = LazyLock::new(rows);
static METRICS: LazyLock<Vec<Metric>> =
    LazyLock::new(|| ROWS.iter().map(|row| row.metric.clone()).collect());

/// The metrics of every run, in the order of their charts.
pub fn built_in() -> &'static [Metric] {
    &METRICS
}

/// The values of the computed metrics.
pub(crate) fn computed(reading: &StepReading) -> MetricValues {
    let mut values = MetricValues::default();
    for row in ROWS.iter() {
        if let Some(value) = row.compute.and_then(|compute| compute(reading)) {
            values.insert(&row.metric.name, value);
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_names_are_unique() {
        let names: std::collections::BTreeSet<_> = built_in().iter().map(|m| &m.name).collect();
        assert_eq!(names.len(), built_in().len());
    }
}
