//! Results of checks.

use std::fmt;

use emberlm_system::measure::Unit;
use serde::Serialize;

/// Outcome of a check or of one of its rows.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// The check ran, and its result is correct.
    Passed,
    /// The check gave a wrong result or did not finish.
    Failed { reason: String },
    /// The check was not run.
    Skipped { reason: String },
}

impl Outcome {
    pub fn failed(reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self::Failed { reason }
    }

    pub fn skipped(reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self::Skipped { reason }
    }

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

/// A measured value or a comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    pub name: String,
    /// The value. `None` if it could not be measured.
    pub value: Option<f64>,
    pub unit: Unit,
    /// The maximum value that passes, for comparisons.
    pub allowed: Option<f64>,
    #[serde(flatten)]
    pub outcome: Outcome,
}

impl Finding {
    /// A relative error that passes up to `allowed`.
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

    /// A measured value without a limit. Fails if the value is not finite.
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

    /// A row without a value.
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

/// The losses of two runs at one step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LossPair {
    pub step: usize,
    /// Loss of the reference.
    pub expected: f64,
    /// Loss of the backend.
    pub found: f64,
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq)]
pub struct Findings {
    /// The outcome of all rows combined.
    pub outcome: Outcome,
    /// Measured values and comparisons.
    pub rows: Vec<Finding>,
    /// Compared losses, if any.
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

    /// Combines rows: failed if any row failed, skipped if all were skipped.
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
