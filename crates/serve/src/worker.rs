//! A thread that runs an engine for all who ask.
//!
//! What asks knows neither the backend nor the engine: it sends commands and hears what comes of them. Between two steps
//! of the engine the thread takes all commands that wait, so that one is answered after a step at the latest. A request
//! ends where nobody hears of it any more.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use emberlm_generate::{
    Chosen, Counts, Ended, Engine, EngineConfig, Event, EventKind, GenerateError, Request,
    RequestId, embed,
};
use emberlm_kernels::Backend;
use emberlm_model::{DecoderConfig, InferenceDecoder, Predictor};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// Why a worker took nothing.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// As many requests are under way as may be.
    #[error("too many requests are under way: {limit} at once")]
    Full {
        /// How many may be.
        limit: usize,
    },
    /// The engine does not take it.
    #[error(transparent)]
    Invalid(#[from] GenerateError),
    /// The thread is gone: it failed, or the program ends.
    #[error("the model's thread has ended")]
    Gone,
}

/// What became of a sample.
#[derive(Clone, Debug, PartialEq)]
pub enum Told {
    /// A token was made.
    Token(Chosen),
    /// It came to its end.
    Finished(Ended),
    /// It failed.
    Failed(GenerateError),
}

/// An engine's thread, as it is spoken to; cheap to clone. The thread ends with the last of them.
#[derive(Clone, Debug)]
pub struct Worker {
    commands: Sender<Command>,
    places: Arc<Semaphore>,
    limit: usize,
    tickets: Arc<AtomicU64>,
    shared: Arc<Mutex<Shared>>,
    config: EngineConfig,
}

/// What the thread last said of itself.
#[derive(Clone, Debug)]
struct Shared {
    counts: Counts,
    model: DecoderConfig,
}

/// Gives the thread another decoder.
#[derive(Debug)]
pub struct Replacer<B: Backend> {
    decoders: Sender<Arc<InferenceDecoder<B>>>,
    commands: Sender<Command>,
}

#[derive(Debug)]
enum Command {
    Submit {
        ticket: u64,
        request: Box<Request>,
        events: UnboundedSender<(usize, Told)>,
        answer: oneshot::Sender<Result<(), GenerateError>>,
    },
    Cancel(u64),
    CancelSample(u64, usize),
    Embed {
        tokens: Vec<u32>,
        answer: oneshot::Sender<Result<Vec<f32>, GenerateError>>,
    },
    /// There is a decoder to be taken.
    Replace,
}

/// A request that runs or waits; it ends when this is dropped.
#[derive(Debug)]
pub struct Ticket {
    number: u64,
    events: UnboundedReceiver<(usize, Told)>,
    commands: Sender<Command>,
    _place: OwnedSemaphorePermit,
}

impl Worker {
    /// Starts the thread. At most `limit` requests run and wait at the same time.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start<B: Backend>(engine: Engine<B>, limit: usize) -> io::Result<(Self, Replacer<B>)> {
        let (commands, taken) = mpsc::channel();
        let (decoders, next) = mpsc::channel();
        let shared = Arc::new(Mutex::new(Shared {
            counts: engine.counts(),
            model: Predictor::from(&**engine.decoder()).config().clone(),
        }));
        let worker = Self {
            commands: commands.clone(),
            places: Arc::new(Semaphore::new(limit.min(Semaphore::MAX_PERMITS))),
            limit,
            tickets: Arc::default(),
            shared: Arc::clone(&shared),
            config: *engine.config(),
        };
        let thread = Thread {
            published: Arc::clone(engine.decoder()),
            engine,
            commands: taken,
            decoders: next,
            shared,
            heard: HashMap::new(),
            numbers: HashMap::new(),
        };
        thread::Builder::new()
            .name("engine".to_owned())
            .spawn(move || thread.run())?;
        // The replacer's end alone does not keep the thread.
        Ok((worker, Replacer { decoders, commands }))
    }

    /// Gives the engine a request.
    ///
    /// # Errors
    /// Too many are under way, or the engine does not take it.
    pub async fn submit(&self, request: Request) -> Result<Ticket, Refusal> {
        let place = Arc::clone(&self.places).try_acquire_owned();
        let place = place.map_err(|_| Refusal::Full { limit: self.limit })?;
        let number = self.tickets.fetch_add(1, Ordering::Relaxed);
        let (sender, events) = unbounded_channel();
        let (answer, answered) = oneshot::channel();
        // From here on: whoever stops to wait for the answer drops it.
        let ticket = Ticket {
            number,
            events,
            commands: self.commands.clone(),
            _place: place,
        };
        let command = Command::Submit {
            ticket: number,
            request: Box::new(request),
            events: sender,
            answer,
        };
        self.commands.send(command).map_err(|_| Refusal::Gone)?;
        answered.await.map_err(|_| Refusal::Gone)??;
        Ok(ticket)
    }

    /// The mean of the states before the head over a text's tokens, `[d_model]`.
    ///
    /// # Errors
    /// Too many requests are under way, or the tokens are none, too many or unknown to the model.
    pub async fn embed(&self, tokens: Vec<u32>) -> Result<Vec<f32>, Refusal> {
        let place = self.places.try_acquire();
        let _place = place.map_err(|_| Refusal::Full { limit: self.limit })?;
        let (answer, answered) = oneshot::channel();
        let command = Command::Embed { tokens, answer };
        self.commands.send(command).map_err(|_| Refusal::Gone)?;
        Ok(answered.await.map_err(|_| Refusal::Gone)??)
    }

    /// What the engine did and does, as of its last step.
    pub fn counts(&self) -> Counts {
        self.shared().counts
    }

    /// The model that runs.
    pub fn model(&self) -> DecoderConfig {
        self.shared().model
    }

    /// How large the engine is.
    pub fn config(&self) -> &EngineConfig {
        &self.config
    }

    fn shared(&self) -> Shared {
        let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.clone()
    }
}

