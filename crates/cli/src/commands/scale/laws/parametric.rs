//! The parametric law (approach 3).
//!
//! ```text
//! L(N, D) = E + A / N^α + B / D^β
//! minimizes  Σ Huber_δ(ln L(N, D) - ln loss),  δ = 1e-3
//! ```
//!
//! With `C = k N D`, the loss of a budget is lowest at
//! `N* = G (C / k)^(β / (α + β))`, `D* = (C / k)^(α / (α + β)) / G` with `G = (α A / (β B))^(1 / (α + β))`.
//!
//! For given `α` and `β`, the law is linear in `E`, `A` and `B`. A grid of both gives the starts. From the best of them,
//! Levenberg–Marquardt steps with the weights of the Huber loss minimize over `ln A, ln B, α, β, ln E`.

use serde::Serialize;

use super::LawError;
use super::least_squares::{fit, solve};
use super::point::{Point, distinct};

/// The residual above which the Huber loss is linear.
const DELTA: f64 = 1e-3;
/// The exponents of the starts.
const EXPONENTS: [f64; 12] = [
    0.03, 0.06, 0.1, 0.2, 0.3, 0.4, 0.5, 0.65, 0.8, 1.0, 1.4, 2.0,
];
/// Number of starts that are minimized.
const STARTS: usize = 12;
/// The largest number of steps from a start.
const STEPS: usize = 3000;

/// The coefficients of the law.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Parametric {
    /// `E`, in nats per token.
    pub irreducible: f64,
    /// `A`.
    pub a: f64,
    /// `B`.
    pub b: f64,
    pub alpha: f64,
    pub beta: f64,
}

impl Parametric {
    /// Fits the law. `irreducible` fixes `E`.
    ///
    /// # Errors
    /// There are too few points, sizes or token counts, the fixed `E` is not below every loss, or an exponent is not above 0.
    pub fn fit(points: &[Point], irreducible: Option<f64>) -> Result<Self, LawError> {
        let free = if irreducible.is_some() { 4 } else { 5 };
        for (what, least, got) in [
            ("runs", free + 1, points.len()),
            (
                "model sizes",
                3,
                distinct(points.iter().map(|point| point.parameters)),
            ),
            (
                "numbers of tokens",
                3,
                distinct(points.iter().map(|point| point.tokens)),
            ),
        ] {
            if got < least {
                return Err(LawError::TooFew { what, least, got });
            }
        }
        let losses = points.iter().map(|point| point.loss);
        let lowest = losses.fold(f64::INFINITY, f64::min);
        if let Some(value) = irreducible.filter(|value| !(0.0..lowest).contains(value)) {
            return Err(LawError::Irreducible { lowest, value });
        }
        let problem = Problem::new(points, irreducible);
        let mut starts: Vec<(f64, [f64; 5])> = problem.starts(lowest);
        starts.sort_by(|a, b| a.0.total_cmp(&b.0));
        let minimized = starts.into_iter().take(STARTS);
        let minimized = minimized.map(|(_, start)| problem.minimize(start));
        let best = minimized.min_by(|a, b| a.0.total_cmp(&b.0));
        // The grid is not empty.
        let (_, best) = best.unwrap_or((f64::NAN, [f64::NAN; 5]));
        let law = problem.law(best);
        let Self { alpha, beta, .. } = law;
        match alpha > 0.0 && beta > 0.0 {
            true => Ok(law),
            false => Err(LawError::Exponents { alpha, beta }),
        }
    }

    /// Fits other losses of the same runs from this law on.
    pub fn refit(self, points: &[Point], irreducible: Option<f64>) -> Self {
        let problem = Problem::new(points, irreducible);
        problem.law(problem.minimize(problem.unknowns(self)).1)
    }

    /// The loss of a model of `parameters` after `tokens`.
    pub fn loss(&self, parameters: f64, tokens: f64) -> f64 {
        self.irreducible + self.a * parameters.powf(-self.alpha) + self.b * tokens.powf(-self.beta)
    }

    /// The mean Huber loss of the residuals, which the fit minimizes.
    pub fn objective(&self, points: &[Point]) -> f64 {
        let residual =
            |point: &Point| (self.loss(point.parameters, point.tokens) / point.loss).ln();
        let sum: f64 = points.iter().map(|point| huber(residual(point))).sum();
        sum / points.len() as f64
    }

    /// The parameters and tokens of the lowest loss with `C = flops_per_pair · N · D`.
    pub fn optimum(&self, flops: f64, flops_per_pair: f64) -> (f64, f64) {
        let sum = self.alpha + self.beta;
        let g = (self.alpha * self.a / (self.beta * self.b)).powf(1.0 / sum);
        let pairs = flops / flops_per_pair;
        let parameters = g * pairs.powf(self.beta / sum);
        (parameters, pairs / parameters)
    }
}

fn huber(residual: f64) -> f64 {
    let size = residual.abs();
    match size <= DELTA {
        true => 0.5 * size * size,
        false => DELTA * (size - 0.5 * DELTA),
    }
}

