//! Early stopping: rules that end runs of a sweep whose validation losses are worse than those of others.

use std::path::Path;

use emberlm_data::formats::FileFormat;
use emberlm_system::read::{DESCRIPTION_LIMIT, read_text};
use emberlm_system::write::write_whole;
use schemars::{JsonSchema, schema_for};
use serde::{Deserialize, Serialize};

use crate::error::CliError;
use crate::run_history::Evaluated;

const FILE: &str = "early_stop.json";

/// A rule of early stopping, as `[early_stopping]` of a sweep's file has it.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(tag = "rule", rename_all = "snake_case", deny_unknown_fields)]
pub enum StopRule {
    /// The median rule (Golovin et al. 2017): a run is stopped if its lowest loss is above the median of the other runs'
    /// mean losses up to the same step.
    Median {
        /// Evaluations of a run before it is judged.
        #[serde(default = "two")]
        after: usize,
        /// Other runs that must have come as far.
        #[serde(default = "two")]
        runs: usize,
    },
    /// Asynchronous successive halving (Li et al. 2020): at each rung, `first · factorᵏ` steps, a run is stopped unless its
    /// loss is among the lowest `1 / factor` of the runs that have reached the rung. The first `factor - 1` runs are not
    /// judged.
    Halving {
        /// Steps of the first rung.
        first: usize,
        /// One run in so many continues.
        #[serde(default = "three")]
        factor: usize,
    },
}

fn two() -> usize {
    2
}

fn three() -> usize {
    3
}

/// The decision to stop a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EarlyStop {
    /// The step of the evaluation that decided.
    pub step: usize,
    /// The run's loss.
    pub loss: f64,
    /// The highest loss with which the run would have continued.
    pub limit: f64,
}

/// The documentation of the file with the decision.
pub fn format() -> FileFormat {
    FileFormat::new(FILE, "the decision of a sweep to stop the run early")
        .with_schema(schema_for!(EarlyStop))
}

impl StopRule {
    /// Checks the rule's numbers.
    ///
    /// # Errors
    /// One that is out of range.
    pub fn check(self) -> Result<(), CliError> {
        let (key, least, value) = match self {
            Self::Median { after: 0, .. } => ("after", 1, 0),
            Self::Median { runs: 0, .. } => ("runs", 1, 0),
            Self::Halving { first: 0, .. } => ("first", 1, 0),
            Self::Halving { factor, .. } if factor < 2 => ("factor", 2, factor),
            _ => return Ok(()),
        };
        Err(CliError::usage(format!(
            "early_stopping.{key} must be at least {least} (got {value})"
        )))
    }

    /// Judges a run by its newest evaluation and those of the other runs. A NaN loss is the worst.
    pub fn judge(self, run: &[Evaluated], others: &[Vec<Evaluated>]) -> Option<EarlyStop> {
        match self {
            Self::Median { after, runs } => median(run, others, after, runs),
            Self::Halving { first, factor } => halving(run, others, first, factor),
        }
    }
}

fn median(
    run: &[Evaluated],
    others: &[Vec<Evaluated>],
    after: usize,
    runs: usize,
) -> Option<EarlyStop> {
    let step = run.last()?.step;
    let came_as_far = |other: &&Vec<Evaluated>| other.last().is_some_and(|last| last.step >= step);
    let mean = |other: &Vec<Evaluated>| {
        let losses = other
            .iter()
            .filter(|e| e.step <= step)
            .map(|e| worst_if_nan(e.loss));
        let (sum, count) = losses.fold((0.0, 0.0), |(sum, count), loss| (sum + loss, count + 1.0));
        (count > 0.0).then_some(sum / count)
    };
    let mut means: Vec<f64> = others.iter().filter(came_as_far).filter_map(mean).collect();
    if run.len() < after || means.len() < runs {
        return None;
    }
    means.sort_by(f64::total_cmp);
    let middle = means.len() / 2;
    let limit = match means.len() % 2 {
        0 => (means[middle - 1] + means[middle]) / 2.0,
        _ => means[middle],
    };
    let losses = run.iter().map(|e| worst_if_nan(e.loss));
    let loss = losses.fold(f64::INFINITY, f64::min);
    (loss > limit).then_some(EarlyStop { step, loss, limit })
}

