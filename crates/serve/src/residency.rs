//! Memory that the models of a server share: which of them are loaded.
//!
//! A model that is needed and does not fit beside the loaded ones asks others to leave: first those without requests, each
//! time the one that was used least recently. A model that was asked leaves once its running requests have ended, and
//! serves new ones after it was loaded again, so no model waits forever. A model that does not fit beside any other is
//! the only loaded one.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Makes a model's thread look at [`Place::is_asked`].
type Wake = Box<dyn Fn() + Send>;

/// The memory that models share.
pub struct Residency {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    budget: u64,
    models: Vec<Resident>,
    /// Number of uses of all models.
    uses: u64,
    /// The models that wait for memory, in the order of their arrival.
    waiting: VecDeque<usize>,
}

struct Resident {
    bytes: u64,
    loaded: bool,
    /// True while requests run or wait.
    busy: bool,
    /// True if another model needs the memory.
    asked: bool,
    /// The value of `uses` at its last use.
    used: u64,
    wake: Option<Wake>,
}

/// One model's share. Dropping it frees the share.
pub struct Place {
    residency: Arc<Residency>,
    at: usize,
}

impl Residency {
    /// Memory of `budget` bytes.
    pub fn new(budget: u64) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                budget,
                models: Vec::new(),
                uses: 0,
                waiting: VecDeque::new(),
            }),
            changed: Condvar::new(),
        })
    }

    /// Adds a model that needs `bytes` and is not loaded.
    pub fn add(self: &Arc<Self>, bytes: u64) -> Place {
        let mut state = self.state();
        state.models.push(Resident {
            bytes,
            loaded: false,
            busy: false,
            asked: false,
            used: 0,
            wake: None,
        });
        Place {
            at: state.models.len() - 1,
            residency: Arc::clone(self),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns true if the model fits beside the loaded ones, or none is loaded.
    fn fits(&self, at: usize) -> bool {
        let loaded = self.models.iter().filter(|model| model.loaded);
        let taken = loaded.fold(0_u64, |sum, model| sum.saturating_add(model.bytes));
        taken == 0 || taken.saturating_add(self.models[at].bytes) <= self.budget
    }

    /// Asks one more loaded model to leave, unless one that was asked has still to do so.
    fn ask(&mut self) {
        if self.models.iter().any(|model| model.loaded && model.asked) {
            return;
        }
        let loaded = self.models.iter_mut().filter(|model| model.loaded);
        if let Some(model) = loaded.min_by_key(|model| (model.busy, model.used)) {
            model.asked = true;
            if let Some(wake) = &model.wake {
                wake();
            }
        }
    }
}

impl Place {
    /// Sets the function that makes the model's thread look at [`Place::is_asked`].
    pub(crate) fn on_wake(&self, wake: Wake) {
        self.residency.state().models[self.at].wake = Some(wake);
    }

    /// Waits until there is memory for the model, which counts as loaded from then on. Call it again once it is loaded
    /// and [`Place::leave`] was called.
    pub fn enter(&self) {
        let mut state = self.residency.state();
        state.waiting.push_back(self.at);
        loop {
            // Its turn: otherwise a model that has just left could take the memory again before the one that asked for it.
            let is_next = state.waiting.front() == Some(&self.at);
            if is_next && state.fits(self.at) {
                break;
            }
            if is_next {
                state.ask();
            }
            let waited = self.residency.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
        state.waiting.pop_front();
        state.models[self.at].loaded = true;
        state.models[self.at].asked = false;
        drop(state);
        self.residency.changed.notify_all();
    }

    /// The model's memory was freed.
    pub fn leave(&self) {
        let mut state = self.residency.state();
        state.models[self.at].loaded = false;
        state.models[self.at].asked = false;
        drop(state);
        self.residency.changed.notify_all();
    }

    /// Records that the model is used.
    pub(crate) fn is_used(&self) {
        let mut state = self.residency.state();
        state.uses += 1;
        state.models[self.at].used = state.uses;
        state.models[self.at].busy = true;
    }

    /// Records that no request runs or waits.
    pub(crate) fn is_idle(&self) {
        self.residency.state().models[self.at].busy = false;
    }

    /// Returns true if another model needs the memory.
    pub(crate) fn is_asked(&self) -> bool {
        self.residency.state().models[self.at].asked
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // The number of a place that is gone has no other place.
        let wake = self.residency.state().models[self.at].wake.take();
        drop(wake);
        self.leave();
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place")
            .field("at", &self.at)
            .finish_non_exhaustive()
    }
}