/// The fit of some points. The unknowns are `ln A - α n`, `ln B - β d`, `α`, `β` and `ln E`, with the means `n` of `ln N` and
/// `d` of `ln D`, which makes them nearly independent.
struct Problem {
    /// `ln N - n`, `ln D - d` and `ln loss`.
    rows: Vec<[f64; 3]>,
    centre: [f64; 2],
    /// `ln E`, if it is fixed.
    fixed: Option<f64>,
}

impl Problem {
    fn new(points: &[Point], irreducible: Option<f64>) -> Self {
        let count = points.len() as f64;
        let mean = |value: fn(&Point) -> f64| points.iter().map(value).sum::<f64>() / count;
        let centre = [
            mean(|point| point.parameters.ln()),
            mean(|point| point.tokens.ln()),
        ];
        let row = |point: &Point| {
            [
                point.parameters.ln() - centre[0],
                point.tokens.ln() - centre[1],
                point.loss.ln(),
            ]
        };
        Self {
            rows: points.iter().map(row).collect(),
            centre,
            fixed: irreducible.map(f64::ln),
        }
    }

    fn law(&self, [a, b, alpha, beta, e]: [f64; 5]) -> Parametric {
        Parametric {
            irreducible: self.fixed.unwrap_or(e).exp(),
            a: (a + alpha * self.centre[0]).exp(),
            b: (b + beta * self.centre[1]).exp(),
            alpha,
            beta,
        }
    }

    fn unknowns(&self, law: Parametric) -> [f64; 5] {
        [
            law.a.ln() - law.alpha * self.centre[0],
            law.b.ln() - law.beta * self.centre[1],
            law.alpha,
            law.beta,
            law.irreducible.max(f64::MIN_POSITIVE).ln(),
        ]
    }

    /// The starts of the grid with their objectives. `E`, `A` and `B` are those of the least relative squares.
    fn starts(&self, lowest: f64) -> Vec<(f64, [f64; 5])> {
        let mut starts = Vec::new();
        for alpha in EXPONENTS {
            for beta in EXPONENTS {
                let fixed = self.fixed.map(f64::exp);
                let rows = self.rows.iter().map(|[n, d, loss]| {
                    let loss = loss.exp();
                    let terms = [(-alpha * n).exp(), (-beta * d).exp()];
                    (terms, loss, (loss * loss).recip())
                });
                let terms = match fixed {
                    None => fit(rows.map(|([n, d], y, w)| ([n, d, 1.0], y, w))),
                    Some(e) => {
                        let two = fit(rows.map(|(terms, y, w)| (terms, y - e, w)));
                        two.map(|[a, b]| [a, b, e])
                    }
                };
                let Some(terms) = terms else { continue };
                // A term without a share would have no gradient.
                let [a, b, e] = terms.map(|term| term.max(1e-3 * lowest).ln());
                let start = [a, b, alpha, beta, e];
                starts.push((self.objective(start), start));
            }
        }
        starts
    }

    /// The residual of a row, and its derivatives by the unknowns.
    fn residual(&self, x: [f64; 5], [n, d, loss]: [f64; 3]) -> (f64, [f64; 5]) {
        let [a, b, alpha, beta, e] = x;
        let e = self.fixed.unwrap_or(e);
        let terms = [a - alpha * n, b - beta * d, e];
        let most = terms.into_iter().fold(f64::NEG_INFINITY, f64::max);
        let shares = terms.map(|term| (term - most).exp());
        let sum: f64 = shares.iter().sum();
        let [p, q, r] = shares.map(|share| share / sum);
        let by_e = if self.fixed.is_some() { 0.0 } else { r };
        (most + sum.ln() - loss, [p, q, -p * n, -q * d, by_e])
    }

    fn objective(&self, x: [f64; 5]) -> f64 {
        let residuals = self.rows.iter().map(|&row| self.residual(x, row).0);
        residuals.map(huber).sum()
    }

    /// Minimizes from a start. Returns the objective and the unknowns.
    fn minimize(&self, start: [f64; 5]) -> (f64, [f64; 5]) {
        let (mut x, mut objective) = (start, self.objective(start));
        let mut damping = 1e-3;
        let mut without_progress = 0;
        for _ in 0..STEPS {
            let (mut matrix, mut right) = ([[0.0; 5]; 5], [0.0; 5]);
            for &row in &self.rows {
                let (residual, by) = self.residual(x, row);
                let weight = DELTA / residual.abs().max(DELTA);
                for i in 0..5 {
                    right[i] -= weight * by[i] * residual;
                    for j in 0..5 {
                        matrix[i][j] += weight * by[i] * by[j];
                    }
                }
            }
            for (i, row) in matrix.iter_mut().enumerate() {
                row[i] += damping * row[i] + 1e-12;
            }
            let step = solve(matrix, right);
            let next = step.map(|step| std::array::from_fn(|i| x[i] + step[i]));
            let better = next.map(|next| (self.objective(next), next));
            match better.filter(|(found, _)| *found < objective) {
                Some((found, next)) => {
                    without_progress = match objective - found < 1e-12 * objective {
                        true => without_progress + 1,
                        false => 0,
                    };
                    (objective, x) = (found, next);
                    damping = f64::max(damping / 3.0, 1e-12);
                }
                None => damping *= 4.0,
            }
            if damping > 1e12 || without_progress == 5 || objective < 1e-28 {
                break;
            }
        }
        (objective, x)
    }
}
