//! Vets grammars in a sandbox before this process compiles them.
//!
//! A grammar of a client can overflow the stack of its compiler, exhaust memory or run for minutes, and no limit of the
//! library prevents all of it. [`GrammarSandbox`] first compiles it in a child process and walks through some of its masks
//! there. Only a grammar that passes is compiled in this process, where the limits follow from its cost in the child.
//!
//! The child uses a synthetic vocabulary instead of the model's, so that it needs no model. A quick worker pool
//! runs each grammar first; one that exceeds its short time is run again by a pool of one worker with more time, so that
//! expensive grammars do not keep ordinary ones waiting.

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
/// Stack of a compilation in the sandbox, in bytes.
pub(crate) const STACK: usize = 8 << 20;
/// Stack of the masks in the sandbox: half of what a thread of this process has by default.
const MASK_STACK: usize = 1 << 20;
/// Memory of a compilation in the sandbox, in bytes.
pub(crate) const MEMORY: u64 = 192 << 20;
const QUICK: Duration = Duration::from_millis(500);
pub(crate) const THOROUGH: Duration = Duration::from_secs(3);
/// Grammars that may wait for each of the two pools.
const QUEUE: usize = 64;

/// Compiles grammars in child processes, to find out whether this process can compile them; cheap to clone.
#[derive(Clone, Debug)]
pub struct GrammarSandbox {
    quick: Sandbox,
    thorough: Sandbox,
}

/// A grammar that was compiled in a sandbox within its limits.
#[derive(Clone, Debug)]
pub struct VettedGrammar {
    pub(crate) grammar: Grammar,
    pub(crate) cost: GrammarCost,
}

/// The cost of compiling a grammar.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct GrammarCost {
    /// Units of work of the lexer, which memory and time are proportional to.
    pub fuel: u64,
}

/// Why a grammar was not vetted.
#[derive(Debug, thiserror::Error)]
pub enum VetError {
    /// It cannot be compiled within the limits.
    #[error(transparent)]
    Refused(#[from] SettingError),
    /// Too many grammars wait to be vetted.
    #[error("too many grammars wait to be compiled")]
    Busy,
    /// The sandbox does not work.
    #[error("grammars cannot be compiled: {0}")]
    Unavailable(#[source] SandboxError),
}

impl GrammarSandbox {
    /// A sandbox whose workers are started by `command` and serve [`handlers`].
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
    /// It cannot be compiled within the limits, or the sandbox is busy or does not work.
    pub fn vet(&self, grammar: Grammar) -> Result<VettedGrammar, VetError> {
        let (sender, receiver) = sync_channel(1);
        self.submit(grammar, move |result| {
            // The receiver is this function's.
            let _ = sender.send(result);
        });
        receiver.recv().unwrap_or(Err(VetError::Busy))
    }

    /// Vets a grammar and calls `respond` once, possibly from another thread. `respond` must not block.
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

/// Adds the job that vets grammars to those of a worker process.
pub fn handlers(handlers: Handlers) -> Handlers {
    let vocabulary = OnceLock::new();
    handlers.on(JOB, move |grammar: Grammar| {
        let vocabulary = vocabulary.get_or_init(representative_vocabulary);
        let vocabulary = vocabulary.as_ref().map_err(|it| it.rule.clone())?;
        vet_here(vocabulary, grammar).map_err(|it| it.rule)
    })
}

/// Compiles a grammar and walks through masks of it.
fn vet_here(vocabulary: &Vocabulary, grammar: Grammar) -> Result<GrammarCost, SettingError> {
    let refuse = grammar.refusal();
    let constraint = Constraint::new(vocabulary, grammar)?;
    let walks = thread::scope(|scope| {
        let thread = thread::Builder::new().stack_size(MASK_STACK);
        let walks = thread.spawn_scoped(scope, || walk(&constraint, vocabulary));
        walks.map(|walks| walks.join())
    });
    match walks {
        Ok(Ok(Ok(()))) => Ok(constraint.cost()),
        Ok(Ok(Err(rule))) => Err(refuse.because(rule)),
        _ => Err(refuse.because("its masks cannot be computed")),
    }
}

/// Generates the beginnings of some texts: expensive lexers and parsers are built as texts advance.
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
            // The first walk takes the first token each time, the others any.
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

/// A vocabulary that represents a model's: every byte, pairs of letters, numbers, punctuation as in JSON, runs of a letter
/// or blank, and syllables with and without a blank before them.
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
