//! Metrics: each is declared once, and then is in the log, the dashboard, the plain lines, TensorBoard's files, `emberlm
//! watch` and `emberlm plot`.
//!
//! Map: `table` declares the metrics of every run, `values` are readings by name, `figures` the readings of a log
//! line, `shown` the newest values on a display. A [`Hook`](crate::hooks::Hook) declares and records further metrics.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

mod figures;
mod shown;
mod table;
mod values;

pub(crate) use figures::{Figures, ProgressDisplay, duration};
pub(crate) use shown::ShownMetrics;
pub use table::built_in;
pub(crate) use table::{StepReading, computed};
pub use values::{Accumulator, MetricValues};

/// The declaration of a metric.
///
/// ```
/// use emberlm_trainer::metrics::{Aggregation, Direction, Metric};
///
/// let metric = Metric::new("bits_per_token", "Bits per token")
///     .unit("bits")
///     .direction(Direction::LowerIsBetter)
///     .aggregation(Aggregation::Mean);
/// assert_eq!(metric.label(), "Bits per token, bits");
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Metric {
    /// The key in `events.jsonl` and the value of `emberlm plot --y`: lower-case letters, digits and underscores.
    pub name: Cow<'static, str>,
    /// The title of its chart.
    pub title: Cow<'static, str>,
    /// The unit of a displayed value; empty for a plain number.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub unit: Cow<'static, str>,
    /// Which values are better.
    #[serde(default)]
    pub direction: Direction,
    /// The value of several steps.
    #[serde(default)]
    pub aggregation: Aggregation,
    /// When it is read.
    #[serde(default)]
    pub phase: Phase,
    /// A displayed value is the recorded value times this: 100 shows a ratio in percent.
    #[serde(default = "one")]
    pub scale: f64,
    #[serde(skip)]
    pub(crate) format: NumberFormat,
    /// The name of its tab in the dashboard, if it has one.
    #[serde(skip)]
    pub(crate) tab: Option<Cow<'static, str>>,
    /// Its tag in TensorBoard, if it is not `train/NAME` or `validation/NAME`.
    #[serde(skip)]
    pub(crate) tag: Option<&'static str>,
}

/// Which values of a metric are better.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// A loss or an error.
    LowerIsBetter,
    /// An accuracy or a throughput.
    HigherIsBetter,
    /// Neither.
    #[default]
    Neutral,
}

/// The value of several steps, such as those since the last line of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Aggregation {
    /// `Σx / n`.
    #[default]
    Mean,
    /// `exp(Σ ln x / n)`, as for perplexities.
    GeometricMean,
    /// The newest value.
    Last,
    /// `Σx`.
    Sum,
    /// The smallest value.
    Min,
    /// The greatest value.
    Max,
}

/// When a metric is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// After training steps.
    #[default]
    Training,
    /// After evaluations.
    Validation,
    /// After both.
    Both,
}

impl Phase {
    /// Returns true if a metric of this phase is read in `other`.
    pub fn includes(self, other: Self) -> bool {
        self == Self::Both || self == other
    }
}

/// The digits of a displayed value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum NumberFormat {
    /// Decimal places.
    Fixed(usize),
    /// Decimal places before a power of ten.
    Scientific(usize),
    /// Four significant digits, with a power of ten where the value is very small or large.
    #[default]
    Significant,
}

impl Metric {
    /// A metric of training steps with a name and a chart's title: a plain number, neither direction better, averaged.
    pub fn new(name: impl Into<Cow<'static, str>>, title: impl Into<Cow<'static, str>>) -> Self {
        Self {
            name: name.into(),
            title: title.into(),
            unit: Cow::Borrowed(""),
            direction: Direction::default(),
            aggregation: Aggregation::default(),
            phase: Phase::default(),
            scale: 1.0,
            format: NumberFormat::default(),
            tab: None,
            tag: None,
        }
    }

    /// Sets the unit.
    #[must_use]
    pub fn unit(mut self, unit: impl Into<Cow<'static, str>>) -> Self {
        self.unit = unit.into();
        self
    }

    /// Sets which values are better.
    #[must_use]
    pub fn direction(mut self, direction: Direction) -> Self {
        self.direction = direction;
        self
    }

    /// Sets the aggregation over steps.
    #[must_use]
    pub fn aggregation(mut self, aggregation: Aggregation) -> Self {
        self.aggregation = aggregation;
        self
    }

    /// Sets when it is read.
    #[must_use]
    pub fn phase(mut self, phase: Phase) -> Self {
        self.phase = phase;
        self
    }

    /// Sets the factor of displayed values.
    #[must_use]
    pub fn scale(mut self, scale: f64) -> Self {
        self.scale = scale;
        self
    }

    fn tab(mut self, tab: &'static str) -> Self {
        self.tab = Some(Cow::Borrowed(tab));
        self
    }

    fn tag(mut self, tag: &'static str) -> Self {
        self.tag = Some(tag);
        self
    }

    fn format(mut self, format: NumberFormat) -> Self {
        self.format = format;
        self
    }

    /// The title with the unit.
    pub fn label(&self) -> String {
        match self.unit.as_ref() {
            "" => self.title.clone().into_owned(),
            unit => format!("{}, {unit}", self.title),
        }
    }

    /// The value as it is displayed, without its unit.
    pub fn display(&self, value: f64) -> String {
        let value = self.scale * value;
        match self.format {
            NumberFormat::Fixed(places) => format!("{value:.places$}"),
            NumberFormat::Scientific(places) => format!("{value:.places$e}"),
            NumberFormat::Significant => significant(value),
        }
    }

    /// Checks the declaration.
    ///
    /// # Errors
    /// The rule that the name breaks.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if self.name.is_empty() || !self.name.chars().all(allowed) {
            return Err("a name has lower-case letters, digits and underscores only");
        }
        match built_in().iter().any(|metric| metric.name == self.name) {
            true => Err("every run has a metric of that name"),
            false => Ok(()),
        }
    }
}

/// The built-in metric of a name.
pub fn find(name: &str) -> Option<&'static Metric> {
    built_in().iter().find(|metric| metric.name == name)
}

fn one() -> f64 {
    1.0
}

/// Four significant digits.
fn significant(value: f64) -> String {
    let size = value.abs();
    if value == 0.0 {
        "0".to_owned()
    } else if !(1e-3..1e6).contains(&size) {
        format!("{value:.3e}")
    } else {
        let places = (3 - size.log10().floor() as i32).clamp(0, 6) as usize;
        format!("{value:.places$}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn displayed_values_have_four_digits() {
        let metric = Metric::new("x", "X");
        let shown = [0.0, 0.125, 2.0, 123_456.0, 1.5e-5, -3e8].map(|x| metric.display(x));
        let expected = ["0", "0.1250", "2.000", "123456", "1.500e-5", "-3.000e8"];
        assert_eq!(shown, expected);
        assert_eq!(metric.scale(100.0).display(0.5), "50.00");
    }

    #[test]
    fn metric_names_are_keys_and_not_built_in() {
        for name in ["", "Weight", "a b", "a-b", "loss", "tokens_per_second"] {
            assert!(Metric::new(name, "X").check().is_err(), "{name}");
        }
        assert_eq!(Metric::new("weight_norm_2", "X").check(), Ok(()));
    }
}
