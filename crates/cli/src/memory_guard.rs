//! Checks the predicted memory before a large allocation. Without the check, the kernel kills a process whose
//! model does not fit, without a message.

use clap::Args;
use emberlm_model::{CacheFormat, ModelKind, TransformerConfig, WeightFormat};
use emberlm_trainer::fit::{
    HeldWeights, InferencePrediction, InferenceWork, Prediction, predict_inference, unpacked_layer,
};
use emberlm_trainer::memory::{self, Available, MemoryLimit};

use crate::backend::{BackendName, Placement, devices};
use crate::error::{CliError, warn};
use crate::output::size;

/// The option of the commands whose memory is predicted.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct MemoryArg {
    /// Start even if the predicted memory exceeds the available memory
    #[arg(long, help_heading = "Backend")]
    pub ignore_memory: bool,
}

/// A model and the work planned for it.
pub type Work<'a> = (&'a TransformerConfig, InferenceWork);

/// A change to the planned work that needs less memory.
pub type Change<'a> = &'a dyn Fn(InferenceWork) -> InferenceWork;

/// Fraction of the available memory above which a fitting prediction gives a warning: predictions are off by
/// up to 15%.
const TIGHT: f64 = 0.87;

/// Predicted memory, by component.
pub struct Demand {
    /// The action, as the subject of "needs", such as `training`.
    pub what: &'static str,
    /// Host-only bytes: the program and the allocator's overhead.
    process: u64,
    /// Named components that reside in the device's memory.
    parts: Vec<(&'static str, u64)>,
}

impl Demand {
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

    /// The demand of tensors that a process copies to the host, in addition to the memory that it already has.
    pub fn host_tensors(what: &'static str, bytes: u64) -> Self {
        Self {
            what,
            process: memory::resident().unwrap_or(0).saturating_add(bytes),
            parts: Vec::new(),
        }
    }

    /// The demand of running inference on `works` in one process, without unpacked layers.
    fn inference(what: &'static str, works: &[Work<'_>]) -> Self {
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

    /// Total bytes of the process.
    pub fn total(&self) -> u64 {
        self.on_device().saturating_add(self.process)
    }

    /// Bytes in device memory, or those of a model on the CPU without the program.
    pub fn on_device(&self) -> u64 {
        let add = |sum: u64, &(_, bytes): &(_, u64)| sum.saturating_add(bytes);
        self.parts.iter().fold(0, add)
    }

    /// Bytes that must be allocated from `available`.
    fn of(&self, available: Available) -> u64 {
        match available.limit {
            MemoryLimit::Device => self.on_device(),
            // Memory that the process already holds is not part of the available memory.
            _ => {
                let resident = memory::resident().unwrap_or(0);
                self.total().saturating_sub(resident)
            }
        }
    }
}

/// Memory of the device that a backend computes on. Returns `None` if it is unknown: the graphics APIs do not
/// report the memory of discrete GPUs.
fn available(backend: Placement) -> Option<Available> {
    let devices = match backend.backend {
        BackendName::Flex | BackendName::Ndarray => return memory::available(),
        name => devices::of(name),
    };
    // The driver's default device may be any of them.
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
    /// The memory guard of a backend.
    pub fn guard(self, backend: Placement) -> MemoryGuard {
        MemoryGuard {
            backend,
            ignore: self.ignore_memory,
            processes: 1,
        }
    }
}

/// Memory check for one backend.
#[derive(Clone, Copy, Debug)]
pub struct MemoryGuard {
    backend: Placement,
    ignore: bool,
    /// Processes that share the host's memory and have the same demand.
    processes: usize,
}

impl MemoryGuard {
    /// Gives each of `processes` an equal share of the host's memory. GPUs have their own.
    pub fn shared_by(self, processes: usize) -> Self {
        Self { processes, ..self }
    }

    /// The memory that is available to this process.
    fn available(self) -> Option<Available> {
        let found = available(self.backend)?;
        let bytes = match found.limit {
            MemoryLimit::Device => found.bytes,
            _ => found.bytes / self.processes as u64,
        };
        Some(Available { bytes, ..found })
    }

