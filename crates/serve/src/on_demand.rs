//! An engine that is loaded when it is needed, and unloaded when another model needs its memory.

use emberlm_generate::{Counts, Event, ModelSizes, RequestId};

use crate::residency::Place;
use crate::worker_engine::{EngineLimits, SubmitError, Work, WorkerEngine};

/// Loads a model's engine again after it was unloaded.
pub struct Reload<E> {
    /// The model's memory, which it has entered.
    pub place: Place,
    /// Loads the engine. The error is a message.
    pub load: Box<dyn FnMut() -> Result<E, String> + Send>,
}

impl<E> Reload<E> {
    /// The same with another type, such as that of a model instead of its engine.
    pub(crate) fn map<F>(
        self,
        mut convert: impl FnMut(E) -> Result<F, String> + Send + 'static,
    ) -> Reload<F>
    where
        E: 'static,
    {
        let mut load = self.load;
        Reload {
            place: self.place,
            load: Box::new(move || convert(load()?)),
        }
    }
}

/// Saves the state of an engine.
type Save<E> = Box<dyn FnMut(&E) + Send>;

/// An engine, or its limits and totals while it is not loaded.
pub struct OnDemand<E> {
    engine: Option<E>,
    /// `None` for an engine that is never unloaded.
    reload: Option<Reload<E>>,
    limits: EngineLimits,
    sizes: ModelSizes,
    /// The totals of the engines before this one.
    before: Counts,
    /// Called for a loaded engine before the program ends.
    save: Option<Save<E>>,
}

impl<E: WorkerEngine> OnDemand<E> {
    /// Saves the state of the engine by `save` before the program ends, if it is loaded then.
    pub(crate) fn saved_by(mut self, save: Option<impl FnMut(&E) + Send + 'static>) -> Self {
        self.save = save.map(|save| Box::new(save) as Save<E>);
        self
    }

    /// A loaded engine, which is unloaded and loaded again if there is a `reload`.
    pub(crate) fn new(engine: E, reload: Option<Reload<E>>) -> Self {
        Self {
            limits: engine.limits(),
            sizes: engine.sizes(),
            engine: Some(engine),
            reload,
            before: Counts::default(),
            save: None,
        }
    }

    fn load(&mut self) -> Result<&mut E, SubmitError> {
        if self.engine.is_none() {
            let Some(reload) = &mut self.reload else {
                return Err(SubmitError::Load("it is not loaded".to_owned()));
            };
            reload.place.enter();
            match (reload.load)() {
                Ok(engine) => self.engine = Some(engine),
                Err(error) => {
                    reload.place.leave();
                    return Err(SubmitError::Load(error));
                }
            }
        }
        self.engine
            .as_mut()
            .ok_or_else(|| SubmitError::Load("it is not loaded".to_owned()))
    }
}

impl<E: WorkerEngine> WorkerEngine for OnDemand<E> {
    type Replacement = E::Replacement;

    fn limits(&self) -> EngineLimits {
        self.limits
    }

    fn sizes(&self) -> ModelSizes {
        self.engine.as_ref().map_or(self.sizes, WorkerEngine::sizes)
    }

    fn counts(&self) -> Counts {
        let now = self
            .engine
            .as_ref()
            .map_or_else(Counts::default, WorkerEngine::counts);
        now.after(&self.before)
    }

    fn submit(&mut self, work: Work) -> Result<RequestId, SubmitError> {
        if let Some(reload) = &self.reload {
            reload.place.is_used();
        }
        self.load()?.submit(work)
    }

    fn step(&mut self, on: &mut dyn FnMut(Event)) -> bool {
        self.engine.as_mut().is_some_and(|engine| engine.step(on))
    }

    fn is_idle(&self) -> bool {
        self.engine.as_ref().is_none_or(WorkerEngine::is_idle)
    }

    fn pause(&mut self, request: RequestId) {
        if let Some(engine) = &mut self.engine {
            engine.pause(request);
        }
    }

    fn resume(&mut self, request: RequestId) {
        if let Some(engine) = &mut self.engine {
            engine.resume(request);
        }
    }

    fn cancel(&mut self, request: RequestId) {
        if let Some(engine) = &mut self.engine {
            engine.cancel(request);
        }
    }

    fn cancel_sample(&mut self, request: RequestId, sample: usize) {
        if let Some(engine) = &mut self.engine {
            engine.cancel_sample(request, sample);
        }
    }

    fn replace(&mut self, model: Self::Replacement) {
        // An unloaded model is read again anyway.
        if let Some(engine) = &mut self.engine {
            engine.replace(model);
        }
    }

    fn is_loaded(&self) -> bool {
        self.engine.is_some()
    }

    fn on_wake(&mut self, wake: Box<dyn Fn() + Send>) {
        if let Some(reload) = &self.reload {
            reload.place.on_wake(wake);
        }
    }

    fn close(&mut self) {
        if let (Some(engine), Some(save)) = (&self.engine, &mut self.save) {
            save(engine);
        }
    }

    fn must_rest(&self) -> bool {
        let asked = self
            .reload
            .as_ref()
            .is_some_and(|reload| reload.place.is_asked());
        asked && self.engine.is_some()
    }

    fn rest(&mut self) {
        let Some(reload) = &self.reload else {
            return;
        };
        reload.place.is_idle();
        if !reload.place.is_asked() {
            return;
        }
        if let Some(engine) = self.engine.take() {
            self.sizes = engine.sizes();
            self.before = engine.counts().after(&self.before);
            drop(engine);
            reload.place.leave();
        }
    }
}

#[cfg(test)]
mod tests;
