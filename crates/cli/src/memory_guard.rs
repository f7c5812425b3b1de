//! The check of predicted memory before anything large is allocated. Without it a model that does not fit fills the memory
//! until the kernel kills the process without a message.

use clap::Args;
use emberlm_model::{DecoderConfig, WeightFormat};
use emberlm_trainer::fit::{
    HeldWeights, InferencePrediction, InferenceWork, Prediction, predict_inference,
};
use emberlm_trainer::memory::{self, Available, MemoryLimit};

use crate::backend::{BackendName, Placement, devices};
use crate::error::{CliError, warn};
use crate::output::size;

/// The option of the commands whose memory is predicted.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct MemoryArg {
    /// Begin even if the predicted memory is more than what is available
    #[arg(long, help_heading = "Backend")]
    pub ignore_memory: bool,
}

/// A model with its work.
pub type Work<'a> = (&'a DecoderConfig, InferenceWork);

/// Another way to do the same work.
pub type Change<'a> = &'a dyn Fn(InferenceWork) -> InferenceWork;

/// The part of the available memory from which on a prediction that fits is warned of: predictions are off by up to 15%.
const TIGHT: f64 = 0.87;

/// A prediction by its parts.
pub struct Demand {
    /// The action, as the subject of "needs": `training`.
    pub what: &'static str,
    /// Bytes of the process in addition to the listed parts: the program and the allocator's overhead. A device does not hold them.
    process: u64,
    /// The parts that a device holds too, with their names.
    parts: Vec<(&'static str, u64)>,
}

impl Demand {
    /// The demand of training.
    pub fn training(predicted: &Prediction) -> Self {
        Self {
            what: "training",
            process: predicted.program.saturating_add(predicted.allocator),
            parts: vec![
                ("weights", predicted.weights),
                ("optimizer", predicted.optimizer),
                ("gradients", predicted.gradients),
                ("activations", predicted.activations),
                ("temporaries", predicted.temporaries),
            ],
        }
    }

    /// The demand of models that predict in one process.
    pub fn inference(what: &'static str, works: &[Work<'_>]) -> Self {
        let program = memory::resident().unwrap_or(0);
        let mut sum = InferencePrediction::default();
        for &(model, work) in works {
            let predicted = predict_inference(model, work, program);
            let add = |sum: &mut u64, bytes| *sum = sum.saturating_add(bytes);
            sum.program = predicted.program;
            add(&mut sum.weights, predicted.weights);
            add(&mut sum.caches, predicted.caches);
            add(&mut sum.temporaries, predicted.temporaries);
            add(&mut sum.allocator, predicted.allocator);
        }
        Self {
            what,
            process: sum.program.saturating_add(sum.allocator),
            parts: vec![
                ("weights", sum.weights),
                ("key-value caches", sum.caches),
                ("temporaries", sum.temporaries),
            ],
        }
    }

    /// Bytes of the whole process.
    pub fn total(&self) -> u64 {
        self.on_device().saturating_add(self.process)
    }

    /// Bytes of a device's memory.
    fn on_device(&self) -> u64 {
        let add = |sum: u64, &(_, bytes): &(_, u64)| sum.saturating_add(bytes);
        self.parts.iter().fold(0, add)
    }

    /// The bytes that it takes of what is available.
    fn of(&self, available: Available) -> u64 {
        match available.limit {
            MemoryLimit::Device => self.on_device(),
            // What the process holds already is not available any more.
            _ => {
                let resident = memory::resident().unwrap_or(0);
                self.total().saturating_sub(resident)
            }
        }
    }
}

/// The memory that a backend computes in, as far as it is known: the graphics interfaces do not report the memory of discrete
/// GPUs.
fn available(backend: Placement) -> Option<Available> {
    let devices = match backend.backend {
        BackendName::Flex | BackendName::Ndarray => return memory::available(),
        name => devices::of(name),
    };
    // The driver's preferred device may be any of them.
    let candidates = match backend.number() {
        Some(number) => devices.get(number..=number)?,
        None => &devices,
    };
    let first = candidates.first()?;
    if candidates.iter().all(|device| device.kind.shares_memory()) {
        return memory::available();
    }
    let bytes = first.memory_bytes?;
    let limit = MemoryLimit::Device;
    Some(Available { bytes, limit })
}

impl MemoryArg {
    /// The guard of the memory that a backend computes in.
    pub fn guard(self, backend: Placement) -> MemoryGuard {
        MemoryGuard {
            backend,
            ignore: self.ignore_memory,
        }
    }
}

/// The guard of the memory that a backend computes in.
#[derive(Clone, Copy, Debug)]
pub struct MemoryGuard {
    backend: Placement,
    ignore: bool,
}

impl MemoryGuard {
    /// Returns true if a demand fits, as far as is known.
    pub fn fits(self, demand: &Demand) -> bool {
        let available = available(self.backend);
        available.is_none_or(|available| demand.of(available) <= available.bytes)
    }

    /// Refuses what does not fit. `hints` says what would fit; it is asked only then.
    ///
    /// # Errors
    /// More memory is predicted than is available.
    pub fn check(
        self,
        demand: &Demand,
        hints: impl FnOnce() -> Vec<String>,
    ) -> Result<(), CliError> {
        let Some(available) = available(self.backend).filter(|_| !self.ignore) else {
            return Ok(());
        };
        let needed = demand.of(available);
        let Available { bytes, limit } = available;
        let what = demand.what;
        if needed as f64 <= TIGHT * bytes as f64 {
            return Ok(());
        }
        if needed <= bytes {
            let (needed, bytes) = (size(needed), size(bytes));
            warn(&format!(
                "{what} needs about {needed} of the {bytes} that are {limit}"
            ));
            return Ok(());
        }
        let parts = demand.parts.iter().filter(|(_, bytes)| *bytes > 0);
        let parts: Vec<String> = parts
            .map(|(name, bytes)| format!("{name} {}", size(*bytes)))
            .collect();
        let message = format!(
            "{what} needs about {} of memory, and {} are {limit}: {}",
            size(needed),
            size(bytes),
            parts.join(", ")
        );
        let error = hints()
            .into_iter()
            .fold(CliError::new(message), CliError::hint);
        Err(error.hint("to start anyway: --ignore-memory"))
    }

    /// Refuses models that do not fit, and names what would fit: int8 weights, or one of the `smaller` works, each with
    /// the option that asks for it.
    ///
    /// # Errors
    /// More memory is predicted than is available.
    pub fn check_inference(
        self,
        what: &'static str,
        works: &[Work<'_>],
        smaller: &[(&str, Change<'_>)],
    ) -> Result<(), CliError> {
        let demand = Demand::inference(what, works);
        self.check(&demand, || {
            let packed = |work: InferenceWork| InferenceWork {
                weights: HeldWeights {
                    format: WeightFormat::INT8,
                    ..work.weights
                },
                ..work
            };
            let int8: (&str, Change<'_>) = ("--weights int8", &packed);
            let fitting = std::iter::once(&int8).chain(smaller);
            let mut hints: Vec<String> = fitting
                .filter_map(|(option, change)| {
                    let works = works.iter().map(|&(model, work)| (model, change(work)));
                    let demand = Demand::inference(what, &works.collect::<Vec<_>>());
                    let total = size(demand.total());
                    let fits = self.fits(&demand);
                    fits.then(|| format!("this fits, in about {total}: {option}"))
                })
                .collect();
            if hints.is_empty() {
                hints.push("take a smaller model, or a machine with more memory".to_owned());
            }
            hints
        })
    }
}
