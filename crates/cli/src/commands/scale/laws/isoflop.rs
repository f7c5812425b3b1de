//! The compute-optimal size of each budget, and how it grows with the budget (approach 2).
//!
//! ```text
//! L(N)  = c0 + c1 ln N + c2 (ln N)²      the runs of a budget C
//! N*(C) = k C^a,  D*(C) = m C^b          through the minima
//! ```

use serde::Serialize;

use super::least_squares::fit;
use super::point::{Point, distinct};

/// The fit of a parabola to the runs of a budget.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Minimum {
    /// The geometric mean of the runs' operations.
    pub flops: f64,
    /// The number of distinct model sizes.
    pub sizes: usize,
    pub kind: MinimumKind,
    /// The smallest and the largest model.
    pub range: (f64, f64),
    /// The parabola in `ln N - centre`, from the constant upwards.
    #[serde(skip)]
    parabola: Option<[f64; 3]>,
    /// The mean of `ln N`.
    #[serde(skip)]
    centre: f64,
    /// Parameters, tokens and loss at the minimum; `None` if there is none.
    pub optimum: Option<Optimum>,
}

/// The compute-optimal run of a budget.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Optimum {
    pub parameters: f64,
    pub tokens: f64,
    pub loss: f64,
}

emberlm_system::named! {
    /// The place of a minimum.
    #[derive(Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum MinimumKind {
        /// Between the smallest and the largest model.
        Inside = "inside",
        /// Below the smallest or above the largest model. Power laws do not use it.
        Outside = "outside the sizes",
        /// The parabola has no minimum.
        None = "no minimum",
        /// There are fewer than 3 model sizes.
        TooFewSizes = "fewer than 3 sizes",
    }
}

impl Minimum {
    /// Fits the runs of one budget.
    pub fn of(points: &[Point]) -> Self {
        let count = points.len() as f64;
        let mean = |value: fn(&Point) -> f64| points.iter().map(value).sum::<f64>() / count;
        let centre = mean(|point| point.parameters.ln());
        let row = |point: &Point| {
            let x = point.parameters.ln() - centre;
            [1.0, x, x * x]
        };
        let quadratic = |value: fn(&Point) -> f64| {
            fit(points.iter().map(|point| (row(point), value(point), 1.0)))
        };
        let sizes = distinct(points.iter().map(|point| point.parameters));
        let ends = points.iter().map(|point| point.parameters);
        let range = ends.fold((f64::INFINITY, 0.0), |(low, high): (f64, f64), n| {
            (low.min(n), high.max(n))
        });
        let parabola = quadratic(|point| point.loss).filter(|_| sizes >= 3);
        let optimum = parabola.filter(|[_, _, bend]| *bend > 0.0);
        let optimum = optimum.and_then(|[constant, slope, bend]| {
            let x = -slope / (2.0 * bend);
            let [a, b, c] = quadratic(|point| point.tokens.ln())?;
            Some(Optimum {
                parameters: (x + centre).exp(),
                tokens: (a + b * x + c * x * x).exp(),
                loss: constant + x * (slope + bend * x),
            })
        });
        let kind = match optimum {
            _ if sizes < 3 => MinimumKind::TooFewSizes,
            None => MinimumKind::None,
            Some(at) if at.parameters < range.0 || at.parameters > range.1 => MinimumKind::Outside,
            Some(_) => MinimumKind::Inside,
        };
        Self {
            flops: mean(|point| point.flops.ln()).exp(),
            sizes,
            kind,
            range,
            parabola,
            centre,
            optimum,
        }
    }

    /// The loss of the parabola for a model of `parameters`; `None` without a parabola.
    pub fn loss(&self, parameters: f64) -> Option<f64> {
        let x = parameters.ln() - self.centre;
        let [constant, slope, bend] = self.parabola?;
        Some(constant + x * (slope + bend * x))
    }
}

/// `coefficient · C^exponent`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PowerLaw {
    pub coefficient: f64,
    pub exponent: f64,
}

impl PowerLaw {
    /// Fits a line in logarithms. `None` if there are fewer than two budgets.
    pub fn of(points: impl Iterator<Item = (f64, f64)> + Clone) -> Option<Self> {
        let count = points.clone().count() as f64;
        let centre = points.clone().map(|(x, _)| x.ln()).sum::<f64>() / count;
        let rows = points.map(|(x, y)| ([1.0, x.ln() - centre], y.ln(), 1.0));
        let [constant, exponent] = fit(rows)?;
        Some(Self {
            coefficient: (constant - exponent * centre).exp(),
            exponent,
        })
    }

    /// The value for a budget of `flops`.
    pub fn at(self, flops: f64) -> f64 {
        self.coefficient * flops.powf(self.exponent)
    }
}

/// The compute-optimal model and tokens of a budget.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct OptimalLaws {
    /// `N*(C)`.
    pub parameters: PowerLaw,
    /// `D*(C)`.
    pub tokens: PowerLaw,
}

impl OptimalLaws {
    /// Fits power laws through the minima that are inside. `None` if there are fewer than two.
    pub fn of(minima: &[Minimum]) -> Option<Self> {
        let inside = minima.iter().filter(|one| one.kind == MinimumKind::Inside);
        let inside = inside.filter_map(|one| Some((one.flops, one.optimum?)));
        Some(Self {
            parameters: PowerLaw::of(inside.clone().map(|(c, at)| (c, at.parameters)))?,
            tokens: PowerLaw::of(inside.map(|(c, at)| (c, at.tokens)))?,
        })
    }
}
