//! The result of `cargo xtask bench prepare`.

use serde_json::{Value, json};

use super::super::report::Column::{Number, Text};
use super::super::report::{Report, Table, median_by};
use super::run::Run;

/// The required speed per thread relative to tiktoken-rs on one thread.
const TIKTOKEN_RS_GOAL: f64 = 0.9;

/// The required speed relative to Python's tiktoken.
const PYTHON_GOAL: f64 = 3.0;

/// The memory limit of our process in MiB, for a corpus of any length.
const MEMORY_GOAL: u64 = 300;

/// One run of each program. They run one after the other, so that changes of the machine's load affect all of
/// them.
#[derive(Debug, Clone, PartialEq)]
pub struct Round {
    /// Our runs on records and on a single text.
    pub ours: [Run; 2],
    /// tiktoken-rs on one thread.
    pub single: Run,
    /// Python's tiktoken, if it ran.
    pub python: Option<Run>,
}

impl Round {
    fn runs(&self) -> Vec<&Run> {
        let all = self.ours.iter().chain([&self.single]);
        all.chain(&self.python).collect()
    }
}

/// All rounds.
#[derive(Debug)]
pub struct PrepareReport {
    threads: usize,
    first: Round,
    rest: Vec<Round>,
}

/// Our speed divided by the peers', for one form of the corpus.
struct Ratios {
    form: &'static str,
    /// Relative to the speed of tiktoken-rs times the number of threads.
    tiktoken_rs: f64,
    python: Option<f64>,
}

impl PrepareReport {
    /// Creates a report of at least one round with `threads` threads.
    pub fn new(threads: usize, first: Round, rest: Vec<Round>) -> Self {
        Self {
            threads,
            first,
            rest,
        }
    }

    fn rounds(&self) -> impl Iterator<Item = &Round> {
        std::iter::once(&self.first).chain(&self.rest)
    }

    /// The run of each program with the median speed. All figures of a run belong together.
    fn runs(&self) -> Vec<&Run> {
        let rounds: Vec<_> = self.rounds().map(Round::runs).collect();
        let programs = rounds.iter().map(Vec::len).min().unwrap_or(0);
        let median = |program: usize| {
            let runs = rounds.iter().map(|round| round[program]).collect();
            median_by(runs, |run| run.speed())
        };
        (0..programs).filter_map(median).collect()
    }

    /// The medians of each round's ratio. They are more reliable than ratios of medians if the machine's load
    /// drifts.
    fn ratios(&self) -> Vec<Ratios> {
        let of = |form: usize, peer: &dyn Fn(&Round) -> Option<f64>| {
            let ratio = |round: &Round| Some(round.ours[form].speed() / peer(round)?);
            median_by(self.rounds().filter_map(ratio).collect(), |ratio| *ratio)
        };
        let threads = self.threads as f64;
        let ratios = |form: usize| Ratios {
            form: self.first.ours[form].form.name(),
            tiktoken_rs: of(form, &|round| Some(threads * round.single.speed()))
                .unwrap_or(f64::NAN),
            python: of(form, &|round| Some(round.python.as_ref()?.speed())),
        };
        vec![ratios(0), ratios(1)]
    }

    fn peak(&self) -> u64 {
        let peaks = self.rounds().flat_map(|round| &round.ours);
        peaks.map(|run| run.peak_rss_mib).max().unwrap_or(0)
    }
}

impl Report for PrepareReport {
    fn to_json(&self) -> Value {
        let ratios = |ratios: Ratios| {
            json!({
                "corpus": ratios.form,
                "to_threads_times_tiktoken_rs": ratios.tiktoken_rs,
                "to_python": ratios.python,
            })
        };
        json!({
            "rounds": self.rounds().count(),
            "runs": self.runs().into_iter().map(Run::to_json).collect::<Vec<_>>(),
            "ratios": self.ratios().into_iter().map(ratios).collect::<Vec<_>>(),
            "peak_rss_mib": self.peak(),
        })
    }

