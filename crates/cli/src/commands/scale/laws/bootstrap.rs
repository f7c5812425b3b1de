//! All laws of some runs, with 95% intervals by resampled residuals.
//!
//! Each resample has the sizes and tokens of the runs, and the fitted losses times the exponentials of residuals drawn with
//! replacement. A fit of `p` coefficients to `n` runs makes residuals too small by `√((n - p) / n)`, so they are divided
//! by that. The laws of the resamples are fitted again; an interval is between their 2.5% and 97.5% quantiles.

use emberlm_system::random::SplitMix64;
use serde::Serialize;

use super::LawError;
use super::isoflop::{Minimum, OptimalLaws};
use super::parametric::Parametric;
use super::point::{Point, budgets};

/// A 95% interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    pub low: f64,
    pub high: f64,
}

impl Interval {
    /// The interval of the values of resamples; `None` if fewer than half of `resamples` have a value.
    fn of(mut values: Vec<f64>, resamples: usize) -> Option<Self> {
        values.retain(|value| value.is_finite());
        if values.is_empty() || 2 * values.len() < resamples {
            return None;
        }
        values.sort_by(f64::total_cmp);
        let quantile = |share: f64| {
            let place = share * (values.len() - 1) as f64;
            let (below, above) = (place.floor() as usize, place.ceil() as usize);
            values[below] + place.fract() * (values[above] - values[below])
        };
        Some(Self {
            low: quantile(0.025),
            high: quantile(0.975),
        })
    }
}

/// The laws of some runs.
#[derive(Clone, Debug)]
pub struct Laws {
    /// A fit for each budget, in ascending order.
    pub minima: Vec<Minimum>,
    /// Power laws through the minima; `None` if fewer than two budgets have one inside their sizes.
    pub optimal: Option<OptimalLaws>,
    /// The parametric law.
    pub parametric: Result<Parametric, LawError>,
    optimal_resamples: Vec<OptimalLaws>,
    parametric_resamples: Vec<Parametric>,
    resamples: usize,
}

impl Laws {
    /// Fits all laws. `irreducible` fixes `E`. The resamples depend only on `seed`.
    pub fn fit(points: &[Point], irreducible: Option<f64>, resamples: usize, seed: u64) -> Self {
        let minima: Vec<Minimum> = budgets(points).iter().map(|one| Minimum::of(one)).collect();
        let optimal = OptimalLaws::of(&minima);
        let parametric = Parametric::fit(points, irreducible);
        let mut this = Self {
            minima,
            optimal,
            parametric,
            optimal_resamples: Vec::new(),
            parametric_resamples: Vec::new(),
            resamples,
        };
        if let Ok(law) = this.parametric {
            let free = if irreducible.is_some() { 4 } else { 5 };
            let fitted = |point: &Point| law.loss(point.parameters, point.tokens);
            let drawn = Resampler::new(points.iter().map(|p| (*p, fitted(p), free, points.len())));
            let drawn = drawn.draw(resamples, SplitMix64::stream(seed, 0));
            this.parametric_resamples = drawn
                .map(|points| law.refit(&points, irreducible))
                .collect();
        }
        if this.optimal.is_some() {
            let runs = budgets(points).into_iter().zip(&this.minima);
            let runs = runs.flat_map(|(runs, minimum)| {
                let count = runs.len();
                let fitted = runs.into_iter();
                let fitted = fitted.filter_map(move |p| Some((p, minimum.loss(p.parameters)?)));
                fitted.map(move |(p, loss)| (p, loss, 3, count))
            });
            let drawn = Resampler::new(runs).draw(resamples, SplitMix64::stream(seed, 1));
            let minima = drawn.map(|points| {
                let minima = budgets(&points);
                minima
                    .iter()
                    .map(|one| Minimum::of(one))
                    .collect::<Vec<_>>()
            });
            this.optimal_resamples = minima.filter_map(|all| OptimalLaws::of(&all)).collect();
        }
        this
    }

    /// The interval of a value of the power laws.
    pub fn optimal_interval(&self, value: impl Fn(&OptimalLaws) -> f64) -> Option<Interval> {
        let values = self.optimal_resamples.iter().map(value).collect();
        Interval::of(values, self.resamples)
    }

    /// The interval of a value of the parametric law.
    pub fn parametric_interval(&self, value: impl Fn(&Parametric) -> f64) -> Option<Interval> {
        let values = self.parametric_resamples.iter().map(value).collect();
        Interval::of(values, self.resamples)
    }
}

/// Runs with fitted losses, and the residuals to draw from.
struct Resampler {
    fitted: Vec<Point>,
    residuals: Vec<f64>,
}

impl Resampler {
    /// Collects the fits: a run, its fitted loss, and the numbers of coefficients and runs of its fit. A fit with as many
    /// coefficients as runs has no residuals.
    fn new(fits: impl Iterator<Item = (Point, f64, usize, usize)>) -> Self {
        let (mut fitted, mut residuals) = (Vec::new(), Vec::new());
        for (point, loss, free, count) in fits {
            if count > free {
                let shrunk = ((count - free) as f64 / count as f64).sqrt();
                residuals.push((point.loss / loss).ln() / shrunk);
            }
            fitted.push(Point { loss, ..point });
        }
        Self { fitted, residuals }
    }

    /// Draws resamples. There are none without residuals.
    fn draw(self, count: usize, mut random: SplitMix64) -> impl Iterator<Item = Vec<Point>> {
        let count = if self.residuals.is_empty() { 0 } else { count };
        let drawn = move || {
            let fitted = self.fitted.iter();
            let with_residual = fitted.map(|point| {
                let residual = self.residuals[random.index(self.residuals.len())];
                Point {
                    loss: point.loss * residual.exp(),
                    ..*point
                }
            });
            with_residual.collect()
        };
        std::iter::repeat_with(drawn).take(count)
    }
}
