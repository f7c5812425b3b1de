//! The engines of a server: loads models at the start and while it runs.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use burn::tensor::Device;
use bytesize::ByteSize;
use emberlm_kernels::Backend;
use emberlm_serve::{Place, Residency, ServedModel, WorkerWatch};

use super::bases::Bases;
use super::generators::{self, LoadedGroup, Member, SharedEngine, named};
use super::groups::{self, EngineKey};
use super::load::{self, ModelFiles, Opened, Plan};
use super::log::Log;
use super::memory;
use super::models::ModelSpec;
use crate::error::CliError;
use crate::memory_guard::{MemoryGuard, Work};
use crate::opened_model::OpenedModel;

/// Time limit for a thread that has no requests to free its memory.
const FREEING: Duration = Duration::from_secs(60);
/// The time after which the allocator has returned freed memory to the system.
const RETURNING: Duration = Duration::from_secs(2);

/// A model that was not loaded.
pub enum Failure {
    /// It does not fit into memory.
    Memory(CliError),
    /// It is invalid, or cannot be read.
    Invalid(CliError),
}

impl From<CliError> for Failure {
    fn from(error: CliError) -> Self {
        Self::Invalid(error)
    }
}

impl From<Failure> for CliError {
    fn from(failure: Failure) -> Self {
        let (Failure::Memory(error) | Failure::Invalid(error)) = failure;
        error
    }
}

/// The engines of a server.
pub struct Fleet<B: Backend> {
    device: Device<B>,
    log: Log,
    guard: MemoryGuard,
    /// The memory that models share, if there is a limit.
    limit: Option<ByteSize>,
    /// That memory, once the first models are loaded.
    residency: Option<Arc<Residency>>,
    bases: Bases<B>,
    engines: Vec<SharedEngine<B>>,
    /// All threads that have not ended.
    threads: Vec<WorkerWatch>,
}

impl<B: Backend> Fleet<B> {
    /// No engines. With `limit`, models that are not followed share that much memory and are unloaded to make room.
    pub fn new(device: Device<B>, limit: Option<ByteSize>, guard: MemoryGuard, log: Log) -> Self {
        Self {
            device,
            log,
            guard,
            limit,
            residency: None,
            bases: Bases::new(),
            engines: Vec::new(),
            threads: Vec::new(),
        }
    }

    /// Opens models, beside those that are `running`.
    fn open(
        specs: &[ModelSpec],
        running: &[Arc<ServedModel>],
    ) -> Result<Vec<ModelFiles>, CliError> {
        let about = |spec| named(spec, specs.len() > 1);
        let mut opened = Vec::new();
        for spec in specs {
            opened.push(load::open(spec).map_err(about(spec))?);
        }
        let mut models = Vec::new();
        let base = groups::only_base(specs, &opened, running);
        for (spec, opened) in specs.iter().zip(opened) {
            let model = match opened {
                Opened::Model(model) => Ok(model),
                Opened::Adapter(error) => groups::open_adapter(&spec.path, base.as_deref(), error),
            };
            let files = model.and_then(|model| ModelFiles::of(model, spec));
            models.push(files.map_err(about(spec))?);
        }
        Ok(models)
    }

    /// Checks everything that does not need weights.
    ///
    /// # Errors
    /// A model is invalid or cannot be read.
    pub fn check_models(specs: &[ModelSpec], running: &[Arc<ServedModel>]) -> Result<(), CliError> {
        let models = Self::open(specs, running)?;
        for (spec, model) in specs.iter().zip(&models) {
            load::plan(model, spec).map_err(named(spec, true))?;
        }
        Ok(())
    }

