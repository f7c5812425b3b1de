//! A factor on the loss, and so on every gradient: where products are made in f16, gradients that are too small for it
//! would be 0. The norm and the update take the factor out again, and the loss is never shown with it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The factor of a run's first step.
const FIRST: f64 = 65536.0;
/// It is doubled no further.
const MOST: f64 = 16_777_216.0;
/// Steps taken in a row after which it is doubled.
const INTERVAL: usize = 2000;

/// The loss scale.
///
/// It follows the rule of PyTorch's `GradScaler`: halved at a step whose gradients are not finite, which is skipped, and doubled
/// after 2000 steps in a row that were. It stays between 1 and 2²⁴. It belongs to the position of a run: a checkpoint
/// holds it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LossScale {
    /// The factor: a power of two, which causes no rounding.
    factor: f64,
    /// Steps applied since the factor changed or a step was skipped.
    taken: usize,
}

impl Default for LossScale {
    fn default() -> Self {
        Self {
            factor: FIRST,
            taken: 0,
        }
    }
}

impl LossScale {
    /// The factor of the loss.
    pub fn factor(&self) -> f64 {
        self.factor
    }

    /// Returns true if the factor changes after this many further applied steps.
    pub fn grows_after(&self, steps: usize) -> bool {
        self.taken + steps >= INTERVAL && self.factor < MOST
    }

    /// A step was taken.
    pub fn take(&mut self) {
        self.taken += 1;
        if self.grows_after(0) {
            self.factor *= 2.0;
            self.taken = 0;
        }
    }

    /// A step was skipped, for any reason.
    pub fn interrupt(&mut self) {
        self.taken = 0;
    }

    /// A step's gradients were not finite, though its loss was: the factor that they are tried with next. None where it
    /// was 1, so that it is not to blame.
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
    fn it_is_doubled_after_2000_steps_in_a_row() {
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
    fn it_stays_between_its_bounds() {
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
    fn it_comes_back_from_a_checkpoint() {
        let mut scale = LossScale::default();
        taken(&mut scale, 2007);
        let text = serde_json::to_string(&scale).unwrap();
        assert_eq!(text, r#"{"factor":131072.0,"taken":7}"#);
        assert_eq!(serde_json::from_str::<LossScale>(&text).unwrap(), scale);
    }
}
