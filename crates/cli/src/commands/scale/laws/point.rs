//! Training runs as points.

use serde::Serialize;

use super::LawError;

/// The size and the result of a training run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Parameters of the model, `N`.
    pub parameters: f64,
    /// Tokens of the training, `D`.
    pub tokens: f64,
    /// Floating-point operations of the training, `C`.
    pub flops: f64,
    /// The final loss, in nats per token.
    pub loss: f64,
}

/// Points whose budgets differ by less than this factor belong to one budget: runs have a whole number of steps.
const SAME_BUDGET: f64 = 1.15;

impl Point {
    /// Checks that every value can be the argument of a logarithm.
    ///
    /// # Errors
    /// A value is not finite or not above 0.
    pub fn checked(self) -> Result<Self, LawError> {
        for (field, value) in [
            ("parameters", self.parameters),
            ("tokens", self.tokens),
            ("flops", self.flops),
            ("loss", self.loss),
        ] {
            if !(value.is_finite() && value > 0.0) {
                let rule = "finite and above 0";
                return Err(LawError::Value { field, rule, value });
            }
        }
        Ok(self)
    }
}

/// The points by ascending budget.
pub fn budgets(points: &[Point]) -> Vec<Vec<Point>> {
    let mut sorted = points.to_vec();
    sorted.sort_by(|a, b| a.flops.total_cmp(&b.flops));
    let same = |a: &Point, b: &Point| b.flops < SAME_BUDGET * a.flops;
    sorted.chunk_by(same).map(<[Point]>::to_vec).collect()
}

/// The number of distinct values.
pub(super) fn distinct(values: impl Iterator<Item = f64>) -> usize {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    values.len()
}
