//! Compares the results of two implementations.

use serde::{Deserialize, Serialize};

use super::case::NamedValues;

/// Minimum norm that errors are relative to. A smaller expected norm is the result of cancellation.
const LEAST_NORM: f64 = 0.1;

/// The results of an operation or a model, or the reason that there are none.
pub struct Outcome {
    /// The name of the operation or model.
    pub name: String,
    /// The maximum relative error.
    pub tolerance: f64,
    /// The output and the gradients.
    pub parts: Result<Vec<NamedValues>, String>,
}

impl Outcome {
    /// A failed outcome for an operation that the other implementation lacks.
    pub fn missing(&self) -> Self {
        Self {
            name: self.name.clone(),
            tolerance: self.tolerance,
            parts: Err("it has none of this name".to_owned()),
        }
    }
}

/// The comparison of an operation or a model with the reference.
#[derive(Debug, Serialize, Deserialize)]
pub struct Comparison {
    /// The name of the operation or model.
    pub name: String,
    /// The output or gradient with the largest error.
    pub part: String,
    /// The largest relative error. `None` if there are no results.
    pub error: Option<f64>,
    /// The maximum relative error.
    pub tolerance: f64,
    /// The reason that there are no results.
    pub failure: Option<String>,
}

impl Comparison {
    /// Returns true if the error is within the tolerance.
    pub fn passed(&self) -> bool {
        self.error.is_some_and(|error| error <= self.tolerance)
    }
}

/// Compares each output and gradient, and returns the comparison with the largest error.
pub fn compare(found: Outcome, expected: Outcome) -> Comparison {
    let comparison = |part: &str, error, failure| Comparison {
        name: found.name.clone(),
        part: part.to_owned(),
        error,
        tolerance: found.tolerance,
        failure,
    };
    match (&found.parts, &expected.parts) {
        (Err(reason), _) => comparison("", None, Some(reason.clone())),
        (_, Err(reason)) => comparison("", None, Some(format!("the reference failed: {reason}"))),
        (Ok(found), Ok(expected)) => {
            let errors = found.iter().zip(expected).map(|(found, expected)| {
                (found.name.as_str(), error(&found.values, &expected.values))
            });
            // `total_cmp` orders NaN as the largest error.
            let worst = errors.max_by(|(_, a), (_, b)| a.total_cmp(b));
            match worst {
                Some((part, error)) if found.len() == expected.len() && error.is_finite() => {
                    comparison(part, Some(error), None)
                }
                Some((part, _)) => comparison(part, None, Some("not a number".to_owned())),
                None => comparison("", None, Some("nothing came out".to_owned())),
            }
        }
    }
}

/// Returns `‖found - expected‖ / ‖expected‖`, or infinity if the lengths differ.
fn error(found: &[f32], expected: &[f32]) -> f64 {
    if found.len() != expected.len() {
        return f64::INFINITY;
    }
    let pairs = found.iter().zip(expected);
    let squared: f64 = pairs
        .map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2))
        .sum();
    let norm: f64 = expected.iter().map(|b| f64::from(*b).powi(2)).sum();
    squared.sqrt() / norm.sqrt().max(LEAST_NORM)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(values: &[f32]) -> Outcome {
        Outcome {
            name: "linear".to_owned(),
            tolerance: 1e-4,
            parts: Ok(vec![NamedValues {
                name: "output".to_owned(),
                values: values.to_vec(),
            }]),
        }
    }

    #[test]
    fn errors_beyond_the_tolerance_are_reported() {
        let expected = [3.0, 4.0];
        assert!(compare(outcome(&[3.0, 4.0]), outcome(&expected)).passed());
        let off = compare(outcome(&[3.0, 4.5]), outcome(&expected));
        assert!(!off.passed());
        assert!((off.error.unwrap_or(0.0) - 0.1).abs() < 1e-9);
        for wrong in [&[f32::NAN, 4.0][..], &[3.0], &[f32::INFINITY, 4.0]] {
            let comparison = compare(outcome(wrong), outcome(&expected));
            assert!(!comparison.passed(), "{wrong:?}");
            assert_eq!(comparison.failure.as_deref(), Some("not a number"));
        }
        let failed = Outcome {
            parts: Err("no shader".to_owned()),
            ..outcome(&[])
        };
        let comparison = compare(failed, outcome(&expected));
        assert_eq!(comparison.failure.as_deref(), Some("no shader"));
    }
}
