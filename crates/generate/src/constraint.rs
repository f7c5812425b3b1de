//! Constrains generation to a JSON schema, a regular expression or a grammar, through `llguidance`.
//!
//! A [`Vocabulary`] has the text of every token id and is built once per model. A [`Constraint`] is a [`Grammar`]
//! compiled for a vocabulary; any number of sequences can share it. At each step the mask allows the token ids that
//! continue the grammar, and the end-of-text ids where the text may end. The prompt is not constrained.
//!
//! A text cut off by `max_new_tokens` is a prefix of a valid text.
//!
//! An untrusted grammar must be vetted first, by [`GrammarSandbox`](crate::GrammarSandbox). Its compilation for a
//! vocabulary and every mask are then limited according to its cost in the sandbox.

use std::any::Any;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use llguidance::api::{GrammarInit, StopReason};
use llguidance::{Logger, ParserFactory, TokenParser, panic_utils};
use toktrie::{ApproximateTokEnv, InferenceCapabilities, SimpleVob, TokEnv, TokRxInfo, TokTrie};

use crate::error::{LogitsError, SettingError};
use crate::grammar::Grammar;
use crate::json_schema::worded;
use crate::lexer_memory::{HeldMemory, LexerMemory};

/// Maximum depth of the library's prefix tree. Longer tokens are never chosen under a constraint.
const MAX_TOKEN: usize = 1000;
/// Maximum size of the vocabulary: the library's prefix tree has 22 bits for the number of nodes and 24 for an id.
const MAX_NODES: usize = 1 << 22;
/// The byte that marks names of special tokens in the library. It does not occur in UTF-8.
const NO_TEXT: u8 = 0xFF;
/// The end of a text of bytes: the id after them.
const END_OF_BYTES: u32 = 256;

/// The text of every token id of a model, as bytes. Cheap to clone.
#[derive(Clone)]
pub struct Vocabulary {
    factory: Arc<ParserFactory>,
    end: Arc<[u32]>,
    size: usize,
    /// The memory limit for the lexers of all sequences.
    memory: Arc<LexerMemory>,
}

impl Vocabulary {
    /// `bytes` `[vocab_size]` is the text of each id. Ids with empty text are never chosen, and only one of several ids
    /// with the same text. `end` has the end-of-text ids; without any, a text ends only where the grammar allows no
    /// continuation.
    ///
    /// # Errors
    /// The texts exceed four million bytes.
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
        // The library requires one end-of-text id. It is an additional id above all others.
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
        // The library panics on invalid input; the panic becomes an error.
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

/// A grammar compiled for a vocabulary. Cheap to clone.
#[derive(Clone)]
pub struct Constraint {
    vocabulary: Vocabulary,
    grammar: Arc<Grammar>,
    /// The state before the first token.
    start: Arc<TokenParser>,
    /// The texts after the first of which the grammar begins. Empty if it begins with the first token.
    markers: Arc<Vec<Vec<u8>>>,
    kept: Option<Kept>,
}

/// A value that lives as long as the clones of a constraint and the sequences that follow it.
type Kept = Arc<dyn Any + Send + Sync>;

impl Constraint {
    /// Compiles a trusted grammar, made by this program or written by its user, for `vocabulary`. Memory, stack and
    /// time are not limited: use [`Self::from_vetted`] for grammars from other sources.
    ///
    /// # Errors
    /// The grammar cannot be parsed, uses an unsupported feature, or is too large. The message has the reason.
    pub fn new(vocabulary: &Vocabulary, grammar: Grammar) -> Result<Self, SettingError> {
        grammar.check()?;
        Self::compile(vocabulary, grammar, u64::MAX)
    }

