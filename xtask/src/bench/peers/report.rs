//! The result of `cargo xtask bench peers`.

use serde_json::{Value, json};

use super::super::measurement::Measurement;
use super::super::report::Column::{Number, Text};
use super::super::report::{Report, Table};

/// The median runs of one workload.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// The workload.
    pub workload: String,
    /// Our binary.
    pub ours: Option<Measurement>,
    /// The configurations of PyTorch.
    pub peers: Vec<Measurement>,
}

/// All workloads.
#[derive(Debug, Clone)]
pub struct PeersReport {
    /// Runs per median.
    pub rounds: usize,
    /// The precision of matrix products.
    pub precision: &'static str,
    /// The results of each workload.
    pub comparisons: Vec<Comparison>,
}

impl Report for PeersReport {
    /// All figures.
    fn to_json(&self) -> Value {
        let workloads: Vec<Value> = self.comparisons.iter().map(Comparison::to_json).collect();
        json!({ "rounds": self.rounds, "precision": self.precision, "workloads": workloads })
    }

    /// A table per workload.
    fn to_text(&self) -> String {
        let tables = self.comparisons.iter().map(|comparison| {
            let (workload, precision, rounds) = (&comparison.workload, self.precision, self.rounds);
            let head = format!("{workload}, {precision}, medians of {rounds}\n");
            head + &comparison.to_table()
        });
        tables.collect::<Vec<_>>().join("\n")
    }
}

impl Comparison {
    fn to_json(&self) -> Value {
        let peers: Vec<Value> = self
            .peers
            .iter()
            .map(|peer| self.compared_with(peer))
            .collect();
        let ours = self.ours.as_ref().map(Measurement::to_json);
        json!({ "workload": self.workload, "ours": ours, "peers": peers })
    }

    fn compared_with(&self, peer: &Measurement) -> Value {
        let mut value = peer.to_json();
        if let Some((speed, memory)) = self.ratios(peer) {
            value["ratio"] = json!(speed);
            value["memory_ratio"] = json!(memory);
        }
        value
    }

    fn to_table(&self) -> String {
        let mut table = Table::new([
            Text("program"),
            Number("tokens/s"),
            Number("s/step"),
            Number("peak MiB"),
            Number("ours / it"),
            Number("ours / its MiB"),
        ]);
        for run in self.ours.iter().chain(&self.peers) {
            let mut cells = vec![
                run.peer.clone(),
                format!("{:.1}", run.tokens_per_second),
                format!("{:.4}", run.seconds_per_step),
                run.peak_rss_mib.to_string(),
            ];
            let itself = self.ours.as_ref() == Some(run);
            if let Some((speed, memory)) = self.ratios(run).filter(|_| !itself) {
                cells.extend([speed, memory].map(|ratio| format!("{ratio:.2}")));
            }
            table.row(cells);
        }
        table.to_text()
    }

    /// Our tokens/s and memory divided by the peer's.
    fn ratios(&self, peer: &Measurement) -> Option<(f64, f64)> {
        let ours = self.ours.as_ref()?;
        let speed = ours.tokens_per_second / peer.tokens_per_second;
        let memory = ours.peak_rss_mib as f64 / peer.peak_rss_mib as f64;
        Some((speed, memory))
    }
}

#[cfg(test)]
mod tests {
    use super::{super::super::measurement::tests::example, *};

    fn report() -> PeersReport {
        let peer = |speed, peak| Measurement {
            peer: "torch".to_owned(),
            peak_rss_mib: peak,
            ..example(speed)
        };
        let comparison = Comparison {
            workload: "char, 12 × 64 tokens".to_owned(),
            ours: Some(example(30.0)),
            peers: vec![peer(20.0, 180), peer(40.0, 90)],
        };
        PeersReport {
            rounds: 5,
            precision: "bf16",
            comparisons: vec![comparison.clone(), comparison],
        }
    }

    #[test]
    fn every_peer_has_its_ratio() {
        let tables = report().to_text();
        let lines: Vec<&str> = tables.lines().collect();
        assert_eq!(lines.len(), 11, "{tables}");
        assert_eq!(lines[0], "char, 12 × 64 tokens, bf16, medians of 5");
        assert!(lines[2].ends_with(" 90"), "{tables}");
        assert!(lines[3].ends_with("1.50            0.50"), "{tables}");
        assert!(lines[4].ends_with("0.75            1.00"), "{tables}");
    }

    #[test]
    fn json_has_all_figures() {
        let value = report().to_json();
        assert_eq!(value["rounds"], 5);
        let first = &value["workloads"][0];
        assert_eq!(first["ours"]["tokens_per_second"], 30.0);
        assert_eq!(first["peers"][0]["ratio"], 1.5);
        assert_eq!(first["peers"][0]["memory_ratio"], 0.5);
    }
}
