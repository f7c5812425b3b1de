//! The result of `cargo xtask bench char-nano`.

use serde_json::{Value, json};

use super::super::report::Column::{Number, Text};
use super::super::report::{Report, Table, median};

/// A complete run of a program.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// The name of the program.
    pub program: &'static str,
    /// Seconds from start to exit.
    pub seconds: f64,
    /// Loss on the whole validation split, in nats per character.
    pub loss: f64,
}

/// All runs.
#[derive(Debug, Clone)]
pub struct CharNanoReport {
    /// Steps per run.
    pub steps: usize,
    /// Runs of emberlm.
    pub ours: Vec<Run>,
    /// Runs of nanoGPT.
    pub theirs: Vec<Run>,
}

impl Report for CharNanoReport {
    /// All runs, and the ratio.
    fn to_json(&self) -> Value {
        let all = |runs: &[Run]| -> Vec<Value> {
            let shown = |run: &Run| json!({ "seconds": run.seconds, "loss": run.loss });
            runs.iter().map(shown).collect()
        };
        json!({
            "steps": self.steps,
            "ours": all(&self.ours),
            "nanogpt": all(&self.theirs),
            "ratio": self.ratio(),
        })
    }

    /// The medians as rows, followed by the ratio.
    fn to_text(&self) -> String {
        let mut table = Table::new([
            Text("program"),
            Number("seconds"),
            Number("validation loss"),
        ]);
        for runs in [&self.ours, &self.theirs] {
            let name = runs.first().map_or("", |run| run.program);
            let loss = median(runs.iter().map(|run| run.loss).collect());
            let seconds = seconds(runs);
            table.row([name, &format!("{seconds:.1}"), &format!("{loss:.4}")]);
        }
        let (steps, rounds) = (self.steps, self.ours.len());
        let mut text =
            format!("char-nano on Tiny Shakespeare, {steps} steps, medians of {rounds}\n");
        text += &table.to_text();
        text.push_str(&format!("{:.2} times as fast as nanoGPT\n", self.ratio()));
        text
    }
}

impl CharNanoReport {
    /// nanoGPT's time divided by ours.
    fn ratio(&self) -> f64 {
        seconds(&self.theirs) / seconds(&self.ours)
    }
}

fn seconds(runs: &[Run]) -> f64 {
    median(runs.iter().map(|run| run.seconds).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> CharNanoReport {
        let run = |program, seconds| Run {
            program,
            seconds,
            loss: 1.9,
        };
        CharNanoReport {
            steps: 2000,
            ours: [50.0, 90.0, 40.0].map(|s| run("emberlm", s)).to_vec(),
            theirs: [75.0, 60.0, 80.0].map(|s| run("nanoGPT", s)).to_vec(),
        }
    }

    #[test]
    fn the_ratio_is_of_the_medians() {
        let table = report().to_text();
        assert_eq!(table.lines().count(), 5, "{table}");
        assert!(
            table.contains("emberlm     50.0           1.9000"),
            "{table}"
        );
        assert!(
            table.ends_with("1.50 times as fast as nanoGPT\n"),
            "{table}"
        );
    }

    #[test]
    fn json_has_every_run() {
        let value = report().to_json();
        assert_eq!(value["ratio"], 1.5);
        assert_eq!(value["nanogpt"][2]["seconds"], 80.0);
    }
}