    /// The runs as rows, followed by the ratios and their goals.
    fn to_text(&self) -> String {
        let runs = self.runs();
        let mut table = Table::new([
            Text("program"),
            Text("corpus"),
            Number("threads"),
            Number("MB"),
            Number("MB/s"),
            Number("tokens/s"),
            Number("peak MiB"),
        ]);
        for run in runs {
            table.row([
                run.program.clone(),
                run.form.name().to_owned(),
                run.threads.to_string(),
                format!("{:.1}", run.bytes as f64 / 1e6),
                format!("{:.2}", run.speed()),
                format!("{:.0}", run.tokens_per_second()),
                run.peak_rss_mib.to_string(),
            ]);
        }
        let mut text = table.to_text();
        let threads = self.threads;
        for ratios in self.ratios() {
            let (form, ratio) = (ratios.form, ratios.tiktoken_rs);
            text += &format!(
                "{form}: {ratio:.2} x {threads} threads x tiktoken-rs, {}\n",
                at_least(ratio, TIKTOKEN_RS_GOAL)
            );
            if let Some(ratio) = ratios.python {
                let goal = at_least(ratio, PYTHON_GOAL);
                text += &format!("{form}: {ratio:.2} x Python's tiktoken, {goal}\n");
            }
        }
        let (peak, rounds) = (self.peak(), self.rounds().count());
        let verdict = match peak < MEMORY_GOAL {
            true => "below",
            false => "NOT BELOW",
        };
        text += &format!("prepare's peak memory: {peak} MiB, {verdict} {MEMORY_GOAL}\n");
        text + &format!("speeds and ratios are medians of {rounds}, the peak is the highest\n")
    }
}

fn at_least(ratio: f64, goal: f64) -> String {
    let verdict = match ratio >= goal {
        true => "at least",
        false => "BELOW",
    };
    format!("{verdict} {goal}")
}

#[cfg(test)]
mod tests {
    use super::super::corpus::Form;
    use super::super::run::tests::example;
    use super::*;

    /// A round in which the machine runs at `speed` times its usual speed.
    fn round(speed: f64, ours: u64, python: Option<u64>) -> Round {
        let run =
            |program, form, millions| example(program, form, millions * 1_000_000, 1.0 / speed);
        let (records, text) = (Form::Records, Form::Text);
        Round {
            ours: [run("ours", records, ours), run("ours", text, ours / 2)],
            single: run("single", records, 30),
            python: python.map(|millions| run("python", records, millions)),
        }
    }

    #[test]
    fn ratios_compare_runs_of_the_same_round() {
        // The median of ours is 120 MB/s, that of tiktoken-rs 15 MB/s. The ratio of medians would be 4.
        let rest = vec![
            round(0.5, 120, Some(40)),
            round(0.5, 600, Some(40)),
            round(1.0, 120, Some(40)),
        ];
        let report = PrepareReport::new(2, round(1.0, 120, Some(40)), rest);
        let table = report.to_text();
        for line in [
            "\nJSON lines: 2.00 x 2 threads x tiktoken-rs, at least 0.9\n",
            "\nJSON lines: 3.00 x Python's tiktoken, at least 3\n",
            "\none text: 1.00 x 2 threads x tiktoken-rs, at least 0.9\n",
            "\none text: 1.50 x Python's tiktoken, BELOW 3\n",
            "\nprepare's peak memory: 5 MiB, below 300\n",
        ] {
            assert!(table.contains(line), "{line}{table}");
        }
        let value = report.to_json();
        assert_eq!(value["ratios"][0]["to_python"], 3.0);
        assert_eq!(value["runs"][0]["mb_per_second"], 120.0);
    }

    #[test]
    fn without_python_its_ratio_is_absent() {
        let report = PrepareReport::new(4, round(1.0, 60, None), Vec::new());
        assert!(!report.to_text().contains("Python"));
        assert!(report.to_text().contains("0.50 x 4 threads"));
        assert_eq!(report.to_json()["ratios"][0]["to_python"], Value::Null);
    }
}