    /// Compiles a grammar with at most `fuel` for the lexer. Memory and time are proportional to it.
    pub(crate) fn compile(
        vocabulary: &Vocabulary,
        grammar: Grammar,
        fuel: u64,
    ) -> Result<Self, SettingError> {
        let mut limits = vocabulary.factory.limits().clone();
        limits.initial_lexer_fuel = limits.initial_lexer_fuel.min(fuel);
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
        let parser = parser.map_err(|error| refuse.because(worded(&told(&error))))?;
        Ok(Self {
            vocabulary: vocabulary.clone(),
            grammar: Arc::new(grammar),
            start: Arc::new(parser),
            markers: Arc::default(),
            kept: None,
        })
    }

    /// The fuel that the compilation used.
    pub(crate) fn fuel(&self) -> u64 {
        self.start.parser.lexer_stats().total_fuel_spent as u64
    }

    /// The lexer's size in bytes, as the library counts it.
    pub(crate) fn lexer_bytes(&self) -> usize {
        self.start.parser.lexer_stats().num_bytes
    }

    /// The estimated size in bytes.
    pub fn bytes(&self) -> usize {
        // A schema with many properties compiles to several hundred bytes per byte of the schema.
        const BYTES_PER_SOURCE_BYTE: usize = 500;
        self.lexer_bytes() + BYTES_PER_SOURCE_BYTE * self.grammar.source().len()
    }

    /// Compiles a trusted grammar to check whole texts with [`Constraint::allows`]: each byte is a token.
    ///
    /// # Errors
    /// The grammar is invalid.
    pub fn of_bytes(grammar: Grammar) -> Result<Self, SettingError> {
        let bytes = (0..=u8::MAX).map(|byte| vec![byte]);
        let vocabulary = Vocabulary::new(bytes.chain([Vec::new()]).collect(), &[END_OF_BYTES])?;
        Self::new(&vocabulary, grammar)
    }

    /// Returns true if the grammar of [`Constraint::of_bytes`] allows exactly `text`.
    ///
    /// ```
    /// use emberlm_generate::{Constraint, Grammar};
    ///
    /// let schema = r#"{"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}"#;
    /// let constraint = Constraint::of_bytes(Grammar::JsonSchema(schema.to_owned()))?;
    /// assert!(constraint.allows(r#"{"sum": 4}"#));
    /// assert!(!constraint.allows(r#"{"sum": "4"}"#) && !constraint.allows(r#"{"sum": 4"#));
    /// # Ok::<(), emberlm_generate::SettingError>(())
    /// ```
    pub fn allows(&self, text: &str) -> bool {
        let Ok(mut progress) = self.start(END_OF_BYTES as usize + 1) else {
            return false;
        };
        let mut ids = text.bytes().map(u32::from);
        ids.all(|id| progress.allows(id) && progress.accept(id).is_ok())
            && progress.allows(progress.size as u32)
    }

    /// Keeps `value`, such as a reservation of memory, until the last clone of this constraint and the last sequence that
    /// follows one is dropped.
    #[must_use]
    pub fn keeping(self, value: Arc<dyn Any + Send + Sync>) -> Self {
        let kept = Some(value);
        Self { kept, ..self }
    }

    /// The constraint of the text after the first of `markers`, such as the end of a model's reasoning. Until then any token
    /// is allowed that does not end the text; so is the rest of a token after the marker within it. Without markers, the
    /// constraint begins with the first token.
    #[must_use]
    pub fn after(self, markers: &[&str]) -> Self {
        let markers = markers.iter().map(|marker| marker.as_bytes().to_vec());
        Self {
            markers: Arc::new(markers.collect()),
            ..self
        }
    }

    /// The source grammar.
    pub fn grammar(&self) -> &Grammar {
        &self.grammar
    }

    /// The state at the beginning of a sequence.
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
            before: Before::new(&self.markers),
            _kept: self.kept.clone(),
        };
        progress.look();
        Ok(progress)
    }
}

impl PartialEq for Constraint {
    /// True if both have the same grammar, beginning and vocabulary.
    fn eq(&self, other: &Self) -> bool {
        self.grammar == other.grammar
            && self.markers == other.markers
            && Arc::ptr_eq(&self.vocabulary.factory, &other.vocabulary.factory)
    }
}

