//! Early stopping: rules that end runs whose validation loss is worse than that of others.

use std::path::Path;

use emberlm_data::formats::FileFormat;
use emberlm_system::read::{DESCRIPTION_LIMIT, read_text};
use emberlm_system::write::write_whole;
use emberlm_trainer::folder::check_no_link;
use schemars::{JsonSchema, schema_for};
use serde::{Deserialize, Serialize};

use crate::error::CliError;
use crate::run_history::EvaluationPoint;

const FILE: &str = "early_stop.json";

/// An early-stopping rule, as in `[early_stopping]` of a sweep file.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(tag = "rule", rename_all = "snake_case", deny_unknown_fields)]
pub enum StopRule {
    /// The median stopping rule (Golovin et al. 2017). Stops a run if its lowest loss exceeds the median of
    /// the other runs' mean losses up to the same step.
    Median {
        /// Number of evaluations before a run is judged.
        #[serde(default = "two")]
        after: usize,
        /// Number of other runs that must have reached the same step.
        #[serde(default = "two")]
        runs: usize,
    },
    /// Asynchronous successive halving (Li et al. 2020). At each rung, `first · factorᵏ` steps, stops a run
    /// unless its loss is among the lowest `1 / factor` of the runs that have reached the rung. The first
    /// `factor - 1` runs are not judged.
    Halving {
        /// Step of the first rung.
        first: usize,
        /// One in `factor` runs continues past each rung.
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

/// A decision to stop a run early.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EarlyStop {
    /// The step of the decisive evaluation.
    pub step: usize,
    /// The run's loss at the decision.
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
    /// Checks the rule's parameters.
    ///
    /// # Errors
    /// Returns an error if a parameter is out of range.
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

    /// Judges a run by its latest evaluation and the evaluations of the other runs. NaN counts as the worst
    /// loss.
    pub fn judge(
        self,
        run: &[EvaluationPoint],
        others: &[Vec<EvaluationPoint>],
    ) -> Option<EarlyStop> {
        match self {
            Self::Median { after, runs } => median(run, others, after, runs),
            Self::Halving { first, factor } => halving(run, others, first, factor),
        }
    }
}

fn median(
    run: &[EvaluationPoint],
    others: &[Vec<EvaluationPoint>],
    after: usize,
    runs: usize,
) -> Option<EarlyStop> {
    let step = run.last()?.step;
    let reached_step =
        |other: &&Vec<EvaluationPoint>| other.last().is_some_and(|last| last.step >= step);
    let mean = |other: &Vec<EvaluationPoint>| {
        let losses = other
            .iter()
            .filter(|e| e.step <= step)
            .map(|e| worst_if_nan(e.loss));
        let (sum, count) = losses.fold((0.0, 0.0), |(sum, count), loss| (sum + loss, count + 1.0));
        (count > 0.0).then_some(sum / count)
    };
    let mut means: Vec<f64> = others
        .iter()
        .filter(reached_step)
        .filter_map(mean)
        .collect();
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
    run: &[EvaluationPoint],
    others: &[Vec<EvaluationPoint>],
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
    let at_rung = |other: &Vec<EvaluationPoint>| {
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
    /// Reads the decision that stopped the run in a folder, if any.
    pub fn read(run: &Path) -> Option<Self> {
        let text = read_text(&run.join(FILE), DESCRIPTION_LIMIT).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Writes the decision into the run's folder.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn write(&self, run: &Path) -> Result<(), CliError> {
        let path = run.join(FILE);
        check_no_link(&path)?;
        // JSON has no infinity, so a NaN loss is stored as the largest finite number.
        let finite = Self {
            loss: self.loss.min(f64::MAX),
            limit: self.limit.min(f64::MAX),
            ..*self
        };
        let text = serde_json::to_string_pretty(&finite).map_err(|error| {
            CliError::new(format!("the decision cannot be written as JSON: {error}"))
        })?;
        write_whole(&path, text.as_bytes()).map_err(CliError::io("write", &path))
    }
}

#[cfg(test)]
mod tests {
    use std::slice;

    use super::*;

    fn run(losses: &[f64]) -> Vec<EvaluationPoint> {
        let evaluations = losses.iter().zip(1..);
        evaluations
            .map(|(&loss, at)| EvaluationPoint {
                step: 10 * at,
                loss,
            })
            .collect()
    }

    #[test]
    fn the_median_rule_stops_runs_worse_than_the_median() {
        let rule = StopRule::Median { after: 2, runs: 3 };
        // Mean losses up to step 20: 3, 4 and 5. Only two runs have reached step 30.
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
        // Too few runs to judge.
        assert_eq!(rule.judge(&run(&[9.0]), slice::from_ref(&first)), None);
        let others = [first, run(&[6.0])];
        assert_eq!(rule.judge(&run(&[4.5]), &others), None);
        let stop = rule.judge(&run(&[5.5]), &others).expect("stopped");
        assert_eq!((stop.step, stop.loss, stop.limit), (10, 5.5, 5.0));
        // Step 20 is not a rung, step 30 is.
        assert_eq!(rule.judge(&run(&[4.5, 9.0]), &others), None);
        let at_30 = [run(&[5.0, 4.0, 3.0]), run(&[5.0, 4.0, 2.0])];
        assert!(rule.judge(&run(&[4.5, 9.0, 2.5]), &at_30).is_some());
        assert_eq!(rule.judge(&run(&[4.5, 9.0, 1.5]), &at_30), None);
    }

    #[test]
    fn an_early_stop_survives_a_round_trip() {
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
