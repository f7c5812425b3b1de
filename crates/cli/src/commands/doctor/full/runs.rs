//! Checks of training runs: losses against the CPU, and resuming.

use std::time::Duration;

use super::Size;
use super::finding::{Finding, Findings, LossPair, Outcome};
use super::session::Session;
use crate::backend::Placement;
use crate::run_history::{History, Step};

/// Steps of the run whose losses are compared with the CPU.
const CURVE_STEPS: usize = 50;

/// Steps of the run that is stopped and resumed at half of them.
const RESUMED_STEPS: usize = 20;

/// Time limit of one run.
const RUN: Duration = Duration::from_secs(600);

/// Maximum relative difference of losses that f32 rounding explains. It starts at about 1e-6 per step and
/// grows as the runs diverge.
const ALLOWED: f64 = 1e-3;

/// Compares the losses on the backend and on the CPU.
///
/// # Errors
/// Returns an error if a run fails or there is no backend to compare with.
pub fn loss_curve(session: &Session) -> Result<Findings, Outcome> {
    let reference = session.reference()?;
    let found = train(
        session,
        "device",
        CURVE_STEPS,
        CURVE_STEPS,
        session.placement,
    )?;
    let expected = train(session, "reference", CURVE_STEPS, CURVE_STEPS, reference)?;
    compare(&expected, &found)
}

/// Compares the losses of an uninterrupted run and a resumed one.
///
/// # Errors
/// Returns an error if a run fails.
pub fn resume(session: &Session) -> Result<Findings, Outcome> {
    let (all, half) = (RESUMED_STEPS, RESUMED_STEPS / 2);
    let whole = train(session, "whole", all, all, session.placement)?;
    train(session, "resumed", half, all, session.placement)?;
    let line = format!("train --resume resumed --steps {all} --renderer plain");
    session
        .emberlm("resumed-again", &line, session.placement, RUN)?
        .succeeded()?;
    compare(&whole, &losses(session, "resumed")?)
}

/// Trains on the built-in tales with a learning rate that decays over `decay_steps`, and returns the losses.
fn train(
    session: &Session,
    name: &str,
    steps: usize,
    decay_steps: usize,
    placement: Placement,
) -> Result<Vec<Step>, Outcome> {
    let size = match session.size {
        Size::Small => {
            "--batch-size 2 --set model.d_model=32 --set model.n_layers=2 --set model.seq_len=32"
        }
        Size::Full => "--batch-size 4",
    };
    // Dropout masks differ between backends, so dropout is disabled.
    let line = format!(
        "train --preset char-nano {size} --set model.dropout=0 --steps {steps} --eval-interval {steps} \
        --set train.schedule.decay_steps={decay_steps} --set train.schedule.warmup_steps=2 --set train.log_interval=1 \
        --set train.evaluation.tokens=512 --set train.evaluation.sample_tokens=1 --renderer plain --out {name}"
    );
    session.emberlm(name, &line, placement, RUN)?.succeeded()?;
    losses(session, name)
}

fn losses(session: &Session, run: &str) -> Result<Vec<Step>, Outcome> {
    let history = History::read(&session.work().join(run));
    let history = history.map_err(|error| Outcome::failed(error.message()))?;
    Ok(history.steps)
}

/// Returns the largest relative difference, and about ten of the losses.
fn compare(expected: &[Step], found: &[Step]) -> Result<Findings, Outcome> {
    let steps = |losses: &[Step]| -> Vec<usize> { losses.iter().map(|at| at.step).collect() };
    if steps(expected) != steps(found) {
        let message = format!(
            "one run logged {} steps and the other {}",
            expected.len(),
            found.len()
        );
        return Err(Outcome::failed(message));
    }
    let pairs = expected
        .iter()
        .zip(found)
        .map(|(expected, found)| LossPair {
            step: expected.step,
            expected: expected.loss,
            found: found.loss,
        });
    let pairs: Vec<LossPair> = pairs.collect();
    let differences = pairs.iter().map(|pair| {
        let difference = (pair.found - pair.expected).abs() / pair.expected.abs();
        (pair.step, difference)
    });
    // `total_cmp` orders NaN above every number.
    let Some((step, largest)) = differences.max_by(|(_, a), (_, b)| a.total_cmp(b)) else {
        return Err(Outcome::failed("the runs logged no loss"));
    };
    let name = match largest == 0.0 {
        true => "largest difference (equal to the bit)".to_owned(),
        false => format!("largest difference (at step {step})"),
    };
    let every = pairs.len().div_ceil(10);
    let last = pairs.len() - 1;
    let shown = pairs.iter().enumerate();
    let shown = shown.filter(|(place, _)| place % every == 0 || *place == last);
    Ok(Findings {
        losses: shown.map(|(_, &pair)| pair).collect(),
        ..Findings::of_rows(vec![Finding::error(name, largest, ALLOWED)])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(losses: &[f64]) -> Vec<Step> {
        let step = |(step, &loss)| Step {
            step,
            tokens: 0,
            loss,
        };
        (1..).zip(losses).map(step).collect()
    }

    #[test]
    fn the_largest_difference_and_its_step_are_reported() {
        let expected = run(&[4.0, 2.0, 1.0]);
        let equal = compare(&expected, &expected).unwrap();
        assert_eq!(equal.rows[0].name, "largest difference (equal to the bit)");
        assert_eq!(equal.rows[0].value, Some(0.0));
        let close = compare(&expected, &run(&[4.0, 2.001, 1.0001])).unwrap();
        assert_eq!(close.outcome, Outcome::Passed);
        assert_eq!(close.rows[0].name, "largest difference (at step 2)");
        for wrong in [[4.0, 2.01, 1.0], [4.0, f64::NAN, 1.0]] {
            let wrong = compare(&expected, &run(&wrong)).unwrap();
            assert!(wrong.outcome.is_failure(), "{wrong:?}");
        }
        assert!(compare(&expected, &run(&[4.0, 2.0])).is_err());
        assert!(compare(&[], &[]).is_err());
    }

    #[test]
    fn losses_are_downsampled_with_the_last_one() {
        let losses: Vec<f64> = (0..50).map(|step| 4.0 - 0.01 * f64::from(step)).collect();
        let shown = compare(&run(&losses), &run(&losses)).unwrap().losses;
        let steps: Vec<usize> = shown.iter().map(|pair| pair.step).collect();
        assert_eq!(steps, [1, 6, 11, 16, 21, 26, 31, 36, 41, 46, 50]);
    }
}