impl fmt::Debug for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Constraint").field(&self.grammar).finish()
    }
}

/// The position of one sequence in its constraint.
pub(crate) struct Progress {
    parser: TokenParser,
    memory: HeldMemory,
    end: Arc<[u32]>,
    size: usize,
    /// The allowed ids. The end of the text is the id after the vocabulary's last one.
    next: Result<SimpleVob, LogitsError>,
    complete: bool,
    /// The text before the grammar, until its end.
    before: Option<Before>,
    _kept: Option<Kept>,
}

/// The text before the first marker of a constraint.
struct Before {
    markers: Arc<Vec<Vec<u8>>>,
    /// The last bytes, fewer than those of the longest marker.
    tail: Vec<u8>,
}

impl Before {
    /// `None` if there is no marker.
    fn new(markers: &Arc<Vec<Vec<u8>>>) -> Option<Self> {
        let before = || Self {
            markers: Arc::clone(markers),
            tail: Vec::new(),
        };
        (!markers.is_empty()).then(before)
    }

    /// Adds the text of a token. Returns true if it completes a marker.
    fn ends_with(&mut self, text: &[u8]) -> bool {
        self.tail.extend(text);
        let tail = &self.tail;
        let is_in_tail = |marker: &Vec<u8>| {
            let mut windows = tail.windows(marker.len().max(1));
            marker.is_empty() || windows.any(|window| window == marker)
        };
        let found = self.markers.iter().any(is_in_tail);
        let longest = self.markers.iter().map(Vec::len).max().unwrap_or(0);
        let surplus = self.tail.len().saturating_sub(longest.saturating_sub(1));
        self.tail.drain(..surplus);
        found
    }
}

impl Progress {
    /// Sets the `logits` `[vocab_size]` of tokens that are not allowed to minus infinity.
    pub fn mask(&mut self, logits: &mut [f32]) -> Result<(), LogitsError> {
        if self.before.is_some() {
            for id in self.end.iter() {
                if let Some(logit) = logits.get_mut(*id as usize) {
                    *logit = f32::NEG_INFINITY;
                }
            }
            return Ok(());
        }
        let next = self.next.as_ref().map_err(LogitsError::clone)?;
        let may_end = next.is_allowed(self.size as u32);
        let mut any = false;
        for (id, logit) in (0..).zip(logits) {
            // The library does not have the model's end-of-text ids.
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

    /// Advances by an allowed token.
    pub fn accept(&mut self, id: u32) -> Result<(), LogitsError> {
        if let Some(before) = &mut self.before {
            if before.ends_with(self.parser.token_env.tok_trie().token(id)) {
                self.before = None;
            }
            return Ok(());
        }
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

    /// Returns true if the id may follow.
    fn allows(&self, id: u32) -> bool {
        self.next.as_ref().is_ok_and(|next| next.is_allowed(id))
    }

    /// Computes the next mask before its logits. If it allows nothing, the logits need not be computed.
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

    /// The token ids that may follow, or the reason why none may.
    pub(crate) fn allowed(&self) -> Result<Vec<u32>, LogitsError> {
        let next = self.next.as_ref().map_err(LogitsError::clone)?;
        Ok(next
            .iter()
            .filter(|id| (*id as usize) < self.size)
            .collect())
    }

    /// Returns true if the vocabulary has `vocab_size` ids.
    pub fn check(&self, vocab_size: usize) -> Result<(), SettingError> {
        check_size(self.size, vocab_size)
    }

    /// Returns true if the grammar is met and nothing may follow.
    pub fn is_complete(&self) -> bool {
        self.complete && self.before.is_none()
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
    let rule = format!("must have as many ids as the model: {vocab_size}");
    Err(SettingError::new("vocabulary", format!("{size} ids"), rule))
}

fn none_allowed(error: &impl fmt::Display) -> LogitsError {
    let reason = told(error);
    LogitsError::NoneAllowed { reason }
}

/// The library's error message without its traces, its states and its drawing of an expression.
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
