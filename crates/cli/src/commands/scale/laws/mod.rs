//! Scaling laws: fits of the loss of training runs by parameters `N`, tokens `D` and floating-point operations `C`, by the
//! methods of Hoffmann et al. 2022 ("Training compute-optimal large language models").
//!
//! | module | contents |
//! |---|---|
//! | `point` | runs, and their groups by budget |
//! | `isoflop` | the minimum of each budget (approach 2), and power laws through the minima |
//! | `parametric` | `L(N, D) = E + A / N^α + B / D^β` (approach 3) |
//! | `bootstrap` | intervals by resampled residuals |
//! | `least_squares` | linear least squares |

mod bootstrap;
mod isoflop;
mod least_squares;
mod parametric;
mod point;
#[cfg(test)]
mod tests;

pub use bootstrap::{Interval, Laws};
#[cfg(test)]
use isoflop::MinimumKind;
pub use isoflop::{Minimum, PowerLaw};
pub use parametric::Parametric;
pub use point::{Point, budgets};

/// An error of a fit.
#[derive(Clone, Debug, thiserror::Error, PartialEq)]
pub enum LawError {
    /// A value of a point is out of range.
    #[error("`{field}` must be {rule} (got {value})")]
    Value {
        field: &'static str,
        rule: &'static str,
        value: f64,
    },
    /// There are too few points for a fit.
    #[error("the parametric fit needs at least {least} {what} (got {got})")]
    TooFew {
        what: &'static str,
        least: usize,
        got: usize,
    },
    /// The losses do not fall with the model or the tokens.
    #[error(
        "the exponents α and β must be above 0 (got {alpha:.3} and {beta:.3}): the losses do not fall with both parameters and tokens"
    )]
    Exponents { alpha: f64, beta: f64 },
    /// The irreducible loss is not below every loss.
    #[error(
        "the irreducible loss must be at least 0 and below the lowest loss {lowest} (got {value})"
    )]
    Irreducible { lowest: f64, value: f64 },
}
