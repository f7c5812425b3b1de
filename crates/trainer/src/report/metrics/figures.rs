//! The figures of a log line, for the displays of a run.

use super::{MetricValues, built_in, significant};
use crate::report::events::Event;

/// The figures of a logged step or of an evaluation.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Figures {
    /// The values of all metrics.
    pub(crate) readings: MetricValues,
    /// The predicted seconds to the last step.
    pub(crate) seconds_left: f64,
    /// The newest validation loss.
    pub(crate) validation: Option<f64>,
    /// The lowest validation loss.
    pub(crate) best: Option<f64>,
    /// In an evaluation, the loss on each dataset if there are several.
    pub(crate) datasets: String,
    /// The newest note about the run.
    pub(crate) note: String,
    /// The newest sample.
    pub(crate) sample: String,
    /// The newest gradient norms by layer as bars, if they are recorded.
    pub(crate) bars: String,
}

/// A display of a run's progress.
pub(crate) trait ProgressDisplay: Send {
    /// Shows a logged step.
    fn show_step(&mut self, step: usize, figures: &Figures);

    /// Shows an evaluation.
    fn show_evaluation(&mut self, step: usize, figures: &Figures);
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

    /// The value of a metric that every step has.
    fn reading(&self, name: &str) -> f64 {
        self.readings.get(name).unwrap_or_default()
    }

    /// The values of metrics that are not built in.
    fn added(&self) -> impl Iterator<Item = (&str, f64)> {
        let is_built_in = |name: &str| built_in().iter().any(|metric| metric.name == name);
        self.readings
            .iter()
            .filter(move |(name, _)| !is_built_in(name))
    }

    /// The remaining time.
    pub(crate) fn time_left(&self) -> String {
        duration(self.seconds_left)
    }

    /// The state of the run in a few lines. The dashboard truncates them, and an 80 × 24 terminal shows six
    /// lines of 28 columns.
    pub(crate) fn summary(&self) -> String {
        let loss = self.reading("loss");
        let mut items = vec![format!("loss {loss:.4}")];
        items.extend(self.validation.map(|loss| format!("valid {loss:.4}")));
        items.extend(self.best.map(|loss| format!("best {loss:.4}")));
        let perplexity = self.readings.get("perplexity");
        items.extend(perplexity.map(|value| format!("ppl {value:.2}")));
        items.extend([
            format!("|g| {:.3}", self.reading("gradient_norm")),
            format!("rate {:.1e}", self.reading("learning_rate")),
            format!("{:.0} tok/s", self.reading("tokens_per_second")),
        ]);
        let percent = self.readings.get("utilization").map(|part| 100.0 * part);
        items.extend(percent.map(|percent| format!("{percent:.0}% of matmul")));
        let memory = self.readings.get("memory_mib");
        items.extend(memory.map(|mib| format!("{mib:.0} MiB")));
        let added = self.added();
        items.extend(added.map(|(name, value)| format!("{name} {}", significant(value))));
        items.extend((!self.bars.is_empty()).then(|| format!("layers {}", self.bars)));
        items.push(format!("{} left", self.time_left()));
        // The dashboard breaks lines at spaces, so an item has none.
        let items = items.iter().map(|item| item.replace(' ', "\u{a0}"));
        let mut items: Vec<String> = items.collect();
        items.extend((!self.note.is_empty()).then(|| self.note.clone()));
        // The newest sample comes last and is cut off.
        let words: Vec<&str> = self.sample.split_whitespace().collect();
        items.extend((!words.is_empty()).then(|| format!("“{}”", words.join(" "))));
        items.join("  ")
    }
}

/// A duration in its two largest units.
pub(crate) fn duration(seconds: f64) -> String {
    let whole = seconds.max(0.0).round() as u64;
    let (minutes, seconds) = (whole / 60, whole % 60);
    let (hours, minutes) = (minutes / 60, minutes % 60);
    let (days, hours) = (hours / 24, hours % 24);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {seconds:02} s"),
        (0, _, _) => format!("{hours} h {minutes:02} min"),
        _ => format!("{days} d {hours:02} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::duration;

    #[test]
    fn durations_have_two_units() {
        let texts = [0.4, 59.4, 61.0, 3_600.0, 86_399.0, 200_000.0].map(duration);
        let expected = [
            "0 s",
            "59 s",
            "1 min 01 s",
            "1 h 00 min",
            "23 h 59 min",
            "2 d 07 h",
        ];
        assert_eq!(texts, expected);
    }
}
