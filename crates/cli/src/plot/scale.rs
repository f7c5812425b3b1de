//! The horizontal axis of curves: converts steps to coordinates.

use clap::ValueEnum;

use super::group::NamedRun;

/// A quantity that grows during a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum XQuantity {
    /// Steps made
    #[default]
    Steps,
    /// Tokens trained on
    Tokens,
    /// Floating-point operations of training
    Flops,
    /// Time of training
    Time,
    /// The learning rate, for runs whose learning rate only rises (`emberlm lr-find`)
    Rate,
}

impl XQuantity {
    /// The heading of a column of positions, with the unit of time.
    pub fn column(self) -> &'static str {
        match self {
            Self::Steps => "step",
            Self::Tokens => "tokens",
            Self::Flops => "flops",
            Self::Time => "seconds",
            Self::Rate => "learning_rate",
        }
    }
}

/// Converts steps to horizontal coordinates.
pub struct Scale {
    along: XQuantity,
    unit: f64,
    /// Label of the axis.
    pub label: String,
}

impl Scale {
    /// Creates the scale of `runs`. The unit of time follows from the longest run.
    pub fn new<'a>(along: XQuantity, runs: impl IntoIterator<Item = &'a NamedRun>) -> Self {
        let seconds = runs.into_iter().filter_map(|run| run.history.paces.last());
        let longest = seconds.map(|pace| pace.seconds).fold(0.0, f64::max);
        let (unit, name) = match longest {
            ..180.0 => (1.0, "seconds"),
            ..10_800.0 => (60.0, "minutes"),
            ..259_200.0 => (3600.0, "hours"),
            _ => (86_400.0, "days"),
        };
        let (unit, label) = match along {
            XQuantity::Steps => (1.0, "steps".to_owned()),
            XQuantity::Tokens => (1.0, "tokens trained on".to_owned()),
            XQuantity::Flops => (1.0, "floating-point operations".to_owned()),
            XQuantity::Time => (unit, format!("{name} of training")),
            XQuantity::Rate => (1.0, "learning rate".to_owned()),
        };
        Self { along, unit, label }
    }

    /// Creates a scale with time in seconds.
    pub fn in_base_units(along: XQuantity) -> Self {
        Self {
            along,
            unit: 1.0,
            label: along.column().to_owned(),
        }
    }

    /// The coordinate of a step. Returns `None` if the run's history does not determine it.
    pub fn coordinate(&self, run: &NamedRun, step: usize) -> Option<f64> {
        let history = &run.history;
        let place = match self.along {
            XQuantity::Steps => Some(step as f64),
            XQuantity::Tokens => history.tokens_at(step),
            XQuantity::Flops => run
                .size
                .zip(history.tokens_at(step))
                .map(|(size, tokens)| size.flops_per_token * tokens),
            XQuantity::Time => history.seconds_at(step),
            XQuantity::Rate => history.learning_rate_at(step),
        };
        place.map(|place| place / self.unit)
    }
}
