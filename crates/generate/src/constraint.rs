//! Constrains generation to a JSON schema, a regular expression or a grammar, through `llguidance`.
//!
//! A [`Vocabulary`] holds the text of every token id, made once for a model; a [`Constraint`] is a [`Grammar`] compiled for
//! it, to be given to any number of sequences. At each step the token ids that the grammar can continue with are allowed,
//! and those that end a text where it may end. The prompt is not constrained.
//!
//! A text that `max_new_tokens` ends before its constraint does is a prefix of a valid text.
//!
//! A grammar of someone else must be vetted first: see [`GrammarSandbox`](crate::GrammarSandbox). Compiling one for a
//! vocabulary, and every mask, then stay within limits that follow from its cost in the sandbox.

use std::fmt;
use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::thread;

use llguidance::api::{GrammarInit, ParserLimits, StopReason};
use llguidance::{Logger, ParserFactory, TokenParser, panic_utils};
use toktrie::{ApproximateTokEnv, InferenceCapabilities, SimpleVob, TokEnv, TokRxInfo, TokTrie};

use crate::error::{LogitsError, SettingError};
use crate::grammar::Grammar;
use crate::lexer_memory::{HeldMemory, LexerMemory};
use crate::vet::{GrammarCost, VettedGrammar};

/// Stack to compile a vetted grammar with: more than its compilation in the sandbox had.
const STACK: usize = 4 * crate::vet::STACK;
/// Bytes of a compiled lexer, which each sequence copies.
const MAX_LEXER: usize = 32 << 20;
/// The library's prefix tree takes no deeper ones; what is longer is never chosen under a constraint.
const MAX_TOKEN: usize = 1000;
/// The library's prefix tree has 22 bits for the number of its nodes, and 24 for an id.
const MAX_NODES: usize = 1 << 22;
/// Begins the names of special tokens in the library; no text has this byte.
const NO_TEXT: u8 = 0xFF;

/// The bytes that every id of a model stands for; cheap to clone.
#[derive(Clone)]
pub struct Vocabulary {
    factory: Arc<ParserFactory>,
    end: Arc<[u32]>,
    size: usize,
    /// Memory of the lexers of all sequences.
    memory: Arc<LexerMemory>,
}

impl Vocabulary {
    /// `bytes` `[vocab_size]` is the text of each id, empty for one that stands for none, which is then never chosen; of
    /// ids with the same bytes only one is. `end` are the ids that end a text; without any, it ends only where nothing may
    /// follow.
    ///
    /// # Errors
    /// More than four million bytes.
    pub fn new(mut bytes: Vec<Vec<u8>>, end: &[u32]) -> Result<Self, SettingError> {
        let size = bytes.len();
        for id in end {
            if let Some(bytes) = bytes.get_mut(*id as usize) {
                bytes.clear();
            }
        }
        for text in &mut bytes {
            if text.len() > MAX_TOKEN || text.contains(&NO_TEXT) {
                text.clear();
            }
        }
        let nodes: usize = bytes.iter().map(Vec::len).sum();
        let refuse = |rule: String| SettingError::new("vocabulary", format!("{size} ids"), rule);
        if nodes + 100 >= MAX_NODES {
            let rule =
                format!("must stand for fewer than {MAX_NODES} bytes to be held to a grammar");
            return Err(refuse(rule));
        }
        // The library wants one id that ends a text. It is an additional id above all others.
        bytes.push(vec![NO_TEXT, b'<', b'>']);
        let info = TokRxInfo::new(size as u32 + 1, size as u32);
        let make = || {
            let trie = TokTrie::from(&info, &bytes);
            let tokens: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
            let mut factory = ParserFactory::new_simple(&tokens)?;
            factory.quiet();
            factory.limits_mut().verbose_errors = false;
            Ok(factory)
        };
        // What the library panics at is an error here.
        let factory = panic_utils::catch_unwind(AssertUnwindSafe(make));
        Ok(Self {
            factory: Arc::new(factory.map_err(|error| refuse(told(&error)))?),
            end: end.into(),
            size,
            memory: Arc::default(),
        })
    }

    /// The number of ids.
    pub fn size(&self) -> usize {
        self.size
    }
}

impl fmt::Debug for Vocabulary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { size, end, .. } = self;
        write!(f, "Vocabulary({size} ids, ended by {end:?})")
    }
}

/// A grammar compiled for a vocabulary; cheap to clone.
#[derive(Clone)]
pub struct Constraint {
    vocabulary: Vocabulary,
    grammar: Arc<Grammar>,
    /// Before the first token.
    start: Arc<TokenParser>,
}