fn halving(
    run: &[Evaluated],
    others: &[Vec<Evaluated>],
    first: usize,
    factor: usize,
) -> Option<EarlyStop> {
    let last = run.last()?;
    let before = run.len().checked_sub(2).and_then(|at| run.get(at));
    let before = before.map_or(0, |evaluation| evaluation.step);
    // The highest rung that this evaluation is the first to reach.
    let rungs = std::iter::successors(Some(first), |rung| rung.checked_mul(factor));
    let rung = rungs.take_while(|rung| *rung <= last.step).last()?;
    if before >= rung {
        return None;
    }
    let at_rung = |other: &Vec<Evaluated>| {
        let reached = other.iter().find(|evaluation| evaluation.step >= rung)?;
        Some(worst_if_nan(reached.loss))
    };
    let loss = worst_if_nan(last.loss);
    let mut losses: Vec<f64> = others.iter().filter_map(at_rung).collect();
    losses.push(loss);
    if losses.len() < factor {
        return None;
    }
    losses.sort_by(f64::total_cmp);
    let limit = losses[losses.len() / factor - 1];
    let step = last.step;
    (loss > limit).then_some(EarlyStop { step, loss, limit })
}

fn worst_if_nan(loss: f64) -> f64 {
    if loss.is_nan() { f64::INFINITY } else { loss }
}

impl EarlyStop {
    /// The decision that stopped the run in a folder, if one did.
    pub fn read(run: &Path) -> Option<Self> {
        let text = read_text(&run.join(FILE), DESCRIPTION_LIMIT).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Writes it into the run's folder.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, run: &Path) -> Result<(), CliError> {
        let path = run.join(FILE);
        // JSON has no infinity: a NaN loss is written as the greatest number.
        let finite = Self {
            loss: self.loss.min(f64::MAX),
            limit: self.limit.min(f64::MAX),
            ..*self
        };
        let text = serde_json::to_string_pretty(&finite)
            .map_err(|error| CliError::new(format!("the decision is no JSON: {error}")))?;
        write_whole(&path, text.as_bytes()).map_err(CliError::io("write", &path))
    }
}

#[cfg(test)]
mod tests {
    use std::slice;

    use super::*;

    fn run(losses: &[f64]) -> Vec<Evaluated> {
        let evaluations = losses.iter().zip(1..);
        evaluations
            .map(|(&loss, at)| Evaluated {
                step: 10 * at,
                loss,
            })
            .collect()
    }

    #[test]
    fn the_median_rule_stops_what_is_worse_than_half_of_the_others() {
        let rule = StopRule::Median { after: 2, runs: 3 };
        // Means up to step 20: 3, 4 and 5; up to step 30 only two runs have come.
        let others = [
            run(&[4.0, 2.0, 1.0]),
            run(&[5.0, 3.0, 2.0]),
            run(&[6.0, 4.0]),
        ];
        assert_eq!(rule.judge(&run(&[9.0]), &others), None);
        assert_eq!(rule.judge(&run(&[9.0, 4.0]), &others), None);
        let stop = EarlyStop {
            step: 20,
            loss: 4.1,
            limit: 4.0,
        };
        assert_eq!(rule.judge(&run(&[9.0, 4.1]), &others), Some(stop));
        assert_eq!(rule.judge(&run(&[9.0, 9.0, 9.0]), &others), None);
        assert!(rule.judge(&run(&[f64::NAN, f64::NAN]), &others).is_some());
    }

    #[test]
    fn halving_keeps_the_best_third_at_each_rung() {
        let rule = StopRule::Halving {
            first: 10,
            factor: 3,
        };
        let first = run(&[5.0, 4.0, 3.0]);
        // Too few to judge.
        assert_eq!(rule.judge(&run(&[9.0]), slice::from_ref(&first)), None);
        let others = [first, run(&[6.0])];
        assert_eq!(rule.judge(&run(&[4.5]), &others), None);
        let stop = rule.judge(&run(&[5.5]), &others).expect("stopped");
        assert_eq!((stop.step, stop.loss, stop.limit), (10, 5.5, 5.0));
        // Step 20 is no rung; step 30 is.
        assert_eq!(rule.judge(&run(&[4.5, 9.0]), &others), None);
        let at_30 = [run(&[5.0, 4.0, 3.0]), run(&[5.0, 4.0, 2.0])];
        assert!(rule.judge(&run(&[4.5, 9.0, 2.5]), &at_30).is_some());
        assert_eq!(rule.judge(&run(&[4.5, 9.0, 1.5]), &at_30), None);
    }

    #[test]
    fn a_decision_is_kept_in_the_run() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(EarlyStop::read(folder.path()), None);
        let stop = EarlyStop {
            step: 3,
            loss: f64::INFINITY,
            limit: 1.0,
        };
        stop.write(folder.path()).expect("written");
        let found = EarlyStop::read(folder.path()).expect("it");
        assert_eq!((found.step, found.limit), (3, 1.0));
    }
}
