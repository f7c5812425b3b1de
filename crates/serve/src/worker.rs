//! The thread that runs an engine for all requests.
//!
//! Request handlers depend neither on the backend nor on the engine: they send commands and receive events. The thread
//! takes all waiting commands between two steps of the engine, so a command waits for one step at most. A request ends
//! when its [`Ticket`] is dropped.
//!
//! A request whose events are not consumed is paused once `QUEUED` of them wait for each sample: its samples keep their
//! slots and are left out of passes until half of the events are taken. The thread never waits for a client, no event
//! is lost, and the memory of a stalled client is bounded.

mod close;
mod refusal;
mod replacer;
mod ticket;
mod watch;

pub use refusal::Refusal;
pub use replacer::Replacer;
pub use ticket::Ticket;
pub use watch::WorkerWatch;

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use emberlm_generate::{
    Counts, EmbeddingRequest, Event, EventKind, ModelSizes, Request, RequestId,
};
use emberlm_tokenizer::EncodedSequence;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::{Semaphore, oneshot};

use crate::worker_engine::{EngineLimits, SubmitError, Work, WorkerEngine};
use ticket::Backlog;

/// Maximum number of waiting events per sample before the request is paused.
pub(crate) const QUEUED: usize = 64;

/// The time that a model keeps its memory, although another one needs it, if no client reads an answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// A handle of an engine's thread. Cheap to clone. The thread ends with its last handle and request.
#[derive(Clone, Debug)]
pub struct Worker {
    commands: Arc<Sender<Command>>,
    places: Arc<Semaphore>,
    limit: usize,
    tickets: Arc<AtomicU64>,
    shared: Arc<Mutex<Shared>>,
    limits: EngineLimits,
    /// The adapter of the requests that this handle submits.
    pub(crate) adapter: Option<usize>,
    /// Shared by the copies of this handle.
    users: Arc<Users>,
}

/// The requests of a handle have copies of it.
#[derive(Debug, Default)]
struct Users(Arc<()>);

/// The state that the thread last reported.
#[derive(Clone, Copy, Debug)]
struct Shared {
    counts: Counts,
    sizes: ModelSizes,
    is_loaded: bool,
}

impl Shared {
    fn of(engine: &impl WorkerEngine) -> Self {
        Self {
            counts: engine.counts(),
            sizes: engine.sizes(),
            is_loaded: engine.is_loaded(),
        }
    }
}

#[derive(Debug)]
enum Command {
    Submit {
        ticket: u64,
        work: Work,
        listener: Listener,
        answer: oneshot::Sender<Result<(), SubmitError>>,
    },
    Cancel(u64),
    CancelSample(u64, usize),
    /// Enough events of a paused request were consumed.
    Resume(u64),
    /// A new model is available.
    Replace,
    /// Another model may need the memory.
    Rest,
    Close(oneshot::Sender<()>),
}

impl Worker {
    /// Starts the thread. At most `limit` requests run and wait at the same time; each sample of a request beyond the
    /// engine's slots counts as one more.
    ///
    /// # Errors
    /// The operating system cannot start a thread.
    pub fn start<E: WorkerEngine>(mut engine: E, limit: usize) -> io::Result<(Self, Replacer<E>)> {
        let (commands, taken) = mpsc::channel();
        let (models, next) = mpsc::channel();
        let commands = Arc::new(commands);
        let waker: Weak<Sender<Command>> = Arc::downgrade(&commands);
        engine.on_wake(Box::new(move || {
            // A thread that has ended holds no memory.
            if let Some(waker) = waker.upgrade() {
                let _ = waker.send(Command::Rest);
            }
        }));
        let shared = Arc::new(Mutex::new(Shared::of(&engine)));
        let replacer = Replacer {
            models,
            commands: Arc::downgrade(&commands),
        };
        let worker = Self {
            commands,
            places: Arc::new(Semaphore::new(limit.min(Semaphore::MAX_PERMITS))),
            limit,
            tickets: Arc::default(),
            shared: Arc::clone(&shared),
            limits: engine.limits(),
            adapter: None,
            users: Arc::default(),
        };
        let thread = Thread {
            engine,
            commands: taken,
            models: next,
            shared,
            heard: HashMap::new(),
            numbers: HashMap::new(),
            deferred: Vec::new(),
            stalled: None,
        };
        thread::Builder::new()
            .name("engine".to_owned())
            .spawn(move || thread.run())?;
        Ok((worker, replacer))
    }