impl Constraint {
    /// Compiles a grammar this program made, or its user wrote, for `vocabulary`. It takes what memory, stack and time it
    /// takes: see [`Self::from_vetted`] for grammars of others.
    ///
    /// # Errors
    /// One that cannot be read, asks for what is not supported, or is too large, with the reason.
    pub fn new(vocabulary: &Vocabulary, grammar: Grammar) -> Result<Self, SettingError> {
        grammar.check()?;
        let limits = vocabulary.factory.limits().clone();
        Self::compile(vocabulary, grammar, limits)
    }

    /// Compiles a vetted grammar for `vocabulary`, with limits that follow from its cost in the sandbox.
    ///
    /// # Errors
    /// It is too large for this vocabulary, with the reason.
    pub fn from_vetted(
        vocabulary: &Vocabulary,
        grammar: VettedGrammar,
    ) -> Result<Self, SettingError> {
        let VettedGrammar { grammar, cost } = grammar;
        let limits = vetted_limits(vocabulary.factory.limits().clone(), &cost);
        let refuse = grammar.refusal();
        let made = thread::scope(|scope| -> io::Result<_> {
            let thread = thread::Builder::new().stack_size(STACK);
            let thread =
                thread.spawn_scoped(scope, || Self::compile(vocabulary, grammar, limits))?;
            thread.join().map_err(|_| io::ErrorKind::Other.into())
        });
        let made = made.map_err(|_| refuse.because("it could not be compiled"))??;
        if made.lexer_bytes() > MAX_LEXER {
            let rule = format!("must compile to at most {MAX_LEXER} bytes");
            return Err(refuse.because(rule));
        }
        Ok(made)
    }

    fn compile(
        vocabulary: &Vocabulary,
        grammar: Grammar,
        limits: ParserLimits,
    ) -> Result<Self, SettingError> {
        let refuse = grammar.refusal();
        let read = grammar.read().map_err(|rule| refuse.because(rule))?;
        let make = || {
            let (init, logger) = (GrammarInit::Serialized(read), Logger::new(0, 0));
            let factory = &vocabulary.factory;
            let capabilities = InferenceCapabilities::default();
            let mut parser =
                factory.create_parser_from_init_ext(init, logger, capabilities, limits)?;
            parser.start_without_prompt();
            Ok(parser)
        };
        let parser = panic_utils::catch_unwind(AssertUnwindSafe(make));
        let parser = parser.map_err(|error| refuse.because(told(&error)))?;
        Ok(Self {
            vocabulary: vocabulary.clone(),
            grammar: Arc::new(grammar),
            start: Arc::new(parser),
        })
    }

    /// The cost of compiling it, and of what it was compiled to.
    pub(crate) fn cost(&self) -> GrammarCost {
        GrammarCost {
            fuel: self.start.parser.lexer_stats().total_fuel_spent as u64,
        }
    }

    /// Bytes of its lexer, as far as its library counts them.
    fn lexer_bytes(&self) -> usize {
        self.start.parser.lexer_stats().num_bytes
    }

    /// An estimate of the bytes it holds.
    pub fn bytes(&self) -> usize {
        // A schema of many properties is compiled to several hundred bytes per byte of the schema.
        const BYTES_PER_SOURCE_BYTE: usize = 500;
        self.lexer_bytes() + BYTES_PER_SOURCE_BYTE * self.grammar.source().len()
    }

    /// The grammar that it was compiled from.
    pub fn grammar(&self) -> &Grammar {
        &self.grammar
    }

    /// The beginning of a sequence.
    pub(crate) fn start(&self, vocab_size: usize) -> Result<Progress, SettingError> {
        let size = self.vocabulary.size;
        check_size(size, vocab_size)?;
        let memory = LexerMemory::hold(&self.vocabulary.memory, self.lexer_bytes());
        let memory = memory.map_err(|rule| self.grammar.refusal().because(rule))?;
        let mut progress = Progress {
            parser: self.start.deep_clone(),
            memory,
            end: self.vocabulary.end.clone(),
            size,
            next: Ok(SimpleVob::new()),
            complete: false,
        };
        progress.look();
        Ok(progress)
    }
}

impl PartialEq for Constraint {
    /// The same grammar for the same vocabulary.
    fn eq(&self, other: &Self) -> bool {
        self.grammar == other.grammar
            && Arc::ptr_eq(&self.vocabulary.factory, &other.vocabulary.factory)
    }
}

impl fmt::Debug for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Constraint").field(&self.grammar).finish()
    }
}

/// The progress of one sequence in a constraint.
pub(crate) struct Progress {
    parser: TokenParser,
    memory: HeldMemory,
    end: Arc<[u32]>,
    size: usize,
    /// The allowed ids; the id after the vocabulary's for the end.
    next: Result<SimpleVob, LogitsError>,
    complete: bool,
}

