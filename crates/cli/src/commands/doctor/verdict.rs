//! What two backends' numbers say.

use serde::Serialize;

use super::case::Part;

/// Below this norm what is expected cancels to nothing, and errors are measured against it.
const LEAST_NORM: f64 = 0.1;

/// What came out of an operation or a model, or why nothing did.
pub struct Outcome {
    /// Of the operation or model.
    pub name: String,
    /// How far it may be off.
    pub tolerance: f64,
    /// The output and the gradients.
    pub parts: Result<Vec<Part>, String>,
}

impl Outcome {
    /// In place of what it would be compared with.
    pub fn missing(&self) -> Self {
        Self {
            name: self.name.clone(),
            tolerance: self.tolerance,
            parts: Err("it has none of this name".to_owned()),
        }
    }
}

/// What was found of an operation or a model.
#[derive(Debug, Serialize)]
pub struct Verdict {
    /// Of the operation or model.
    pub name: String,
    /// The output, or the gradient, that is the furthest off.
    pub part: String,
    /// How far; none where nothing came out.
    pub error: Option<f64>,
    /// How far it may be off.
    pub tolerance: f64,
    /// Why nothing came out.
    pub failure: Option<String>,
}

impl Verdict {
    /// Whether it is close enough.
    pub fn passed(&self) -> bool {
        self.error.is_some_and(|error| error <= self.tolerance)
    }
}

/// Compares each output and gradient; the one that is the furthest off speaks for all.
pub fn compare(found: Outcome, expected: Outcome) -> Verdict {
    let verdict = |part: &str, error, failure| Verdict {
        name: found.name.clone(),
        part: part.to_owned(),
        error,
        tolerance: found.tolerance,
        failure,
    };
    match (&found.parts, &expected.parts) {
        (Err(reason), _) => verdict("", None, Some(reason.clone())),
        (_, Err(reason)) => verdict("", None, Some(format!("the reference failed: {reason}"))),
        (Ok(found), Ok(expected)) => {
            let errors = found.iter().zip(expected).map(|(found, expected)| {
                (found.name.as_str(), error(&found.values, &expected.values))
            });
            // Nothing is further off than what is no number.
            let worst = errors.max_by(|(_, a), (_, b)| a.total_cmp(b));
            match worst {
                Some((part, error)) if found.len() == expected.len() && error.is_finite() => {
                    verdict(part, Some(error), None)
                }
                Some((part, _)) => verdict(part, None, Some("not a number".to_owned())),
                None => verdict("", None, Some("nothing came out".to_owned())),
            }
        }
    }
}

/// `‖found - expected‖ / ‖expected‖`; infinite where there are not as many.
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
            parts: Ok(vec![Part {
                name: "output".to_owned(),
                values: values.to_vec(),
            }]),
        }
    }

    #[test]
    fn what_is_off_is_told() {
        let expected = [3.0, 4.0];
        assert!(compare(outcome(&[3.0, 4.0]), outcome(&expected)).passed());
        let off = compare(outcome(&[3.0, 4.5]), outcome(&expected));
        assert!(!off.passed());
        assert!((off.error.unwrap_or(0.0) - 0.1).abs() < 1e-9);
        for wrong in [&[f32::NAN, 4.0][..], &[3.0], &[f32::INFINITY, 4.0]] {
            let verdict = compare(outcome(wrong), outcome(&expected));
            assert!(!verdict.passed(), "{wrong:?}");
            assert_eq!(verdict.failure.as_deref(), Some("not a number"));
        }
        let failed = Outcome {
            parts: Err("no shader".to_owned()),
            ..outcome(&[])
        };
        let verdict = compare(failed, outcome(&expected));
        assert_eq!(verdict.failure.as_deref(), Some("no shader"));
    }
}
