//! The lines of the log, and the figures for the display.

use emberlm_kernels::TrainingBackend;

use super::RankZero;
use crate::checkpoint::State;
use crate::config::TrainConfig;
use crate::report::events::{Event, LayerNorms, bars, now};
use crate::report::metrics::{Figures, StepReading, computed};
use crate::step::engine::{StepEngine, StepMetrics};

impl<B: TrainingBackend> RankZero<B> {
    /// Shows the events of a resumed run before it was stopped.
    pub(super) fn replay(&mut self) {
        for event in &self.past {
            match event {
                Event::Step { step, .. } => self.display.show_step(*step, &Figures::of([event])),
                Event::Evaluation { step, .. } => {
                    let figures = evaluation_figures(event);
                    self.display.show_evaluation(*step, &figures);
                }
                _ => {}
            }
        }
    }

    /// The positions computed in `step` steps.
    fn positions(&self, step: usize, config: &TrainConfig, state: &State) -> u64 {
        let before = |sequences| self.source.positions(sequences, self.seq_len);
        if config.overfit_batch {
            let start = state.data_start.unwrap_or_default();
            let steps = step.saturating_sub(start.step) as u64;
            return start.positions + steps * before(config.step_sequences());
        }
        let sequences = state.sequences_at(step, config);
        match state.data_start {
            Some(start) => start.positions + before(sequences) - before(start.sequences),
            None => before(sequences),
        }
    }

    /// Logs the norms by layer of a step.
    pub(super) fn record_norms(&mut self, step: usize, layers: &[LayerNorms]) {
        self.bars = bars(layers);
        let layers = layers.to_vec();
        self.recorder.record(&Event::Norms { step, layers });
    }

    /// Logs a step.
    pub(super) fn log(&mut self, engine: &StepEngine<B>, metrics: StepMetrics, state: &State) {
        let config = engine.config();
        let step = engine.position().step;
        let mut readings = computed(&StepReading {
            loss_scale: engine.position().loss_scale.map(|scale| scale.factor()),
            expert_shares: engine.expert_load().extremes(),
        });
        readings.extend(engine.completions().values());
        readings.extend(self.recorder.hooks.take_readings());
        let logged = Event::Step {
            step,
            tokens: match state.positions {
                Some(positions) => positions,
                None => self.positions(step, config, state),
            },
            learnt: metrics.targets,
            loss: metrics.loss,
            perplexity: config.objective.perplexity(metrics.loss),
            gradient_norm: metrics.gradient_norm,
            learning_rate: metrics.learning_rate,
            metrics: readings,
        };
        self.recorder.record(&logged);
        let pace = self
            .pace
            .line::<B::InnerBackend>(step, config.steps, &self.device);
        let paced = Event::Pace {
            time: now(),
            step,
            tokens_per_second: pace.tokens_per_second,
            utilization: pace.utilization,
            memory_mib: pace.memory_mib,
            device_in_use: pace.device.map(|memory| memory.in_use),
            device_reserved: pace.device.map(|memory| memory.reserved),
            seconds_left: pace.seconds_left,
        };
        self.recorder.record(&paced);
        let figures = Figures {
            seconds_left: pace.seconds_left,
            validation: state.validation_loss,
            best: state.best.map(|best| best.loss),
            note: self.recorder.messages.shown().to_owned(),
            sample: self.sample.clone().unwrap_or_default(),
            bars: self.bars.clone(),
            ..Figures::of([&logged, &paced])
        };
        self.display.show_step(step, &figures);
    }
}

/// The figures of an evaluation.
pub(super) fn evaluation_figures(event: &Event) -> Figures {
    let datasets = match event {
        Event::Evaluation { datasets, .. } => datasets.as_slice(),
        _ => &[],
    };
    let own = datasets
        .iter()
        .map(|of| format!("  {} {:.4}", of.dataset, of.loss));
    Figures {
        datasets: own.collect(),
        ..Figures::of([event])
    }
}
