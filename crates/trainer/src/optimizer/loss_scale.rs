//! Adaptive loss scaling. With f16 matrix products, small gradients would underflow to 0, so the loss, and
//! thereby every gradient, is multiplied by a factor. The gradient norm and the update divide by it again,
//! and the reported loss is unscaled.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The initial factor.
const INITIAL: f64 = 65536.0;
/// The upper bound of the factor.
const MAX: f64 = 16_777_216.0;
/// Consecutive applied steps after which the factor doubles.
const INTERVAL: usize = 2000;

/// A loss scale with the rule of PyTorch's `GradScaler`: a step with non-finite gradients is skipped and
/// halves the factor; 2000 consecutive applied steps double it. The factor stays between 1 and 2²⁴. It is
/// part of a run's state and saved in checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LossScale {
    /// The factor. It is a power of two, so scaling is exact.
    factor: f64,
    /// Steps applied since the factor changed or a step was skipped.
    taken: usize,
}

impl Default for LossScale {
    fn default() -> Self {
        Self {
            factor: INITIAL,
            taken: 0,
        }
    }
}

impl LossScale {
    /// The current factor.
    pub fn factor(&self) -> f64 {
        self.factor
    }

    /// Returns true if the factor doubles after `steps` more applied steps.
    pub fn grows_after(&self, steps: usize) -> bool {
        self.taken + steps >= INTERVAL && self.factor < MAX
    }

    /// Counts an applied step.
    pub fn take(&mut self) {
        self.taken += 1;
        if self.grows_after(0) {
            self.factor *= 2.0;
            self.taken = 0;
        }
    }

    /// Restarts the count after a step was skipped for any reason.
    pub fn interrupt(&mut self) {
        self.taken = 0;
    }

    /// Halves the factor after a step with a finite loss but non-finite gradients, and returns the new
    /// factor. `None` if the factor is 1 already, so scaling is not the cause.
    pub fn halve(&mut self) -> Option<f64> {
        self.taken = 0;
        if self.factor <= 1.0 {
            return None;
        }
        self.factor = (self.factor / 2.0).max(1.0);
        Some(self.factor)
    }

    /// One that begins elsewhere.
    #[cfg(test)]
    pub(crate) fn at(factor: f64) -> Self {
        Self { factor, taken: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(scale: &mut LossScale, steps: usize) -> f64 {
        (0..steps).for_each(|_| scale.take());
        scale.factor()
    }

    // PyTorch's defaults: init_scale 65536, growth_factor 2, backoff_factor 0.5, growth_interval 2000.
    #[test]
    fn the_scale_doubles_after_2000_consecutive_steps() {
        let mut scale = LossScale::default();
        assert!(!scale.grows_after(1999) && scale.grows_after(2000));
        assert_eq!(taken(&mut scale, 1999), 65536.0);
        assert!(scale.grows_after(1));
        assert_eq!(taken(&mut scale, 1), 131_072.0);
        assert_eq!(taken(&mut scale, 1999), 131_072.0);
        assert_eq!(scale.halve(), Some(65536.0));
        assert_eq!(taken(&mut scale, 1999), 65536.0, "the count restarts");
        scale.interrupt();
        assert_eq!(taken(&mut scale, 1999), 65536.0, "and so they are here");
        assert_eq!(taken(&mut scale, 1), 131_072.0);
    }

    #[test]
    fn the_scale_stays_within_its_bounds() {
        let mut scale = LossScale::default();
        assert_eq!(taken(&mut scale, 8 * 2000), 16_777_216.0);
        assert_eq!(taken(&mut scale, 3 * 2000), 16_777_216.0);
        assert!(!scale.grows_after(2000));
        let halved: Vec<f64> = std::iter::from_fn(|| scale.halve()).collect();
        assert_eq!(halved.len(), 24);
        assert_eq!((halved[0], halved[23]), (8_388_608.0, 1.0));
        assert_eq!(scale.halve(), None);
        assert_eq!(scale.factor(), 1.0);
        assert_eq!(taken(&mut scale, 2000), 2.0, "and up again");
    }

    #[test]
    fn the_scale_round_trips_through_a_checkpoint() {
        let mut scale = LossScale::default();
        taken(&mut scale, 2007);
        let text = serde_json::to_string(&scale).unwrap();
        assert_eq!(text, r#"{"factor":131072.0,"taken":7}"#);
        assert_eq!(serde_json::from_str::<LossScale>(&text).unwrap(), scale);
    }
}
