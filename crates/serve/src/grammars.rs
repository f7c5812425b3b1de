//! Grammars for constrained output: vetted in a sandbox, compiled once and cached.
//!
//! The cache is bounded by itself. A grammar that requests use is part of their memory, once for all of them, whether it is in
//! the cache or was evicted.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;

use emberlm_generate::{
    Constraint, Grammar, GrammarSandbox, SettingError, VetError, VettedGrammar,
};
use thiserror::Error;
use tokio::sync::{OnceCell, Semaphore, oneshot};

use crate::memory::{Memory, MemoryError, Reservation};

/// The most compiled grammars to cache per model.
const MAX_CACHED: usize = 256;
/// The most memory of the cached grammars in bytes, by estimate.
const MAX_CACHED_BYTES: usize = 256 << 20;
/// The most vetted grammars of a model that are compiled in this process concurrently.
const COMPILERS: usize = 2;
/// The most grammars of a model that are being vetted or compiled, or are waiting for it.
pub(crate) const MAX_PENDING: usize = 64;

/// The reason that a grammar cannot be used.
#[derive(Clone, Debug, Error)]
pub enum GrammarError {
    /// The grammar is invalid or exceeds a limit.
    #[error(transparent)]
    Refused(#[from] SettingError),
    /// There is too little memory for the compiled grammar.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// Too many grammars are queued.
    #[error("too many grammars are waiting to be compiled; try again later")]
    Busy,
    /// Vetting or compiling failed for a reason unrelated to the grammar.
    #[error("the grammar could not be compiled: {0}")]
    Failed(String),
}

impl From<VetError> for GrammarError {
    fn from(error: VetError) -> Self {
        match error {
            VetError::Refused(error) => Self::Refused(error),
            VetError::Busy => Self::Busy,
            VetError::Unavailable(error) => Self::Failed(error.to_string()),
        }
    }
}

/// The grammars of one model. Concurrent requests for the same grammar compile it once.
pub(crate) struct Grammars {
    /// `None` compiles grammars in this process without vetting. Only for tests of other parts of the server.
    sandbox: Option<GrammarSandbox>,
    cache: Mutex<Cache>,
    pending: Semaphore,
    compilers: Arc<Semaphore>,
}

type Compiled = Arc<OnceCell<Constraint>>;

/// Compiled grammars, and those that are being compiled.
#[derive(Default)]
struct Cache {
    entries: HashMap<Grammar, Entry>,
    /// The number of lookups.
    clock: u64,
}

struct Entry {
    compiled: Compiled,
    /// The memory of the requests that use the grammar.
    in_use: Weak<Reservation>,
    /// The value of `clock` at the last use.
    used: u64,
}

impl Grammars {
    pub fn new(sandbox: Option<GrammarSandbox>) -> Self {
        Self {
            sandbox,
            cache: Mutex::default(),
            pending: Semaphore::new(MAX_PENDING),
            compilers: Arc::new(Semaphore::new(COMPILERS)),
        }
    }

    /// Returns the compiled grammar, from the cache if possible. `compile` runs on its own thread. The memory of the grammar is
    /// reserved until the last request that uses it has dropped it.
    ///
    /// # Errors
    /// The grammar exceeds a limit, too many grammars are queued, or there is too little memory.
    pub async fn get(
        &self,
        grammar: Grammar,
        memory: &Memory,
        compile: impl FnOnce(ToCompile) -> Result<Constraint, SettingError> + Send + 'static,
    ) -> Result<Constraint, GrammarError> {
        // Before the source is hashed and copied.
        grammar.check_size()?;
        let lookup = Lookup {
            cache: &self.cache,
            compiled: lock(&self.cache).entry(&grammar),
            grammar: &grammar,
        };
        let compile = || self.compile(grammar.clone(), compile);
        let constraint = lookup.compiled.get_or_try_init(compile).await?.clone();
        let in_use = lookup.in_use(constraint.bytes(), memory)?;
        Ok(constraint.keeping(in_use))
    }