impl Progress {
    /// Takes what is not allowed next out of `logits` `[vocab_size]`: it becomes minus infinity.
    pub fn mask(&mut self, logits: &mut [f32]) -> Result<(), LogitsError> {
        let next = self.next.as_ref().map_err(LogitsError::clone)?;
        let may_end = next.is_allowed(self.size as u32);
        let mut any = false;
        for (id, logit) in (0..).zip(logits) {
            // The library knows nothing of the ids that end a text.
            let allowed = next.is_allowed(id) || (may_end && self.end.contains(&id));
            any |= allowed;
            if !allowed {
                *logit = f32::NEG_INFINITY;
            }
        }
        match any {
            true => Ok(()),
            false => Err(none_allowed(&"the text is complete")),
        }
    }

    /// Advances by a token that the mask allowed.
    pub fn accept(&mut self, id: u32) -> Result<(), LogitsError> {
        if self.end.contains(&id) {
            self.complete = true;
            return Ok(());
        }
        let accept = || {
            let backtracked = self.parser.consume_token(id)?;
            let stopped = self.parser.check_stop()?;
            Ok((backtracked, stopped))
        };
        let accepted = panic_utils::catch_unwind(AssertUnwindSafe(accept));
        match accepted.map_err(|error| none_allowed(&error))? {
            (0, _) => self.look(),
            _ => return Err(none_allowed(&"a token was removed")),
        }
        Ok(())
    }

    /// Computes the next mask, ahead of its logits: where it allows nothing, no logits need to be computed.
    fn look(&mut self) {
        let next = || match self.parser.stop_reason() {
            StopReason::NotStopped => self.parser.compute_mask(),
            _ => Ok(self.parser.token_env.tok_trie().eos_token_set()),
        };
        let next = panic_utils::catch_unwind(AssertUnwindSafe(next));
        self.next = next.map_err(|error| none_allowed(&error));
        let held = self.parser.parser.lexer_stats().num_bytes;
        if let Err(rule) = self.memory.resize(held) {
            self.next = Err(none_allowed(&rule));
        }
        if let Ok(next) = &self.next {
            self.complete = next.is_allowed(self.size as u32) && next.num_set() == 1;
        }
    }

    /// The token ids that may follow, or why the grammar cannot be continued.
    pub(crate) fn allowed(&self) -> Result<Vec<u32>, LogitsError> {
        let next = self.next.as_ref().map_err(LogitsError::clone)?;
        Ok(next
            .iter()
            .filter(|id| (*id as usize) < self.size)
            .collect())
    }

    /// Returns true if it is of a vocabulary of `vocab_size`.
    pub fn check(&self, vocab_size: usize) -> Result<(), SettingError> {
        check_size(self.size, vocab_size)
    }

    /// Returns true if the grammar is met and nothing may follow.
    pub fn is_complete(&self) -> bool {
        self.complete
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { size, complete, .. } = self;
        write!(f, "Progress({size} ids, complete: {complete})")
    }
}

fn check_size(size: usize, vocab_size: usize) -> Result<(), SettingError> {
    if size == vocab_size {
        return Ok(());
    }
    let rule = format!("must be of as many ids as the model's {vocab_size}");
    Err(SettingError::new("vocabulary", format!("{size} ids"), rule))
}

fn none_allowed(error: &impl fmt::Display) -> LogitsError {
    let reason = told(error);
    LogitsError::NoneAllowed { reason }
}

/// The library's reason, without the traces and states that it adds, or the drawing of an expression.
fn told(error: &impl fmt::Display) -> String {
    let reason = error.to_string();
    let reason = reason.split("\n<").next().unwrap_or_default().trim();
    let reason = reason.rsplit("\nerror: ").next().unwrap_or(reason);
    match reason {
        "" | "NoExtension" | "NoExtensionBias" => {
            "no token of the vocabulary can continue it".to_owned()
        }
        reason => reason.to_owned(),
    }
}

/// Limits of a vetted grammar's compilation for another vocabulary than the sandbox's: what it cost there, with room for what
/// the vocabulary changes. Memory and time are proportional to it.
fn vetted_limits(mut limits: ParserLimits, cost: &GrammarCost) -> ParserLimits {
    const FACTOR: u64 = 4;
    const ROOM: u64 = 100_000;
    let fuel = cost.fuel.saturating_mul(FACTOR).saturating_add(ROOM);
    limits.initial_lexer_fuel = limits.initial_lexer_fuel.min(fuel);
    limits
}
