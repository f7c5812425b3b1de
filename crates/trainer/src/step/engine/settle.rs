//! Settles pending steps: judges each of them, in order, by its loss and gradient norm.
//!
//! On an asynchronous device, one transfer reads all steps since the last settlement:
//!
//! ```text
//! made      1   2   3   4   5        each update under the guard of all before it
//! finite    yes yes no  yes yes      so 3, 4 and 5 changed nothing
//! judged    ok  ok  skip             3 is reported; 4 and 5 are recomputed from the same micro-batches
//! ```
//!
//! A step right after a skipped one saw exactly the weights that it would see when recomputed. If it is not
//! finite either, it is therefore judged immediately by its own figures.

use emberlm_kernels::TrainingBackend;

use super::pending::StepFigures;
use super::{
    ReadPolicy, SkippedStep, StepBatches, StepEngine, StepMetrics, StepOutcome, StepReport,
};
use crate::optimizer::skip::StepDecision;
use crate::step::gradients::read;

impl<B: TrainingBackend> StepEngine<B> {
    /// The number of updates so far.
    pub(crate) fn updates(&self) -> u64 {
        self.optimizer.updates()
    }

    /// Returns true if the pending steps should be settled now.
    pub(super) fn settles(&self, due: bool) -> bool {
        // All pending steps share one loss scale.
        let scale = self.position.loss_scale;
        let grown = scale.is_some_and(|scale| scale.grows_after(self.pending.len()));
        self.read_policy == ReadPolicy::EveryStep || due || grown || self.pending.is_full()
    }

    /// Reads and judges the pending steps. The outcome is that of the last one, unless steps have to be
    /// recomputed.
    pub(crate) fn settle(&mut self) -> StepReport {
        let (steps, started) = self.pending.take();
        let count = steps.len();
        let on_device = steps.iter().filter_map(|step| match &step.figures {
            StepFigures::OnDevice { loss, norm, .. } => Some((loss.clone(), norm.clone())),
            StepFigures::Judged { .. } => None,
        });
        let mut figures = B::run(|| read(on_device)).into_iter();
        let scaled = self.position.loss_scale.is_some();
        let mut report = StepReport {
            outcome: StepOutcome::Skipped,
            ..StepReport::deferred()
        };
        let (mut recompute, mut frozen) = (Vec::new(), false);
        for (at, step) in steps.into_iter().enumerate() {
            let (loss, norm, verdict) = match step.figures {
                StepFigures::Judged {
                    loss,
                    norm,
                    verdict,
                } => (loss, norm, verdict),
                StepFigures::OnDevice { .. } => {
                    let (loss, norm) = figures.next().unwrap_or((f64::NAN, f64::NAN));
                    let finite = loss.is_finite() && norm.is_finite();
                    // With loss scaling, the skipped step may have changed the scale.
                    let is_final = !(finite || scaled);
                    if !recompute.is_empty() || (frozen && !is_final) {
                        recompute.push(step.batches);
                        continue;
                    }
                    let verdict = self.judge(loss, norm);
                    if verdict != StepDecision::Accept && !frozen {
                        self.optimizer.take_back((count - at) as u64);
                        frozen = true;
                    }
                    (loss, norm, verdict)
                }
            };
            report.positions += step.positions;
            self.position.step += 1;
            let metrics = StepMetrics {
                loss,
                gradient_norm: norm,
                learning_rate: step.learning_rate,
                targets: (step.targets < step.positions).then_some(step.targets),
            };
            report.outcome = self.outcome(verdict, metrics, &mut report.skipped);
            if report.outcome == StepOutcome::Diverged {
                return report;
            }
        }
        if count > 0 {
            report.seconds = started.elapsed().as_secs_f64();
        }
        if !recompute.is_empty() {
            report.outcome = StepOutcome::Deferred;
        }
        self.pending.put_back(recompute);
        report
    }

    /// The outcome of the step that was just judged. Adds a skipped step to `skipped`.
    fn outcome(
        &self,
        verdict: StepDecision,
        metrics: StepMetrics,
        skipped: &mut Vec<SkippedStep>,
    ) -> StepOutcome {
        let (reason, expected) = match verdict {
            StepDecision::Accept => return StepOutcome::Updated(metrics),
            StepDecision::Skip { reason } => (reason, false),
            StepDecision::Overflow { reason } => (reason, true),
        };
        let in_a_row = self.position.watch.in_a_row();
        skipped.push(SkippedStep {
            step: self.position.step,
            loss: metrics.loss,
            gradient_norm: metrics.gradient_norm,
            reason,
            expected,
            in_a_row,
        });
        match in_a_row >= self.config.skip.limit() {
            true => StepOutcome::Diverged,
            false => StepOutcome::Skipped,
        }
    }

    /// Judges a step by its loss and gradient norm, and updates the history and the loss scale.
    pub(super) fn judge(&mut self, loss: f64, norm: f64) -> StepDecision {
        let position = &mut self.position;
        let Some(scale) = &mut position.loss_scale else {
            return position.watch.judge(loss, norm, &self.config.skip);
        };
        // A smaller scale cannot repair a non-finite loss.
        let overflow = loss.is_finite() && !norm.is_finite();
        if let Some(factor) = overflow.then(|| scale.halve()).flatten() {
            position.watch.pass_over();
            let reason = format!(
                "gradients are beyond the range of f16: the loss scale was halved to {factor}"
            );
            return StepDecision::Overflow { reason };
        }
        let verdict = position.watch.judge(loss, norm, &self.config.skip);
        match verdict {
            StepDecision::Accept => scale.take(),
            _ => scale.interrupt(),
        }
        verdict
    }

    /// Skips a step without targets, whose mean loss would be a division by zero.
    pub(super) fn pass_over(&mut self, batches: StepBatches<B>) -> StepReport {
        // This step follows the pending ones, including those of them that have to be recomputed.
        self.pending.put_back(vec![batches]);
        let mut report = self.settle();
        if matches!(
            report.outcome,
            StepOutcome::Deferred | StepOutcome::Diverged
        ) {
            return report;
        }
        self.pending.next_recompute();
        self.position.step += 1;
        self.position.watch.pass_over();
        let verdict = StepDecision::Skip {
            reason: "none of its targets is to be learnt".to_owned(),
        };
        let metrics = StepMetrics {
            loss: f64::NAN,
            gradient_norm: f64::NAN,
            learning_rate: 0.0,
            targets: Some(0),
        };
        report.outcome = self.outcome(verdict, metrics, &mut report.skipped);
        report
    }
}