    async fn compile(
        &self,
        grammar: Grammar,
        compile: impl FnOnce(ToCompile) -> Result<Constraint, SettingError> + Send + 'static,
    ) -> Result<Constraint, GrammarError> {
        let _pending = self.pending.try_acquire().map_err(|_| GrammarError::Busy)?;
        let grammar = match &self.sandbox {
            Some(sandbox) => {
                let (sender, vetted) = oneshot::channel();
                sandbox.submit(grammar, move |result| {
                    // The request may have been cancelled.
                    let _ = sender.send(result);
                });
                ToCompile::Vetted(vetted.await.map_err(|_| GrammarError::Busy)??)
            }
            None => ToCompile::Unvetted(grammar),
        };
        let compiler = Arc::clone(&self.compilers).acquire_owned().await;
        let compiler = compiler.map_err(|_| GrammarError::Busy)?;
        let (sender, compiled) = oneshot::channel();
        let thread = thread::Builder::new().name("grammar".to_owned());
        let failed = |reason: &dyn fmt::Display| GrammarError::Failed(reason.to_string());
        thread
            .spawn(move || {
                let _ = sender.send(compile(grammar));
                drop(compiler);
            })
            .map_err(|error| failed(&error))?;
        Ok(compiled.await.map_err(|error| failed(&error))??)
    }
}

fn lock(cache: &Mutex<Cache>) -> MutexGuard<'_, Cache> {
    cache.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One request's use of the cache. Dropping it enforces the limits of the cache.
struct Lookup<'a> {
    cache: &'a Mutex<Cache>,
    grammar: &'a Grammar,
    compiled: Compiled,
}

impl Lookup<'_> {
    /// The memory of all requests that use the grammar now.
    fn in_use(&self, bytes: usize, memory: &Memory) -> Result<Arc<Reservation>, MemoryError> {
        let mut cache = lock(self.cache);
        let entry = cache.entries.get_mut(self.grammar);
        // A grammar that was evicted meanwhile is compiled again for others, and takes memory again.
        let mut entry = entry.filter(|entry| Arc::ptr_eq(&entry.compiled, &self.compiled));
        let shared = entry.as_ref().and_then(|entry| entry.in_use.upgrade());
        if let Some(shared) = shared {
            return Ok(shared);
        }
        let reserved = Arc::new(memory.reserve(bytes)?);
        if let Some(entry) = &mut entry {
            entry.in_use = Arc::downgrade(&reserved);
        }
        Ok(reserved)
    }
}

impl Drop for Lookup<'_> {
    fn drop(&mut self) {
        let mut cache = lock(self.cache);
        match self.compiled.initialized() {
            true => cache.shrink(),
            false => cache.forget(self.grammar, &self.compiled),
        }
    }
}

impl fmt::Debug for Grammars {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cached = lock(&self.cache).entries.len();
        write!(f, "Grammars({cached} cached)")
    }
}

/// A grammar to compile for a model's vocabulary.
#[derive(Debug)]
pub(crate) enum ToCompile {
    Vetted(VettedGrammar),
    Unvetted(Grammar),
}

impl Cache {
    fn entry(&mut self, grammar: &Grammar) -> Compiled {
        self.clock += 1;
        let used = self.clock;
        let entry = self
            .entries
            .entry(grammar.clone())
            .or_insert_with(|| Entry {
                compiled: Arc::default(),
                in_use: Weak::new(),
                used,
            });
        entry.used = used;
        Arc::clone(&entry.compiled)
    }

    /// Removes an entry that failed to compile, unless another request has replaced it.
    fn forget(&mut self, grammar: &Grammar, failed: &Compiled) {
        let same = |entry: &Entry| Arc::ptr_eq(&entry.compiled, failed);
        if self.entries.get(grammar).is_some_and(same) {
            self.entries.remove(grammar);
        }
    }

