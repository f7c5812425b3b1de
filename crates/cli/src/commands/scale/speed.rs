//! The speed of training by model size.

use burn::tensor::Device;
use emberlm_kernels::TrainingBackend;
use emberlm_model::TransformerConfig;
use emberlm_trainer::TrainConfig;
use emberlm_trainer::bench::{WARM_UP, measure};

use super::sizes::Size;
use crate::backend::{Job, Placement};
use crate::console;
use crate::error::CliError;
use crate::plot::short;

/// Measured steps of a model.
const STEPS: usize = 5;
/// A model whose parameters differ from those of a measured one by at most this factor is not measured.
const NEAR: f64 = 1.6;

/// Operations per second of training.
pub struct Speed {
    /// Parameters and operations per second of the measured models, in ascending order.
    measured: Vec<(f64, f64)>,
    /// The device and the settings of a measured step; `None` if the speed was given.
    step: Option<(Placement, TrainConfig)>,
}

impl Speed {
    /// The same speed for all models.
    pub fn given(flops_per_second: f64) -> Self {
        Self {
            measured: vec![(1.0, flops_per_second)],
            step: None,
        }
    }

    /// Speeds that are measured on a device.
    pub fn measured(placement: Placement, train: TrainConfig) -> Self {
        Self {
            measured: Vec::new(),
            step: Some((placement, train)),
        }
    }

    /// Measures the smallest, the middle and the largest of `sizes`.
    ///
    /// # Errors
    /// Returns an error if the device is unavailable or a step fails.
    pub fn prepare(&mut self, sizes: &[Size]) -> Result<(), CliError> {
        let Some((placement, train)) = self.step.clone() else {
            return Ok(());
        };
        let mut sizes: Vec<&Size> = sizes.iter().collect();
        sizes.sort_by(|a, b| a.parameters.total_cmp(&b.parameters));
        let last = sizes.len().saturating_sub(1);
        for at in [0, last / 2, last] {
            let Some(size) = sizes.get(at) else { continue };
            let near = |(known, _): &(f64, f64)| (known / size.parameters).ln().abs() <= NEAR.ln();
            if self.measured.iter().any(near) {
                continue;
            }
            console::note(format_args!(
                "measuring {STEPS} steps of a model of {} parameters",
                short(size.parameters)
            ));
            let speed = placement.run(Steps {
                model: size.model.clone(),
                train: train.clone(),
            })??;
            self.measured.push((size.parameters, speed));
            self.measured.sort_by(|a, b| a.0.total_cmp(&b.0));
        }
        Ok(())
    }

    /// The operations per second for a model of `parameters`, interpolated between measured models in logarithms.
    pub fn of(&self, parameters: f64) -> f64 {
        let after = self
            .measured
            .partition_point(|(known, _)| *known < parameters);
        let after_one = self.measured.get(after);
        let before = after.checked_sub(1).and_then(|at| self.measured.get(at));
        match (before, after_one) {
            (Some(&(a, slow)), Some(&(b, fast))) => {
                let share = (parameters / a).ln() / (b / a).ln();
                slow * (fast / slow).powf(share)
            }
            (Some(&(_, speed)), None) | (None, Some(&(_, speed))) => speed,
            (None, None) => f64::NAN,
        }
    }
}

struct Steps {
    model: TransformerConfig,
    train: TrainConfig,
}

impl Job for Steps {
    type Output = Result<f64, CliError>;

    fn run<B: TrainingBackend>(self, device: Device<B>) -> Self::Output {
        let measured = measure::<B>(&self.model, &self.train, WARM_UP, STEPS, &device)?;
        Ok(measured.flops)
    }
}