    /// Loads models and starts their threads, beside those that are `running`. Everything that does not need weights is
    /// checked for all models first, and `check` for each. A base model and adapters that a running engine admits join it.
    ///
    /// # Errors
    /// A model does not fit, is invalid, or cannot be read. None of them is loaded then.
    pub fn load(
        &mut self,
        specs: &[ModelSpec],
        running: &[Arc<ServedModel>],
        check: impl Fn(&OpenedModel) -> Result<(), Failure>,
    ) -> Result<Vec<ServedModel>, Failure> {
        let about = |spec| named(spec, specs.len() > 1);
        let models = Self::open(specs, running)?;
        models.iter().try_for_each(|files| check(&files.model))?;
        let mut plans = Vec::new();
        for (spec, model) in specs.iter().zip(&models) {
            plans.push(load::plan(model, spec).map_err(about(spec))?);
        }
        if plans.iter().any(groups::has_adapter) {
            self.bases.expect_adapters();
        }
        let groups = groups::of(specs, &plans, &self.bases);
        let joined: Vec<Option<usize>> = groups
            .iter()
            .map(|(key, members)| self.engine_for(key.as_ref()?, members, specs, &plans, running))
            .collect();
        // The model that stands for those of its engine: an adapter determines the format of its base's weights.
        let standing = |members: &Vec<usize>| {
            let adapter = members
                .iter()
                .find(|&&number| groups::has_adapter(&plans[number]));
            adapter.or(members.first()).copied().unwrap_or(0)
        };
        let new = groups.iter().zip(&joined);
        let new = new.filter(|(_, joined)| joined.is_none());
        let planned: Vec<_> = new
            .map(|((_, members), _)| standing(members))
            .map(|number| (&specs[number], &plans[number]))
            .collect();
        let works = memory::works::<B>(&planned);
        let is_start = self.residency.is_none();
        let places = self.places(&planned, &works)?;
        let mut places = places.into_iter().zip(&works);
        let mut plans: Vec<Option<Plan<'_>>> = plans.into_iter().map(Some).collect();
        let mut served = Vec::new();
        let several = specs.len() > 1;
        for ((key, members), joined) in groups.into_iter().zip(joined) {
            let members = members.into_iter();
            let members = members.filter_map(|number| Some((number, plans[number].take()?)));
            let members: Vec<_> = members.collect();
            let loaded = match joined {
                Some(engine) => self.join(engine, specs, members, running)?,
                None => {
                    let (place, works) = places.next().unzip();
                    let place = place.flatten();
                    let works = works.map_or(&[][..], Vec::as_slice);
                    if let Some(place) = &place {
                        // Waits until other models have made room.
                        place.enter();
                        if !is_start {
                            self.check(works)?;
                        }
                    }
                    let mut group = self.load_group(specs, key, members, place, several)?;
                    if let Some((_, first)) = group.models.first_mut() {
                        first.source.memory = Some(memory::bytes(works, self.guard));
                    }
                    self.engines.extend(group.engine);
                    group.models
                }
            };
            served.extend(loaded);
        }
        served.sort_by_key(|(number, _)| *number);
        let served: Vec<ServedModel> = served.into_iter().map(|(_, model)| model).collect();
        self.threads
            .extend(served.iter().map(|model| model.worker.watch()));
        self.forget_unused_bases();
        Ok(served)
    }