    /// Evicts the least recently used grammars until the cache is within its limits.
    fn shrink(&mut self) {
        let bytes = |entry: &Entry| entry.compiled.get().map(Constraint::bytes);
        loop {
            let compiled = || {
                self.entries
                    .iter()
                    .filter_map(|(key, it)| Some((key, it, bytes(it)?)))
            };
            let total: usize = compiled().map(|(_, _, bytes)| bytes).sum();
            if total <= MAX_CACHED_BYTES && compiled().count() <= MAX_CACHED {
                return;
            }
            let oldest = compiled()
                .min_by_key(|(_, it, _)| it.used)
                .map(|(key, ..)| key.clone());
            let Some(oldest) = oldest else { return };
            self.entries.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    use emberlm_generate::Vocabulary;

    use super::*;

    fn regex(pattern: &str) -> Grammar {
        Grammar::Regex(pattern.to_owned())
    }

    fn vocabulary() -> Vocabulary {
        Vocabulary::new((0..=255).map(|byte| vec![byte]).collect(), &[]).unwrap()
    }

    fn wait<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.unwrap().block_on(future)
    }

    #[test]
    fn a_grammar_is_compiled_once_and_failures_are_not_cached() {
        let grammars = Grammars::new(None);
        let vocabulary = vocabulary();
        let times = Arc::new(AtomicUsize::new(0));
        let memory = Memory::new(1 << 30, 1 << 30);
        let get = |grammar: Grammar| {
            let (times, vocabulary) = (Arc::clone(&times), vocabulary.clone());
            grammars.get(grammar, &memory, move |grammar| {
                times.fetch_add(1, Ordering::Relaxed);
                let ToCompile::Unvetted(grammar) = grammar else {
                    unreachable!()
                };
                Constraint::new(&vocabulary, grammar)
            })
        };
        wait(async {
            let all = futures_util::future::join_all((0..4).map(|_| get(regex("a+b")))).await;
            assert!(all.iter().all(Result::is_ok));
            assert_eq!(times.load(Ordering::Relaxed), 1);
            for _ in 0..2 {
                let error = get(regex("a(?=b)")).await.unwrap_err();
                assert!(matches!(error, GrammarError::Refused(_)), "{error}");
            }
            assert_eq!(times.load(Ordering::Relaxed), 3);
            assert_eq!(lock(&grammars.cache).entries.len(), 1);
            for number in 0..MAX_CACHED + 10 {
                get(regex(&format!("{number}"))).await.unwrap();
                // It was used most recently, so it stays.
                get(regex("a+b")).await.unwrap();
            }
            assert_eq!(lock(&grammars.cache).entries.len(), MAX_CACHED);
            assert_eq!(times.load(Ordering::Relaxed), 3 + MAX_CACHED + 10);
            // A cancelled request leaves no entry, even if its grammar is compiled later.
            let (release, released) = mpsc::channel::<()>();
            let vocabulary = vocabulary.clone();
            let leaving = grammars.get(regex("left"), &memory, move |_| {
                let _ = released.recv();
                Constraint::new(&vocabulary, regex("left"))
            });
            let left = futures_util::future::poll_immediate(leaving).await;
            drop(release);
            assert!(left.is_none());
            assert_eq!(lock(&grammars.cache).entries.len(), MAX_CACHED);
        });
    }

    #[test]
    fn a_grammar_in_use_is_part_of_the_memory_once_even_if_it_was_evicted() {
        let grammars = Grammars::new(None);
        let vocabulary = vocabulary();
        let get = |pattern: &str, memory: &Memory| {
            let vocabulary = vocabulary.clone();
            let compile = move |grammar| {
                let ToCompile::Unvetted(grammar) = grammar else {
                    unreachable!()
                };
                Constraint::new(&vocabulary, grammar)
            };
            wait(grammars.get(regex(pattern), memory, compile))
        };
        let bytes = Constraint::new(&vocabulary, regex("a+b")).unwrap().bytes();
        // Twice the grammar fits, three times does not.
        let memory = Memory::new(5 * bytes / 2, 5 * bytes / 2);
        let fits = |times: usize| memory.reserve(times * bytes).is_ok();
        let held = [0; 2].map(|_| get("a+b", &memory).unwrap());
        assert!(fits(1) && !fits(2));
        lock(&grammars.cache).entries.clear();
        assert!(fits(1) && !fits(2));
        let again = get("a+b", &memory).unwrap();
        assert!(!fits(1));
        let error = get("c+d", &memory).unwrap_err();
        assert!(matches!(error, GrammarError::Memory(_)), "{error}");
        drop(held);
        assert!(fits(1) && !fits(2));
        drop(again);
        assert!(fits(2));
        // It is still in the cache.
        let unused = |_| -> Result<Constraint, SettingError> { unreachable!() };
        wait(grammars.get(regex("a+b"), &memory, unused)).unwrap();
    }
}
