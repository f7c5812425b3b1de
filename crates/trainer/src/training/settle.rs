//! What becomes of the steps: each is judged, in its order, by its loss and its gradients' norm.
//!
//! On a device that works behind the host the steps since the last reading are read in one transfer:
//!
//! ```text
//! made      1   2   3   4   5        each update under the guard of all before it
//! finite    yes yes no  yes yes      so that 3, 4 and 5 have changed nothing
//! judged    go  go  skip             3 is told of; 4 and 5 are made again, from the same micro-batches
//! ```
//!
//! A step right after a skipped one was computed from the weights that it would have had, so that one which is not finite
//! either is judged by what it has found.

use emberlm_kernels::TrainingBackend;

use super::pending::{Micro, Unread};
use super::{Due, Found, Stepped, Training};
use crate::error::TrainError;
use crate::events::Event;
use crate::gradients::{Computed, compute, read};
use crate::guard::Guard;
use crate::schedule::learning_rate;
use crate::skip::Verdict;
use crate::trainee::Trainee;

impl<B: TrainingBackend> Training<'_, B> {
    /// One step whose outcome is read when it is time to: an update, where it is not to be skipped.
    pub(super) fn update_behind(
        &mut self,
        model: Trainee<B>,
        made: Micro<B>,
    ) -> (Trainee<B>, Result<Found, TrainError>) {
        let (config, step, scale) = (&self.strategy.config, self.made(), self.scale());
        let rate = learning_rate(config, step);
        let before = self.pending.begin();
        let Computed {
            loss,
            norm,
            factor,
            grads,
        } = B::run(|| compute(&model, &made.batches, made.learnt, config, step, scale));
        let guard = Guard::new(&loss, &norm, before.as_ref());
        let model = self.take(model, grads, factor, rate, Some(&guard));
        let unread = Unread {
            made,
            loss,
            norm,
            rate,
        };
        self.pending.push(unread, guard);
        let due = Due::after(self.made(), &self.strategy.config).anything();
        // All of them have the same scale.
        let scale = self.progressed.state.loss_scale;
        let grown = scale.is_some_and(|scale| scale.grows_after(self.pending.len()));
        if !due && !grown && !self.pending.is_full() {
            return (model, Ok(Found::Later));
        }
        (model, self.settle())
    }

    /// Reads and judges the steps that were made since the last reading. What became of the last of them, unless there
    /// are steps to be made again.
    pub(super) fn settle(&mut self) -> Result<Found, TrainError> {
        let (steps, started) = self.pending.take();
        let count = steps.len();
        let figures: Vec<_> = steps
            .iter()
            .map(|step| (step.loss.clone(), step.norm.clone()))
            .collect();
        let figures = B::run(|| read(figures));
        let (mut found, mut again) = (Found::Skipped, Vec::new());
        let (mut tokens, mut frozen) = (0, false);
        let scaled = self.progressed.state.loss_scale.is_some();
        for (at, (step, (loss, norm))) in steps.into_iter().zip(figures).enumerate() {
            let finite = loss.is_finite() && norm.is_finite();
            // After a skipped step the scale may be another.
            let stands = !(finite || scaled);
            if !again.is_empty() || (frozen && !stands) {
                again.push(step.made.batches);
                continue;
            }
            tokens += step.made.tokens;
            let rate = step.rate;
            match self.judge(loss, norm) {
                Verdict::Go => found = Found::Taken(Stepped { loss, norm, rate }),
                verdict => {
                    if !frozen {
                        self.optimizer.take_back((count - at) as u64);
                    }
                    (found, frozen) = (Found::Skipped, true);
                    self.skip(loss, norm, verdict)?;
                }
            }
        }
        if count > 0 {
            self.pace.add(tokens, started);
        }
        if !again.is_empty() {
            found = Found::Later;
        }
        self.pending.put_back(again);
        Ok(found)
    }

    /// Whether a step that was made is to be taken.
    pub(super) fn judge(&mut self, loss: f64, norm: f64) -> Verdict {
        let state = &mut self.progressed.state;
        state.step += 1;
        let Some(scale) = &mut state.loss_scale else {
            return state.watch.judge(loss, norm, &self.strategy.config);
        };
        // No scale makes a loss finite that is not.
        let overflow = loss.is_finite() && !norm.is_finite();
        if let Some(factor) = overflow.then(|| scale.halve()).flatten() {
            state.watch.pass_over();
            let reason = format!(
                "gradients are beyond the range of f16: the loss scale was halved to {factor}"
            );
            return Verdict::Overflow { reason };
        }
        let verdict = state.watch.judge(loss, norm, &self.strategy.config);
        match verdict {
            Verdict::Go => scale.take(),
            _ => scale.interrupt(),
        }
        verdict
    }

    /// A step without a target to learn, whose mean loss would be a division by zero.
    pub(super) fn pass_over(&mut self, made: Micro<B>) -> Result<Found, TrainError> {
        // Its turn is after the steps that are still to be judged, and after those of them that are to be made again.
        self.pending.put_back(vec![made.batches]);
        if let Found::Later = self.settle()? {
            return Ok(Found::Later);
        }
        self.pending.again();
        self.progressed.state.step += 1;
        self.progressed.state.watch.pass_over();
        let reason = "none of its targets is to be learnt".to_owned();
        let verdict = Verdict::Skip { reason };
        self.skip(f64::NAN, f64::NAN, verdict)
            .map(|()| Found::Skipped)
    }

    /// Tells of a step that was not taken.
    pub(super) fn skip(
        &mut self,
        loss: f64,
        norm: f64,
        verdict: Verdict,
    ) -> Result<(), TrainError> {
        // A few overflows are how a scale is found: nothing to warn of.
        let (grade, reason) = match verdict {
            Verdict::Go => return Ok(()),
            Verdict::Skip { reason } => ("warning: ", reason),
            Verdict::Overflow { reason } => ("", reason),
        };
        let step = self.step();
        let number = |x: f64| x.is_finite().then_some(x);
        self.recorder.record(&Event::Skipped {
            step,
            loss: number(loss),
            gradient_norm: number(norm),
            reason: reason.clone(),
        });
        let skipped = self.progressed.state.watch.in_a_row();
        if skipped >= self.strategy.config.skip_limit {
            self.recorder.wait();
            return Err(TrainError::Diverged {
                step,
                skipped,
                reason,
                last: self.recorder.newest.clone(),
            });
        }
        self.recorder
            .notes
            .say(format!("{grade}step {step} was skipped: {reason}"));
        Ok(())
    }
}