    /// A handle of the same thread whose requests select an adapter of the decoder's bank by its number.
    pub fn with_adapter(&self, adapter: usize) -> Self {
        Self {
            adapter: Some(adapter),
            users: Arc::default(),
            ..self.clone()
        }
    }

    /// A handle of the same thread whose requests select no adapter.
    pub fn without_adapter(&self) -> Self {
        Self {
            adapter: None,
            users: Arc::default(),
            ..self.clone()
        }
    }

    /// Returns true if both are handles of one thread.
    pub(crate) fn shares_engine(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Submits a request to the engine, with the handle's adapter.
    ///
    /// # Errors
    /// Too many requests are running or waiting, or the engine rejects the request.
    pub async fn submit(&self, request: Request) -> Result<Ticket, Refusal> {
        let adapter = self.adapter;
        let request = Request { adapter, ..request };
        self.give(Work::Generate(Box::new(request))).await
    }

    /// Submits texts to embed with the handle's adapter. Each has its own [`EventKind::Embedded`].
    ///
    /// # Errors
    /// Too many requests are running or waiting, or a text is empty, too long, or has tokens outside the vocabulary.
    pub async fn submit_embedding(&self, texts: Vec<Vec<u32>>) -> Result<Ticket, Refusal> {
        let adapter = self.adapter;
        self.give(Work::Embed(EmbeddingRequest { texts, adapter }))
            .await
    }

    /// Submits texts or pairs of texts to an encoder with a classifier. Each has its own [`EventKind::Embedded`] with the scores
    /// of the labels.
    ///
    /// # Errors
    /// Too many requests are running or waiting, a text is empty, too long, or has tokens outside the vocabulary, or the model
    /// has no classifier of texts.
    pub async fn submit_classification(
        &self,
        texts: Vec<EncodedSequence>,
    ) -> Result<Ticket, Refusal> {
        self.give(Work::Classify(texts)).await
    }

    async fn give(&self, work: Work) -> Result<Ticket, Refusal> {
        let beyond = match &work {
            Work::Generate(request) => request.samples.saturating_sub(self.limits.slots),
            // They take turns in half of the slots.
            Work::Embed(_) | Work::Classify(_) => 0,
        };
        let places = u32::try_from(beyond.saturating_add(1)).unwrap_or(u32::MAX);
        let place = Arc::clone(&self.places).try_acquire_many_owned(places);
        let place = place.map_err(|_| Refusal::Full { limit: self.limit })?;
        let number = self.tickets.fetch_add(1, Ordering::Relaxed);
        let (sender, events) = unbounded_channel();
        let (answer, answered) = oneshot::channel();
        let backlog = Arc::new(Backlog {
            events: AtomicUsize::new(0),
            limit: QUEUED.saturating_mul(work.samples().max(1)),
            paused: AtomicBool::new(false),
            is_given_up: AtomicBool::new(false),
        });
        // From here on: whoever stops to wait for the answer drops it.
        let ticket = Ticket {
            number,
            events,
            backlog: Arc::clone(&backlog),
            commands: Arc::clone(&self.commands),
            _place: place,
            _user: Arc::clone(&self.users.0),
        };
        let command = Command::Submit {
            ticket: number,
            work,
            listener: Listener {
                ticket: number,
                events: sender,
                backlog,
            },
            answer,
        };
        self.commands.send(command).map_err(|_| Refusal::Gone)?;
        answered.await.map_err(|_| Refusal::Gone)??;
        Ok(ticket)
    }

    /// The number of requests that may run and wait at the same time.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// The engine's statistics after its last step.
    pub fn counts(&self) -> Counts {
        self.shared().counts
    }

    /// Number of requests of this handle and its copies that run or wait.
    pub fn requests(&self) -> usize {
        Arc::strong_count(&self.users.0) - 1
    }

    /// Returns true if the model's weights are in memory.
    pub fn is_loaded(&self) -> bool {
        self.shared().is_loaded
    }

    /// The sizes of the model that runs.
    pub fn sizes(&self) -> ModelSizes {
        self.shared().sizes
    }

    /// The limits of the engine.
    pub fn limits(&self) -> EngineLimits {
        self.limits
    }

    fn shared(&self) -> Shared {
        *self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The destination of a request's events.
#[derive(Debug)]
struct Listener {
    ticket: u64,
    events: UnboundedSender<(usize, EventKind)>,
    backlog: Arc<Backlog>,
}

struct Thread<E: WorkerEngine> {
    engine: E,
    commands: Receiver<Command>,
    models: Receiver<E::Replacement>,
    shared: Arc<Mutex<Shared>>,
    heard: HashMap<RequestId, Listener>,
    /// The requests by their tickets.
    numbers: HashMap<u64, RequestId>,
    /// Requests that wait until the engine has rested.
    deferred: Vec<Command>,
    /// The time since which everything running is paused.
    stalled: Option<Instant>,
}

impl<E: WorkerEngine> Thread<E> {
    fn run(mut self) {
        loop {
            if self.engine.is_idle() {
                self.engine.rest();
                self.publish();
                for command in std::mem::take(&mut self.deferred) {
                    self.take(command);
                }
            }
            if self.engine.is_idle() {
                match self.commands.recv() {
                    Ok(command) => self.take(command),
                    Err(_) => return,
                }
            }
            loop {
                match self.commands.try_recv() {
                    Ok(command) => self.take(command),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return,
                }
            }
            let passed = self.step();
            self.publish();
            if passed || self.engine.is_idle() {
                self.stalled = None;
                continue;
            }
            // Everything running is paused. Only a command changes that.
            let stalled = *self.stalled.get_or_insert_with(Instant::now);
            let left = match self.engine.must_rest() {
                true => PATIENCE.saturating_sub(stalled.elapsed()),
                false => Duration::MAX,
            };
            match self.commands.recv_timeout(left) {
                Ok(command) => self.take(command),
                Err(RecvTimeoutError::Timeout) => self.give_up(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Ends all requests, whose clients do not read.
    fn give_up(&mut self) {
        for (id, listener) in self.heard.drain() {
            listener.backlog.is_given_up.store(true, Ordering::SeqCst);
            self.engine.cancel(id);
            self.numbers.remove(&listener.ticket);
        }
    }

    fn take(&mut self, command: Command) {
        match command {
            Command::Submit { .. } if self.engine.must_rest() => self.deferred.push(command),
            Command::Rest => {}
            Command::Close(closed) => self.close(closed),
            Command::Submit {
                ticket,
                work,
                listener,
                answer,
            } => {
                let answered = self.engine.submit(work).map(|id| {
                    self.heard.insert(id, listener);
                    self.numbers.insert(ticket, id);
                });
                // A client that left has sent a command.
                let _ = answer.send(answered);
            }
            Command::Resume(ticket) => {
                if let Some(&id) = self.numbers.get(&ticket) {
                    self.engine.resume(id);
                }
            }
            Command::Cancel(ticket) => {
                if let Some(id) = self.numbers.remove(&ticket) {
                    self.engine.cancel(id);
                    self.heard.remove(&id);
                }
                self.deferred.retain(|command| !matches!(command, Command::Submit { ticket: of, .. } if *of == ticket));
            }
            Command::CancelSample(ticket, sample) => {
                if let Some(&id) = self.numbers.get(&ticket) {
                    self.engine.cancel_sample(id, sample);
                }
            }
            Command::Replace => {
                // The last of several counts.
                if let Some(model) = self.models.try_iter().last() {
                    self.engine.replace(model);
                }
            }
        }
    }

    /// Returns true if there was a pass.
    fn step(&mut self) -> bool {
        let (engine, heard) = (&mut self.engine, &self.heard);
        let (mut gone, mut full) = (Vec::new(), Vec::new());
        let passed = engine.step(&mut |event: Event| {
            let Some(listener) = heard.get(&event.request) else {
                return;
            };
            // Before it is sent, so that it is never taken before it is counted.
            let before = listener.backlog.events.fetch_add(1, Ordering::SeqCst);
            if listener.events.send((event.sample, event.kind)).is_err() {
                gone.push(listener.ticket);
            } else if before + 1 >= listener.backlog.limit {
                full.push(event.request);
            }
        });
        for request in full {
            self.pause(request);
        }
        gone.into_iter()
            .for_each(|ticket| self.take(Command::Cancel(ticket)));
        passed
    }

    /// Pauses a request whose events are not consumed, unless enough of them were consumed meanwhile.
    fn pause(&mut self, request: RequestId) {
        let Some(Listener { backlog, .. }) = self.heard.get(&request) else {
            return;
        };
        self.engine.pause(request);
        backlog.paused.store(true, Ordering::SeqCst);
        // The consumer counts first and then checks for a pause; this thread pauses first and then checks the count. So
        // at least one of them sees the other's change.
        fence(Ordering::SeqCst);
        if backlog.events.load(Ordering::SeqCst) <= backlog.limit / 2
            && backlog.paused.swap(false, Ordering::SeqCst)
        {
            self.engine.resume(request);
        }
    }

    fn publish(&mut self) {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        *shared = Shared::of(&self.engine);
    }
}
