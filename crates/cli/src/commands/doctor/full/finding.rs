//! The rows of a check's result.

use std::fmt;

use serde::Serialize;

/// The outcome of a check or of one of its rows.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// It ran and was right.
    Passed,
    /// It ran and was wrong, or could not run to its end.
    Failed {
        /// The reason.
        reason: String,
    },
    /// It was not run.
    Skipped {
        /// The reason.
        reason: String,
    },
}

impl Outcome {
    /// A failure for a reason.
    pub fn failed(reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self::Failed { reason }
    }

    /// Skipped for a reason.
    pub fn skipped(reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self::Skipped { reason }
    }

    /// Returns true if it failed.
    pub fn is_failure(&self) -> bool {
        matches!(self, Self::Failed { .. })
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => f.write_str("passed"),
            Self::Failed { reason } => write!(f, "failed ({reason})"),
            Self::Skipped { reason } => write!(f, "skipped ({reason})"),
        }
    }
}

/// One figure, or one comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// Its name.
    pub name: String,
    /// The figure; none where it could not be taken.
    pub value: Option<f64>,
    /// The figure's unit.
    pub unit: Unit,
    /// The largest value that passes, where there is such a bound.
    pub allowed: Option<f64>,
    /// The outcome.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// A figure's unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Unit {
    /// Relative error.
    #[serde(rename = "relative")]
    Relative,
    /// Tokens per second.
    #[serde(rename = "tokens/s")]
    TokensPerSecond,
    /// Percent.
    #[serde(rename = "%")]
    Percent,
    /// Bytes.
    #[serde(rename = "B")]
    Bytes,
    /// Bytes per second.
    #[serde(rename = "B/s")]
    BytesPerSecond,
    /// Floating-point operations per second.
    #[serde(rename = "FLOP/s")]
    Flops,
    /// A ratio of two speeds.
    #[serde(rename = "ratio")]
    Ratio,
}

impl Unit {
    /// The figure as the report shows it.
    pub fn shown(self, value: f64) -> String {
        match self {
            Self::Relative => format!("{value:.1e}"),
            Self::TokensPerSecond => format!("{value:.1} tokens/s"),
            Self::Percent => format!("{value:.1} %"),
            Self::Bytes => format!("{:.1} MiB", value / f64::from(1 << 20)),
            Self::BytesPerSecond => format!("{:.2} GB/s", value / 1e9),
            Self::Flops => format!("{:.1} GFLOP/s", value / 1e9),
            Self::Ratio => format!("{value:.2} ×"),
        }
    }
}

impl Finding {
    /// A relative error that may be at most `allowed`.
    pub fn error(name: impl Into<String>, error: f64, allowed: f64) -> Self {
        Self {
            name: name.into(),
            value: Some(error),
            unit: Unit::Relative,
            allowed: Some(allowed),
            outcome: match error <= allowed {
                true => Outcome::Passed,
                false => Outcome::failed(format!("{error:.1e} is more than {allowed:.0e}")),
            },
        }
    }

    /// A figure that has no bound. One that is not finite is a failure.
    pub fn figure(name: impl Into<String>, value: f64, unit: Unit) -> Self {
        Self {
            name: name.into(),
            value: Some(value),
            unit,
            allowed: None,
            outcome: match value.is_finite() {
                true => Outcome::Passed,
                false => Outcome::failed("it could not be measured"),
            },
        }
    }

    /// A row without a figure.
    pub fn without_value(name: impl Into<String>, unit: Unit, outcome: Outcome) -> Self {
        Self {
            name: name.into(),
            value: None,
            unit,
            allowed: None,
            outcome,
        }
    }
}

/// The losses of two runs after one step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LossPair {
    /// Steps made.
    pub step: usize,
    /// The reference's.
    pub expected: f64,
    /// The backend's.
    pub found: f64,
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq)]
pub struct Findings {
    /// The outcome of all rows together.
    pub outcome: Outcome,
    /// The figures and comparisons.
    pub rows: Vec<Finding>,
    /// The losses that were compared, where there are any.
    pub losses: Vec<LossPair>,
}

impl Findings {
    /// A result without rows.
    pub fn of(outcome: Outcome) -> Self {
        Self {
            outcome,
            rows: Vec::new(),
            losses: Vec::new(),
        }
    }

    /// The result of rows: failed if one failed, skipped if all were.
    pub fn of_rows(rows: Vec<Finding>) -> Self {
        let failed: Vec<&Finding> = rows.iter().filter(|row| row.outcome.is_failure()).collect();
        let outcome = match (failed.first(), rows.first()) {
            (Some(first), _) => Outcome::failed(format!(
                "{} of {}; first {}: {}",
                failed.len(),
                rows.len(),
                first.name,
                first.outcome
            )),
            (None, Some(first)) if !rows.iter().any(|row| row.outcome == Outcome::Passed) => {
                first.outcome.clone()
            }
            (None, None) => Outcome::skipped("there is nothing to compare"),
            (None, Some(_)) => Outcome::Passed,
        };
        Self {
            rows,
            ..Self::of(outcome)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_failed_row_fails_the_check() {
        let right = Finding::error("a", 1e-6, 1e-4);
        let wrong = Finding::error("b", 1e-2, 1e-4);
        let nan = Finding::error("c", f64::NAN, 1e-4);
        let skipped = Finding::without_value("d", Unit::Relative, Outcome::skipped("no time"));
        let of = |rows: &[&Finding]| Findings::of_rows(rows.iter().copied().cloned().collect());
        assert_eq!(of(&[&right, &skipped]).outcome, Outcome::Passed);
        assert_eq!(of(&[&skipped]).outcome, Outcome::skipped("no time"));
        assert!(of(&[&right, &wrong]).outcome.is_failure());
        assert!(of(&[&right, &nan]).outcome.is_failure());
        assert!(!of(&[]).outcome.is_failure());
    }
}
