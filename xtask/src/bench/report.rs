//! How results are shown: a table to read, or one line of JSON.

use serde_json::json;

use super::measurement::Measurement;

/// The medians of a benchmark.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Runs that each median is over.
    pub rounds: usize,
    /// This project's binary.
    pub ours: Measurement,
    /// The PyTorch twin, where one ran.
    pub peer: Option<Measurement>,
}

impl Report {
    /// One line: our measurement as it is, or with a peer both and their ratio.
    pub fn to_json(&self) -> String {
        let value = match &self.peer {
            None => self.ours.to_json(),
            Some(peer) => json!({
                "rounds": self.rounds,
                "ours": self.ours.to_json(),
                "peer": peer.to_json(),
                "ratio": self.ratio(peer),
            }),
        };
        value.to_string()
    }

    /// The measurements as rows, and below them the ratio.
    pub fn to_table(&self) -> String {
        let mut text = format!(
            "{:<28} {:<8} {:>5} {:>7} {:>12} {:>12} {:>12} {:>12}\n",
            "program",
            "workload",
            "batch",
            "threads",
            "parameters",
            "tokens/s",
            "s/step",
            "peak MiB"
        );
        for run in std::iter::once(&self.ours).chain(&self.peer) {
            text.push_str(&format!(
                "{:<28} {:<8} {:>5} {:>7} {:>12} {:>12.1} {:>12.5} {:>12}\n",
                run.peer,
                run.workload,
                run.batch,
                run.threads,
                run.parameters,
                run.tokens_per_second,
                run.seconds_per_step,
                run.peak_rss_mib
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

    fn ratio(&self, peer: &Measurement) -> f64 {
        self.ours.tokens_per_second / peer.tokens_per_second
    }
}

#[cfg(test)]
mod tests {
    use super::{super::measurement::tests::example, *};

    #[test]
    fn alone_the_json_is_the_measurement() {
        let report = Report {
            rounds: 1,
            ours: example(10.0),
            peer: None,
        };
        assert_eq!(report.to_json(), example(10.0).to_json().to_string());
        assert_eq!(report.to_table().lines().count(), 2);
    }

    #[test]
    fn beside_a_peer_the_ratio_is_given() {
        let report = Report {
            rounds: 3,
            ours: example(30.0),
            peer: Some(example(20.0)),
        };
        let value: serde_json::Value = serde_json::from_str(&report.to_json()).unwrap();
        assert_eq!(
            (&value["ratio"], &value["rounds"]),
            (&json!(1.5), &json!(3))
        );
        assert!(
            report
                .to_table()
                .ends_with("1.50 in tokens/s, medians of 3\n")
        );
    }
}
