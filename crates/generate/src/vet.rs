//! Vets grammars in a sandbox before this process compiles them.
//!
//! A client's grammar can overflow the compiler's stack, exhaust memory or run for minutes, and the limits of
//! the library do not prevent all of this. [`GrammarSandbox`] therefore compiles it in a child process first
//! and computes some of its masks there. Only a grammar that passes is compiled in this process, with limits
//! derived from its cost in the child.
//!
//! The child uses a synthetic vocabulary, so it does not need the model. A pool of quick workers tries each
//! grammar first. A grammar that exceeds their short time limit moves to a single worker with more time, so
//! expensive grammars do not delay ordinary ones.

use std::io;
use std::sync::OnceLock;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

use emberlm_sandbox::{Handlers, Sandbox, SandboxError, SandboxOptions, WorkerCommand};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use crate::constraint::{Constraint, Vocabulary};
use crate::error::{LogitsError, SettingError};
use crate::grammar::Grammar;

const JOB: &str = "vet-grammar";
/// The stack for compiling in the sandbox, in bytes.
pub(crate) const STACK: usize = 8 << 20;
/// The stack for compiling a vetted grammar in this process, in bytes.
const COMPILE_STACK: usize = 4 * STACK;
/// Maximum size of a compiled lexer in bytes. Each sequence copies it.
const MAX_LEXER: usize = 32 << 20;
/// The stack for computing masks in the sandbox, in bytes: half of the default for threads of this process.
const MASK_STACK: usize = 1 << 20;
/// The memory limit of a worker, in bytes.
pub(crate) const MEMORY: u64 = 192 << 20;
const QUICK: Duration = Duration::from_millis(500);
pub(crate) const THOROUGH: Duration = Duration::from_secs(3);
/// The queue length of each of the two pools.
const QUEUE: usize = 64;

/// Compiles grammars in child processes to find out whether this process can compile them safely. Cheap to
/// clone.
#[derive(Clone, Debug)]
pub struct GrammarSandbox {
    quick: Sandbox,
    thorough: Sandbox,
}

/// A grammar that was compiled in a sandbox within the limits.
#[derive(Clone, Debug)]
pub struct VettedGrammar {
    grammar: Grammar,
    cost: GrammarCost,
}

/// The cost of compiling a grammar.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct GrammarCost {
    /// Fuel used by the lexer. Memory and time are proportional to it.
    fuel: u64,
}

impl GrammarCost {
    /// The limit for compiling the grammar for another vocabulary than the sandbox's: its cost in the sandbox with a margin.
    fn fuel_for_any_vocabulary(self) -> u64 {
        const FACTOR: u64 = 4;
        const ROOM: u64 = 100_000;
        self.fuel.saturating_mul(FACTOR).saturating_add(ROOM)
    }
}