    /// The number of the running engine that models can join.
    fn engine_for(
        &self,
        key: &EngineKey,
        members: &[usize],
        specs: &[ModelSpec],
        plans: &[Plan<'_>],
        running: &[Arc<ServedModel>],
    ) -> Option<usize> {
        let has_base = members
            .iter()
            .any(|&number| !groups::has_adapter(&plans[number]));
        let requested = members.iter().find_map(|&number| specs[number].weights);
        self.engines.iter().position(|engine| {
            let is_served = running.iter().any(|model| engine.runs(&model.worker));
            is_served
                && engine.is_joinable()
                && engine.key.admits(key, requested)
                && !(has_base && engine.has_base())
        })
    }

    /// The places of engines to load, if models share memory. Checks that they fit.
    fn places(
        &mut self,
        planned: &[(&ModelSpec, &Plan<'_>)],
        works: &[Vec<Work<'_>>],
    ) -> Result<Vec<Option<Place>>, Failure> {
        let (Some(limit), true) = (self.limit, !planned.is_empty()) else {
            if !works.is_empty() {
                self.check(&works.concat())?;
            }
            return Ok(works.iter().map(|_| None).collect());
        };
        let Some(residency) = &self.residency else {
            let places = memory::places(planned, works, limit, self.guard);
            let (residency, places) = places.map_err(Failure::Memory)?;
            self.residency = Some(residency);
            return Ok(places);
        };
        if planned.iter().any(|(spec, _)| spec.follows) {
            let message = "with --memory, a run is followed from the start only";
            let error = CliError::new(message).hint("restart the server with it");
            return Err(error.into());
        }
        let place = |works: &Vec<Work<'_>>| Some(residency.add(memory::bytes(works, self.guard)));
        Ok(works.iter().map(place).collect())
    }

    /// Checks that engines fit into the memory that is available, once threads that have nothing to do have freed theirs.
    fn check(&mut self, works: &[Work<'_>]) -> Result<(), Failure> {
        let start = Instant::now();
        while start.elapsed() < FREEING && self.threads.iter().any(WorkerWatch::is_ending) {
            thread::sleep(Duration::from_millis(10));
        }
        let had = self.threads.len();
        self.threads.retain(|thread| !thread.has_ended());
        memory::check(works, self.guard).or_else(|error| {
            // At the start, nothing was freed.
            if had == 0 {
                return Err(Failure::Memory(error));
            }
            thread::sleep(RETURNING);
            memory::check(works, self.guard).map_err(Failure::Memory)
        })
    }

    /// Loads the models of one engine and starts its thread.
    fn load_group(
        &mut self,
        specs: &[ModelSpec],
        key: Option<EngineKey>,
        members: Vec<(usize, Plan<'_>)>,
        place: Option<Place>,
        several: bool,
    ) -> Result<LoadedGroup<B>, CliError> {
        let mut generators = Vec::new();
        for (number, plan) in members {
            let spec = &specs[number];
            match plan {
                Plan::Generator(plan) => generators.push(Member {
                    number,
                    spec,
                    plan: *plan,
                    named: several,
                }),
                // An encoder has its own engine.
                Plan::Encoder(plan) => {
                    let served = load::encoder::<B>(spec, *plan, place, &self.device, &self.log);
                    let served = served.map_err(named(spec, several))?;
                    return Ok(LoadedGroup {
                        models: vec![(number, served)],
                        engine: None,
                    });
                }
            }
        }
        generators::load(
            generators,
            key,
            place,
            &mut self.bases,
            &self.device,
            &self.log,
        )
    }

    /// Adds models to a running engine.
    fn join(
        &mut self,
        engine: usize,
        specs: &[ModelSpec],
        members: Vec<(usize, Plan<'_>)>,
        running: &[Arc<ServedModel>],
    ) -> Result<Vec<(usize, ServedModel)>, CliError> {
        let engine = &mut self.engines[engine];
        let members = members.into_iter().filter_map(|(number, plan)| match plan {
            Plan::Generator(plan) => Some(Member {
                number,
                spec: &specs[number],
                plan: *plan,
                named: specs.len() > 1,
            }),
            Plan::Encoder(_) => None,
        });
        let first = running.iter().find(|model| engine.runs(&model.worker));
        let gone = || CliError::new("the base model is no longer served");
        engine.join(members.collect(), first.ok_or_else(gone)?)
    }

    /// Serves a running model with other aliases, sampling settings or another chat template. Returns `None` if it is an
    /// encoder, which has to be loaded again.
    ///
    /// # Errors
    /// A setting is invalid.
    pub fn revise(
        spec: &ModelSpec,
        model: &ServedModel,
        running: &[Arc<ServedModel>],
    ) -> Result<Option<ServedModel>, CliError> {
        let opened = Self::open(std::slice::from_ref(spec), running)?;
        let Some(opened) = opened.first() else {
            return Ok(None);
        };
        let Plan::Generator(plan) = load::plan(opened, spec)? else {
            return Ok(None);
        };
        let member = Member {
            number: 0,
            spec,
            plan: *plan,
            named: false,
        };
        let worker = model.worker.clone();
        let mut revised = generators::serve(member, worker, "with other settings")?;
        revised.source.memory = model.source.memory;
        Ok(Some(revised))
    }

    /// Frees adapters and weights that are no longer used.
    pub fn free_unused(&mut self) {
        self.engines.retain_mut(SharedEngine::free_unused);
        self.threads.retain(|thread| !thread.has_ended());
        self.forget_unused_bases();
    }

    /// Engines that can be joined have their weights in memory anyway.
    fn forget_unused_bases(&mut self) {
        let used = self.engines.iter().map(|engine| engine.key.base());
        self.bases.keep(&used.collect::<Vec<_>>());
    }
}
