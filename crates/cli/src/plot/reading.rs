//! The value of a metric that stands for a whole run.

use emberlm_trainer::metrics::Direction;

use super::group::NamedRun;
use super::quantity::Quantity;
use crate::error::CliError;
use crate::run_history::History;

/// Selects one value of a metric per run: the last or the best one, of its validation readings if all runs have them.
#[derive(Clone, Debug)]
pub struct Reading<'a> {
    quantity: &'a Quantity,
    is_validation: bool,
    /// The direction of the best value. `None` selects the last value.
    best: Option<Direction>,
}

impl<'a> Reading<'a> {
    /// Selects the last value of `quantity`, or with `best` the best one.
    ///
    /// # Errors
    /// Returns an error if neither direction of the metric is better.
    pub fn new(quantity: &'a Quantity, runs: &[&NamedRun], best: bool) -> Result<Self, CliError> {
        if best && quantity.direction() == Direction::Neutral {
            let name = quantity.name();
            let message = format!("{name} has no best value: neither direction is better");
            return Err(CliError::usage(message).hint("leave out --best to plot the last values"));
        }
        let has_validation = |run: &&NamedRun| !quantity.points(&run.history.validated).is_empty();
        Ok(Self {
            quantity,
            is_validation: runs.iter().all(has_validation),
            best: best.then(|| quantity.direction()),
        })
    }

    /// The selected value and its step.
    pub fn of(&self, history: &History) -> Option<(usize, f64)> {
        let series = match self.is_validation {
            true => &history.validated,
            false => &history.trained,
        };
        let points = self.quantity.points(series);
        let numbers = points.iter().copied().filter(|(_, value)| !value.is_nan());
        match self.best {
            None | Some(Direction::Neutral) => points.last().copied(),
            Some(Direction::LowerIsBetter) => numbers.min_by(|a, b| a.1.total_cmp(&b.1)),
            // Reversed, since the first of equal values counts.
            Some(Direction::HigherIsBetter) => numbers.min_by(|a, b| b.1.total_cmp(&a.1)),
        }
    }

    /// The title of a plot of the values.
    pub fn title(&self) -> String {
        let [which, phase] = self.words();
        let label = self.quantity.label();
        let mut letters = label.chars();
        let first = letters.next().map(|first| first.to_lowercase().to_string());
        let label = first.unwrap_or_default() + letters.as_str();
        format!("{which} {phase} {label}")
    }

    /// The heading of a column of the values.
    pub fn column(&self) -> String {
        let words = self.words().join("_").to_lowercase();
        format!("{words}_{}", self.quantity.name())
    }

    /// The selected value and its phase.
    fn words(&self) -> [&'static str; 2] {
        let which = match self.best {
            None | Some(Direction::Neutral) => "Last",
            Some(Direction::LowerIsBetter) => "Lowest",
            Some(Direction::HigherIsBetter) => "Highest",
        };
        let phase = match self.is_validation {
            true => "validation",
            false => "training",
        };
        [which, phase]
    }
}