/// The reason that a grammar was not vetted.
#[derive(Debug, thiserror::Error)]
pub enum VetError {
    /// The grammar cannot be compiled within the limits.
    #[error(transparent)]
    Refused(#[from] SettingError),
    /// Too many grammars are queued.
    #[error("too many grammars are waiting to be compiled")]
    Busy,
    /// The sandbox does not work.
    #[error("grammars cannot be compiled: {0}")]
    Unavailable(#[source] SandboxError),
}

impl GrammarSandbox {
    /// Creates a sandbox whose workers are started by `command` and run [`handlers`].
    pub fn new(command: WorkerCommand) -> Self {
        let quick = SandboxOptions {
            memory: MEMORY,
            stack: STACK as u64,
            time: QUICK,
            workers: 2,
            queue: QUEUE,
            response: 1 << 16,
            ..SandboxOptions::new(command)
        };
        let thorough = SandboxOptions {
            time: THOROUGH,
            workers: 1,
            ..quick.clone()
        };
        Self {
            quick: Sandbox::new(quick),
            thorough: Sandbox::new(thorough),
        }
    }

    /// Vets a grammar and waits for the result.
    ///
    /// # Errors
    /// The grammar cannot be compiled within the limits, or the sandbox is busy or does not work.
    pub fn vet(&self, grammar: Grammar) -> Result<VettedGrammar, VetError> {
        let (sender, receiver) = sync_channel(1);
        self.submit(grammar, move |result| {
            // Sending cannot fail: this function holds the receiver.
            let _ = sender.send(result);
        });
        receiver.recv().unwrap_or(Err(VetError::Busy))
    }

    /// Vets a grammar and calls `respond` exactly once, possibly on another thread. `respond` must not block.
    pub fn submit(
        &self,
        grammar: Grammar,
        respond: impl FnOnce(Result<VettedGrammar, VetError>) + Send + 'static,
    ) {
        if let Err(error) = grammar.check() {
            return respond(Err(error.into()));
        }
        let thorough = self.thorough.clone();
        let request = grammar.clone();
        self.quick
            .submit(JOB, &request, move |result| match result {
                Err(SandboxError::TimedOut { .. }) => {
                    let request = grammar.clone();
                    thorough.submit(JOB, &request, move |result| {
                        respond(verdict(grammar, result))
                    });
                }
                result => respond(verdict(grammar, result)),
            });
    }
}

impl Constraint {
    /// Compiles a vetted grammar for `vocabulary`, with limits derived from its cost in the sandbox.
    ///
    /// # Errors
    /// The grammar is too large for this vocabulary. The message has the reason.
    pub fn from_vetted(
        vocabulary: &Vocabulary,
        grammar: VettedGrammar,
    ) -> Result<Self, SettingError> {
        let VettedGrammar { grammar, cost } = grammar;
        let fuel = cost.fuel_for_any_vocabulary();
        let refuse = grammar.refusal();
        let made = thread::scope(|scope| -> io::Result<_> {
            let thread = thread::Builder::new().stack_size(COMPILE_STACK);
            let thread = thread.spawn_scoped(scope, || Self::compile(vocabulary, grammar, fuel))?;
            thread.join().map_err(|_| io::ErrorKind::Other.into())
        });
        let made = made.map_err(|_| refuse.because("it could not be compiled"))??;
        if made.lexer_bytes() > MAX_LEXER {
            let rule = format!("must compile to at most {MAX_LEXER} bytes");
            return Err(refuse.because(rule));
        }
        Ok(made)
    }
}

fn verdict(
    grammar: Grammar,
    result: Result<Result<GrammarCost, String>, SandboxError>,
) -> Result<VettedGrammar, VetError> {
    let rule = match result {
        Ok(Ok(cost)) => return Ok(VettedGrammar { grammar, cost }),
        Ok(Err(rule)) => rule,
        Err(SandboxError::TimedOut { limit }) => {
            format!("must compile within {} s", limit.as_secs_f32())
        }
        Err(SandboxError::Crashed { memory, stack, .. }) => format!(
            "must compile with at most {} MiB of memory and {} MiB of stack",
            memory >> 20,
            stack >> 20
        ),
        Err(SandboxError::Busy) => return Err(VetError::Busy),
        Err(error) => return Err(VetError::Unavailable(error)),
    };
    Err(grammar.refusal().because(rule).into())
}

/// Adds the vetting job to the handlers of a worker process.
pub fn handlers(handlers: Handlers) -> Handlers {
    let vocabulary = OnceLock::new();
    handlers.on(JOB, move |grammar: Grammar| {
        let vocabulary = vocabulary.get_or_init(representative_vocabulary);
        let vocabulary = vocabulary.as_ref().map_err(|it| it.rule.clone())?;
        vet_here(vocabulary, grammar).map_err(|it| it.rule)
    })
}

/// Compiles a grammar and computes some of its masks.
fn vet_here(vocabulary: &Vocabulary, grammar: Grammar) -> Result<GrammarCost, SettingError> {
    let refuse = grammar.refusal();
    let constraint = Constraint::new(vocabulary, grammar)?;
    let walks = thread::scope(|scope| {
        let thread = thread::Builder::new().stack_size(MASK_STACK);
        let walks = thread.spawn_scoped(scope, || walk(&constraint, vocabulary));
        walks.map(|walks| walks.join())
    });
    match walks {
        Ok(Ok(Ok(()))) => Ok(GrammarCost {
            fuel: constraint.fuel(),
        }),
        Ok(Ok(Err(rule))) => Err(refuse.because(rule)),
        _ => Err(refuse.because("its masks cannot be computed")),
    }
}

/// Generates the beginnings of some texts, because lexers and parsers do expensive work lazily.
fn walk(constraint: &Constraint, vocabulary: &Vocabulary) -> Result<(), String> {
    const WALKS: u64 = 3;
    const STEPS: usize = 48;
    for walk in 0..WALKS {
        let mut random = ChaCha8Rng::seed_from_u64(walk);
        let progress = constraint.start(vocabulary.size());
        let mut progress = progress.map_err(|error| error.rule)?;
        for _ in 0..STEPS {
            let allowed = progress.allowed().map_err(mask_error)?;
            if progress.is_complete() || allowed.is_empty() {
                break;
            }
            // The first walk always takes the first allowed token, the others a random one.
            let at = if walk == 0 {
                0
            } else {
                random.random_range(0..allowed.len())
            };
            progress.accept(allowed[at]).map_err(mask_error)?;
        }
    }
    Ok(())
}

fn mask_error(error: LogitsError) -> String {
    match error {
        LogitsError::NoneAllowed { reason } => {
            format!("too expensive, or not satisfiable: {reason}")
        }
        error => error.to_string(),
    }
}

/// A synthetic vocabulary that resembles a model's: every byte, pairs of letters, numbers, JSON punctuation,
/// runs of a letter or space, and syllables with and without a leading space.
fn representative_vocabulary() -> Result<Vocabulary, SettingError> {
    let mut texts: Vec<Vec<u8>> = (0..=u8::MAX).map(|byte| vec![byte]).collect();
    let mut add = |text: String| texts.push(text.into_bytes());
    for first in 'a'..='z' {
        for second in 'a'..='z' {
            add(format!("{first}{second}"));
        }
        for count in 2..=16 {
            add(String::from(first).repeat(count));
        }
    }
    for count in 2..=16 {
        add(" ".repeat(count));
    }
    for number in 10..1000 {
        add(number.to_string());
    }
    for text in [
        "{\"", "\": ", "\": \"", "\", \"", "\"}", "}]", "]}", ", ", ": ", "[\"", "true", "false",
        "null", "://", "--", "...", "\\n", "\\\"", "\\u00", "T00:", ":00", ".com", "@",
    ] {
        add(text.to_owned());
    }
    let syllables: Vec<String> = "bcdfghklmnprstvw"
        .chars()
        .flat_map(|consonant| {
            "aeiou"
                .chars()
                .map(move |vowel| format!("{consonant}{vowel}"))
        })
        .collect();
    for first in &syllables {
        add(format!(" {first}"));
        for second in &syllables {
            add(format!("{first}{second}"));
            add(format!(" {first}{second}n"));
        }
    }
    for letter in ('à'..='ö').chain('а'..='я').chain('一'..='俿') {
        add(letter.into());
    }
    texts.sort();
    texts.dedup();
    Vocabulary::new(texts, &[])
}