    /// Returns true if the demand fits or the available memory is unknown.
    pub fn fits(self, demand: &Demand) -> bool {
        let available = self.available();
        available.is_none_or(|available| demand.of(available) <= available.bytes)
    }

    /// Checks that the demand fits, and warns if it fits tightly. `hints` is only called on failure.
    ///
    /// # Errors
    /// Returns an error if the prediction exceeds the available memory.
    pub fn check(
        self,
        demand: &Demand,
        hints: impl FnOnce() -> Vec<String>,
    ) -> Result<(), CliError> {
        let Some(available) = self.available().filter(|_| !self.ignore) else {
            return Ok(());
        };
        let needed = demand.of(available);
        let Available { bytes, limit } = available;
        let what = demand.what;
        let share = match self.processes {
            1 => String::new(),
            processes => format!(" for each of the {processes} ranks of this host"),
        };
        if needed as f64 <= TIGHT * bytes as f64 {
            return Ok(());
        }
        if needed <= bytes {
            let (needed, bytes) = (size(needed), size(bytes));
            warn(&format!(
                "{what} needs about {needed} of the {bytes} that are {limit}{share}"
            ));
            return Ok(());
        }
        let parts = demand.parts.iter().filter(|(_, bytes)| *bytes > 0);
        let parts: Vec<String> = parts
            .map(|(name, bytes)| format!("{name} {}", size(*bytes)))
            .collect();
        let message = format!(
            "{what} needs about {} of memory, and {} are {limit}{share}: {}",
            size(needed),
            size(bytes),
            parts.join(", ")
        );
        let error = hints()
            .into_iter()
            .fold(CliError::new(message), CliError::hint);
        Err(error.hint("to start anyway: --ignore-memory"))
    }

    /// Returns true if all models have caches, which are larger than in `format` and can be in it.
    fn caches_fit(self, works: &[Work<'_>], format: CacheFormat) -> bool {
        let flex = self.backend.backend == BackendName::Flex;
        let fits = |(model, work): &Work<'_>| match model.kind() {
            ModelKind::Decoder => {
                work.slots > 0 && work.cache == CacheFormat::F32 && format.check(model).is_ok()
            }
            ModelKind::Encoder | ModelKind::EncoderDecoder => false,
        };
        flex && works.iter().all(fits)
    }

    /// The demand of running inference on `works` in one process, on the guard's backend.
    pub fn inference(self, what: &'static str, works: &[Work<'_>]) -> Demand {
        let mut demand = Demand::inference(what, works);
        let layers = works
            .iter()
            .map(|&(model, work)| unpacked_layer(model, work.weights));
        let largest = layers.max().unwrap_or(0);
        if self.backend.unpacks_layers() {
            demand.parts.push(("an unpacked layer", largest));
        }
        demand
    }

    /// Checks that the models fit. On failure, the hints name options that would fit: int8 weights, q8 caches, or one of
    /// the `smaller` changes, each listed with its option.
    ///
    /// # Errors
    /// Returns an error if the prediction exceeds the available memory.
    pub fn check_inference(
        self,
        what: &'static str,
        works: &[Work<'_>],
        smaller: &[(&str, Change<'_>)],
    ) -> Result<(), CliError> {
        let demand = self.inference(what, works);
        self.check(&demand, || {
            let packed = |work: InferenceWork| InferenceWork {
                weights: HeldWeights {
                    format: WeightFormat::INT8,
                    ..work.weights
                },
                ..work
            };
            let int8: (&str, Change<'_>) = ("--weights int8", &packed);
            let only_decoders = works
                .iter()
                .all(|(model, _)| model.kind() == ModelKind::Decoder);
            let int8 = only_decoders.then_some(&int8);
            let small_cache = |work: InferenceWork| work.with_cache(CacheFormat::Q8);
            let q8: (&str, Change<'_>) = ("--cache q8", &small_cache);
            let q8 = (self.caches_fit(works, CacheFormat::Q8)).then_some(&q8);
            let fitting = int8.into_iter().chain(q8).chain(smaller);
            let mut hints: Vec<String> = fitting
                .filter_map(|(option, change)| {
                    let works = works.iter().map(|&(model, work)| (model, change(work)));
                    let demand = self.inference(what, &works.collect::<Vec<_>>());
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
