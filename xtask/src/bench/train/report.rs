//! The result of `cargo xtask bench train`.

use serde_json::{Value, json};

use super::super::measurement::Measurement;
use super::super::report::Column::{Number, Text};
use super::super::report::{Report, Table};

/// The median runs of a benchmark.
#[derive(Debug, Clone, PartialEq)]
pub struct TrainReport {
    /// Runs per median.
    pub rounds: usize,
    /// Our binary.
    pub ours: Measurement,
    /// Our binary with activation checkpointing, if requested.
    pub recomputing: Option<Measurement>,
    /// The PyTorch twin, if it ran.
    pub peer: Option<Measurement>,
}

impl Report for TrainReport {
    /// Only our measurement, or all measurements with ratios if there are several.
    fn to_json(&self) -> Value {
        if self.peer.is_none() && self.recomputing.is_none() {
            return self.ours.to_json();
        }
        let mut value = json!({ "rounds": self.rounds, "ours": self.ours.to_json() });
        if let Some(again) = &self.recomputing {
            value["recomputing"] = again.to_json();
            value["recomputing_ratio"] = json!(1.0 / self.ratio(again));
        }
        if let Some(peer) = &self.peer {
            value["peer"] = peer.to_json();
            value["ratio"] = json!(self.ratio(peer));
        }
        value
    }

    /// The measurements as rows, followed by the ratio.
    fn to_text(&self) -> String {
        let mut table = Table::new([
            Text("program"),
            Text("workload"),
            Number("batch"),
            Number("threads"),
            Number("parameters"),
            Number("tokens/s"),
            Number("s/step"),
            Number("peak MiB"),
        ]);
        let runs = std::iter::once(&self.ours).chain(&self.recomputing);
        for run in runs.chain(&self.peer) {
            table.row([
                run.peer.clone(),
                run.workload.clone(),
                run.batch.to_string(),
                run.threads.to_string(),
                run.parameters.to_string(),
                format!("{:.1}", run.tokens_per_second),
                format!("{:.5}", run.seconds_per_step),
                // A device with its own memory is reported by it.
                run.device_mib.unwrap_or(run.peak_rss_mib).to_string(),
            ]);
        }
        let mut text = table.to_text();
        if let Some(utilization) = self.ours.utilization {
            text.push_str(&format!(
                "utilization: {:.1}% of the matrix product's measured speed\n",
                100.0 * utilization
            ));
        }
        if let Some(again) = &self.recomputing {
            let memory = again.peak_rss_mib as f64 / self.ours.peak_rss_mib as f64;
            text.push_str(&format!(
                "recomputing: {:.2} of the tokens/s, {memory:.2} of the memory, medians of {}\n",
                1.0 / self.ratio(again),
                self.rounds
            ));
        }
        if let Some(peer) = &self.peer {
            let (ours, ratio) = (&self.ours.peer, self.ratio(peer));
            text.push_str(&format!(
                "{ours} / {}: {ratio:.2} in tokens/s, medians of {}\n",
                peer.peer, self.rounds
            ));
        }
        text
    }
}

impl TrainReport {
    fn ratio(&self, peer: &Measurement) -> f64 {
        self.ours.tokens_per_second / peer.tokens_per_second
    }
}

#[cfg(test)]
mod tests {
    use super::{super::super::measurement::tests::example, *};

    #[test]
    fn without_a_peer_the_json_is_the_measurement() {
        let report = TrainReport {
            rounds: 1,
            ours: example(10.0),
            recomputing: None,
            peer: None,
        };
        assert_eq!(report.to_json(), example(10.0).to_json());
        assert_eq!(report.to_text().lines().count(), 2);
    }

    #[test]
    fn with_a_peer_the_ratio_is_reported() {
        let report = TrainReport {
            rounds: 3,
            ours: example(30.0),
            recomputing: None,
            peer: Some(example(20.0)),
        };
        let value = report.to_json();
        assert_eq!(
            (&value["ratio"], &value["rounds"]),
            (&json!(1.5), &json!(3))
        );
        assert!(
            report
                .to_text()
                .ends_with("1.50 in tokens/s, medians of 3\n")
        );
    }

    #[test]
    fn a_device_is_shown_by_its_own_memory_and_its_utilization() {
        let ours = Measurement {
            device_mib: Some(777),
            utilization: Some(0.4125),
            ..example(10.0)
        };
        let report = TrainReport {
            rounds: 1,
            ours,
            recomputing: None,
            peer: None,
        };
        let table = report.to_text();
        assert!(table.contains(" 777\n"), "{table}");
        assert!(
            table.ends_with("utilization: 41.2% of the matrix product's measured speed\n"),
            "{table}"
        );
    }

    #[test]
    fn activation_checkpointing_has_a_row() {
        let report = TrainReport {
            rounds: 1,
            ours: example(30.0),
            recomputing: Some(example(24.0)),
            peer: None,
        };
        let value = report.to_json();
        assert_eq!(value["recomputing_ratio"], 0.8);
        assert_eq!(value["recomputing"]["tokens_per_second"], 24.0);
        let table = report.to_text();
        assert_eq!(table.lines().count(), 4, "{table}");
        assert!(table.contains("recomputing: 0.80 of the tokens/s, 1.00 of the memory"));
    }
}
