//! The loss over the learning rate, and the learning rates that it suggests.

use serde::Serialize;

use crate::plot::local_regression;

/// The weight of earlier losses in the average that ends the test.
const MOMENTUM: f64 = 0.9;
/// An average loss above this multiple of the first loss ends the test.
const DIVERGENCE: f64 = 1.5;
/// The loss is smoothed over the steps whose learning rate differs by at most this factor.
const REACH: f64 = 2.0;

/// A loss that falls by a smaller part of itself is constant but for rounding.
const LEAST_FALL: f64 = 1e-6;

/// A step of the test.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    pub learning_rate: f64,
    pub loss: f64,
}

/// The steps of the test, in order.
#[derive(Clone, Debug, Default)]
pub struct Curve {
    /// The steps with a finite loss.
    pub points: Vec<Point>,
    /// True if the loss grew far above that of the first step, or is not finite.
    pub has_diverged: bool,
    average: f64,
}

/// The learning rates that a test suggests.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Suggestion {
    /// The learning rate at which the smoothed loss falls fastest with the logarithm of the learning rate.
    pub steepest_learning_rate: f64,
    /// The learning rate of the lowest smoothed loss. Above it, the loss grows again.
    pub lowest_loss_learning_rate: f64,
    /// The lowest smoothed loss.
    pub lowest_loss: f64,
}

impl Curve {
    /// Adds a step.
    pub fn push(&mut self, learning_rate: f64, loss: f64) {
        if !loss.is_finite() {
            self.has_diverged = true;
            return;
        }
        self.points.push(Point {
            learning_rate,
            loss,
        });
        let first = self.points[0].loss;
        self.average = match self.points.len() {
            1 => loss,
            _ => MOMENTUM * self.average + (1.0 - MOMENTUM) * loss,
        };
        self.has_diverged |= self.average > DIVERGENCE * first;
    }

    /// The suggested learning rates. `None` if the loss does not fall.
    pub fn suggestion(&self) -> Option<Suggestion> {
        let logs = self
            .points
            .iter()
            .map(|at| (at.learning_rate.ln(), at.loss));
        let logs: Vec<_> = logs.collect();
        let step = logs.get(1)?.0 - logs[0].0;
        let smooth = local_regression(&logs, (REACH.ln() / step).round() as usize);
        let by_loss = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
        let lowest = smooth.iter().min_by(by_loss)?;
        let slope = |pair: &[(f64, f64)]| (pair[1].1 - pair[0].1) / (pair[1].0 - pair[0].0);
        let pairs = smooth.windows(2).filter(|pair| pair[1].0 <= lowest.0);
        let steepest = pairs.min_by(|a, b| slope(a).total_cmp(&slope(b)))?;
        let fall = smooth[0].1 - lowest.1;
        (fall > LEAST_FALL * smooth[0].1.abs()).then_some(Suggestion {
            steepest_learning_rate: steepest[1].0.exp(),
            lowest_loss_learning_rate: lowest.0.exp(),
            lowest_loss: lowest.1,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten steps per decade from 1e-4.
    fn curve(losses: impl IntoIterator<Item = f64>) -> Curve {
        let mut curve = Curve::default();
        for (at, loss) in losses.into_iter().enumerate() {
            curve.push(1e-4 * 10f64.powf(at as f64 / 10.0), loss);
        }
        curve
    }

    #[test]
    fn the_steepest_and_the_lowest_point_are_those_of_the_curve() {
        // In x = log10 of the learning rate: a logistic fall around 1e-2, and a quadratic rise above 0.1.
        let losses = (0..=50).map(|at| {
            let x = -4.0 + f64::from(at) / 10.0;
            4.0 - 2.0 / (1.0 + (-4.0 * (x + 2.0)).exp()) + 3.0 * (x + 1.0).max(0.0).powi(2)
        });
        let found = curve(losses).suggestion().unwrap();
        let log = |rate: f64| rate.log10();
        assert!(
            (log(found.steepest_learning_rate) + 2.0).abs() < 0.11,
            "{found:?}"
        );
        assert!(
            (log(found.lowest_loss_learning_rate) + 1.0).abs() < 0.25,
            "{found:?}"
        );
        assert!((1.9..2.1).contains(&found.lowest_loss), "{found:?}");
    }

    #[test]
    fn a_loss_that_does_not_fall_suggests_nothing() {
        assert_eq!(curve([3.0; 20]).suggestion(), None);
        let rising = (0..9).map(|at| 2.0 + f64::from(at) / 100.0);
        assert_eq!(curve(rising).suggestion(), None);
        assert_eq!(curve([]).suggestion(), None);
        assert_eq!(curve([1.0]).suggestion(), None);
    }

    #[test]
    fn a_growing_or_infinite_loss_is_divergence() {
        assert!(!curve([4.0, 3.0, 3.5, 4.5]).has_diverged);
        assert!(curve((0..30).map(|at| 4.0 + f64::from(at))).has_diverged);
        let infinite = curve([4.0, f64::INFINITY]);
        assert!(infinite.has_diverged && infinite.points.len() == 1);
    }
}