impl<B: Backend> Replacer<B> {
    /// Gives another decoder, which takes over once all that runs has ended; what waits then waits for it. Whether there is
    /// a thread to take it. One that the engine's context is too long for is not taken.
    pub fn replace(&self, decoder: Arc<InferenceDecoder<B>>) -> bool {
        self.decoders.send(decoder).is_ok() && self.commands.send(Command::Replace).is_ok()
    }
}

impl Ticket {
    /// What becomes of which sample; none after the thread's end.
    pub async fn next(&mut self) -> Option<(usize, Told)> {
        self.events.recv().await
    }

    /// Ends a sample: nothing more is wanted of it. What was told before may still come.
    pub fn cancel_sample(&self, sample: usize) {
        // A thread that has ended has ended the sample.
        let _ = self
            .commands
            .send(Command::CancelSample(self.number, sample));
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        // A thread that has ended has ended the request.
        let _ = self.commands.send(Command::Cancel(self.number));
    }
}

/// Who hears of a request.
struct Listener {
    ticket: u64,
    events: UnboundedSender<(usize, Told)>,
}

struct Thread<B: Backend> {
    engine: Engine<B>,
    commands: Receiver<Command>,
    decoders: Receiver<Arc<InferenceDecoder<B>>>,
    shared: Arc<Mutex<Shared>>,
    /// The decoder that was last told of.
    published: Arc<InferenceDecoder<B>>,
    heard: HashMap<RequestId, Listener>,
    /// The requests by their tickets.
    numbers: HashMap<u64, RequestId>,
}

impl<B: Backend> Thread<B> {
    fn run(mut self) {
        loop {
            if self.engine.is_idle() {
                self.publish();
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
            self.step();
            self.publish();
        }
    }

    fn take(&mut self, command: Command) {
        match command {
            Command::Submit {
                ticket,
                request,
                events,
                answer,
            } => {
                let answered = match self.engine.submit(*request) {
                    Ok(id) => {
                        self.heard.insert(id, Listener { ticket, events });
                        self.numbers.insert(ticket, id);
                        Ok(())
                    }
                    Err(error) => Err(error),
                };
                // Whoever has gone has said so by a command.
                let _ = answer.send(answered);
            }
            Command::Cancel(ticket) => {
                if let Some(id) = self.numbers.remove(&ticket) {
                    self.engine.cancel(id);
                    self.heard.remove(&id);
                }
            }
            Command::CancelSample(ticket, sample) => {
                if let Some(&id) = self.numbers.get(&ticket) {
                    self.engine.cancel_sample(id, sample);
                }
            }
            Command::Embed { tokens, answer } => {
                if !answer.is_closed() {
                    let _ = answer.send(self.embed(&tokens));
                }
            }
            Command::Replace => {
                // Of several the last one counts.
                if let Some(decoder) = self.decoders.try_iter().last() {
                    // One that does not fit is left out: what runs goes on with what there is.
                    let _ = self.engine.replace_decoder(decoder);
                }
            }
        }
    }

    fn step(&mut self) {
        let (engine, heard) = (&mut self.engine, &self.heard);
        let mut gone = Vec::new();
        engine.step(&mut |event: Event| {
            let told = match event.kind {
                EventKind::Token(chosen) => Told::Token(chosen),
                EventKind::Finished(ended) => Told::Finished(ended),
                EventKind::Failed(error) => Told::Failed(error),
            };
            if let Some(listener) = heard.get(&event.request)
                && listener.events.send((event.sample, told)).is_err()
            {
                gone.push(listener.ticket);
            }
        });
        gone.into_iter()
            .for_each(|ticket| self.take(Command::Cancel(ticket)));
    }

    fn embed(&self, tokens: &[u32]) -> Result<Vec<f32>, GenerateError> {
        Ok(embed(&**self.engine.decoder(), tokens)?)
    }

    fn publish(&mut self) {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.counts = self.engine.counts();
        let decoder = self.engine.decoder();
        if !Arc::ptr_eq(decoder, &self.published) {
            shared.model = Predictor::from(&**decoder).config().clone();
            self.published = Arc::clone(decoder);
        }
    }
}
