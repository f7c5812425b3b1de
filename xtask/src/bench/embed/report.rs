//! The result of `cargo xtask bench embed`.

use serde_json::{Value, json};

use super::super::report::Column::{Number, Text};
use super::super::report::{Report, Table, median_by};

/// One run of one program. Missing values are NaN.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// The program.
    pub program: String,
    /// Embedded texts per second.
    pub texts_per_second: f64,
    /// Peak resident memory of the process, in MiB.
    pub peak_rss_mib: f64,
    /// The largest absolute difference of a vector's element from ours.
    pub difference: f64,
}

impl Run {
    /// Reads the output of a program.
    pub fn of(line: &Value) -> Self {
        let number = |name: &str| line[name].as_f64().unwrap_or(f64::NAN);
        Self {
            program: line["program"].as_str().unwrap_or_default().to_owned(),
            texts_per_second: number("texts_per_second"),
            peak_rss_mib: number("peak_rss_mib"),
            difference: number("difference"),
        }
    }

    /// The run with the median speed.
    pub fn median(runs: Vec<Self>) -> Option<Self> {
        median_by(runs, |run| run.texts_per_second)
    }

    fn to_json(&self) -> Value {
        // NaN becomes null in JSON.
        json!({
            "program": self.program,
            "texts_per_second": self.texts_per_second,
            "peak_rss_mib": self.peak_rss_mib,
            "difference": self.difference,
        })
    }
}

/// All programs on the same texts.
#[derive(Debug, Clone)]
pub struct Workload {
    /// The name of the texts.
    pub name: &'static str,
    /// The median run of our program.
    pub ours: Option<Run>,
    /// The median runs of the others.
    pub peers: Vec<Run>,
}

impl Workload {
    /// Our texts/s divided by those of the fastest other program.
    fn ratio(&self) -> f64 {
        let best = self.peers.iter().map(|run| run.texts_per_second);
        let ours = self
            .ours
            .as_ref()
            .map_or(f64::NAN, |run| run.texts_per_second);
        ours / best.fold(f64::NAN, f64::max)
    }
}

/// All texts.
#[derive(Debug, Clone)]
pub struct EmbedReport {
    /// Runs per median.
    pub rounds: usize,
    /// The results of each kind of texts.
    pub workloads: Vec<Workload>,
}

impl Report for EmbedReport {
    fn to_json(&self) -> Value {
        let workloads = self.workloads.iter().map(|workload| {
            json!({
                "texts": workload.name,
                "ours": workload.ours.as_ref().map(Run::to_json),
                "peers": workload.peers.iter().map(Run::to_json).collect::<Vec<_>>(),
                "ratio": workload.ratio(),
            })
        });
        json!({"rounds": self.rounds, "workloads": workloads.collect::<Vec<_>>()})
    }

    fn to_text(&self) -> String {
        let mut text = String::new();
        for workload in &self.workloads {
            let mut table = Table::new([
                Text("program"),
                Number("texts/s"),
                Number("peak MiB"),
                Number("difference"),
            ]);
            for run in workload.ours.iter().chain(&workload.peers) {
                let difference = match run.difference.is_nan() {
                    true => String::new(),
                    false => format!("{:.1e}", run.difference),
                };
                table.row([
                    run.program.clone(),
                    format!("{:.1}", run.texts_per_second),
                    format!("{:.0}", run.peak_rss_mib),
                    difference,
                ]);
            }
            text += &format!("{} texts, medians of {}\n", workload.name, self.rounds);
            text += &table.to_text();
            text += &format!("ours / fastest other: {:.2}\n\n", workload.ratio());
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_is_to_the_fastest_peer() {
        let run = |speed: f64| {
            Run::of(&json!({"program": "p", "texts_per_second": speed, "peak_rss_mib": 1}))
        };
        let workload = Workload {
            name: "short",
            ours: Some(run(300.0)),
            peers: vec![run(100.0), run(150.0)],
        };
        let report = EmbedReport {
            rounds: 3,
            workloads: vec![workload],
        };
        assert!(report.to_text().contains("ours / fastest other: 2.00"));
        assert_eq!(report.to_json()["workloads"][0]["ratio"], 2.0);
    }
}
