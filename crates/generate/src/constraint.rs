//! Holds generation to a JSON schema, a regular expression or a grammar, through `llguidance`.
//!
//! A [`Vocabulary`] is what every id stands for, made once for a model; a [`Constraint`] is a grammar compiled for it, to
//! be given to any number of sequences. At each step the ids that the grammar can go on with are allowed, and those that
//! end a text where it may end. What has come before, the prompt, is not looked at.
//!
//! A text that a constraint has not ended because `max_new_tokens` came first is a beginning of what was asked for.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use llguidance::api::TopLevelGrammar;
use llguidance::{Matcher, ParserFactory, panic_utils};
use serde_json::{Value, json};
use toktrie::{ApproximateTokEnv, SimpleVob, TokEnv, TokRxInfo, TokTrie};

use crate::error::{LogitsError, SettingError};

/// How many bytes a schema, an expression or a grammar may have.
const MAX_SOURCE: usize = 1 << 20;
/// The library's prefix tree takes no deeper ones; what is longer is never chosen under a constraint.
const MAX_TOKEN: usize = 1000;
/// The library's prefix tree has 22 bits for the number of its nodes, and 24 for an id.
const MAX_NODES: usize = 1 << 22;
/// Begins the names of special tokens in the library; no text has this byte.
const NO_TEXT: u8 = 0xFF;

/// What every id of a model stands for; cheap to clone.
#[derive(Clone)]
pub struct Vocabulary {
    factory: Arc<ParserFactory>,
    end: Arc<[u32]>,
    size: usize,
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
        // The library wants one id that ends a text. It is one of its own, above all others.
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
        })
    }

    /// How many ids there are.
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

/// What a text must be, as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Grammar {
    /// JSON that a schema (draft 2020-12, or as `$schema` says) describes, with a blank after each comma and colon and no
    /// other, unless the schema has llguidance's `x-guidance`. References are those within the schema (`#/$defs/…`).
    JsonSchema(String),
    /// A text that a regular expression, of the `regex` crate's syntax, matches as a whole.
    Regex(String),
    /// A text of a grammar in llguidance's variant of Lark's syntax.
    Lark(String),
}

impl Grammar {
    /// One of a few texts.
    pub fn choice<S: AsRef<str>>(texts: &[S]) -> Self {
        let text = |text: &S| regex_syntax::escape(text.as_ref());
        let texts: Vec<String> = texts.iter().map(text).collect();
        Self::Regex(texts.join("|"))
    }

    /// The setting's name and the text.
    fn source(&self) -> (&'static str, &str) {
        match self {
            Self::JsonSchema(source) => ("json_schema", source),
            Self::Regex(source) => ("regex", source),
            Self::Lark(source) => ("grammar", source),
        }
    }

    fn read(&self) -> Result<TopLevelGrammar, String> {
        match self {
            Self::JsonSchema(schema) => {
                let schema = serde_json::from_str(schema);
                let schema = schema.map_err(|error| format!("it is not JSON: {error}"))?;
                Ok(TopLevelGrammar::from_json_schema(with_few_blanks(schema)))
            }
            Self::Regex(regex) => {
                // The library drops a backslash at the end; what is wrong is better told by its own parser.
                regex_syntax::parse(regex).map_err(|error| told(&error))?;
                Ok(TopLevelGrammar::from_regex(regex))
            }
            Self::Lark(grammar) => Ok(TopLevelGrammar::from_lark(grammar.clone())),
        }
    }
}

/// A small model that may write blanks anywhere writes them without end.
fn with_few_blanks(mut schema: Value) -> Value {
    if let Some(fields) = schema.as_object_mut() {
        let few = || json!({ "whitespace_flexible": false, "item_separator": ", ", "key_separator": ": " });
        fields.entry("x-guidance").or_insert_with(few);
    }
    schema
}

/// A grammar compiled for a vocabulary; cheap to clone.
#[derive(Clone)]
pub struct Constraint {
    vocabulary: Vocabulary,
    grammar: Arc<Grammar>,
    /// Before the first token.
    start: Arc<Matcher>,
}

impl Constraint {
    /// Compiles `grammar` for `vocabulary`.
    ///
    /// # Errors
    /// One that cannot be read, asks for what is not supported, or is too large, with the reason.
    pub fn new(vocabulary: &Vocabulary, grammar: Grammar) -> Result<Self, SettingError> {
        let (field, source) = grammar.source();
        let refuse = |rule: String| SettingError::new(field, shown(source), rule);
        if source.len() > MAX_SOURCE {
            let rule = format!("must have at most {MAX_SOURCE} bytes");
            return Err(refuse(rule));
        }
        let read = grammar.read().map_err(refuse)?;
        let factory = &vocabulary.factory;
        let make = || factory.create_parser(read);
        let parser = panic_utils::catch_unwind(AssertUnwindSafe(make));
        let parser = parser.map_err(|error| refuse(told(&error)))?;
        let start = Arc::new(Matcher::new(Ok(parser)));
        Ok(Self {
            vocabulary: vocabulary.clone(),
            grammar: Arc::new(grammar),
            start,
        })
    }

    /// What it was compiled of.
    pub fn grammar(&self) -> &Grammar {
        &self.grammar
    }

    /// The beginning of a sequence.
    pub(crate) fn start(&self, vocab_size: usize) -> Result<Progress, SettingError> {
        let size = self.vocabulary.size;
        check_size(size, vocab_size)?;
        let mut progress = Progress {
            matcher: self.start.deep_clone(),
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

/// How far one sequence has come in a constraint.
pub(crate) struct Progress {
    matcher: Matcher,
    end: Arc<[u32]>,
    size: usize,
    /// What may come next; the id after the vocabulary's for the end.
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

    /// Goes on by a token that the mask allowed.
    pub fn accept(&mut self, id: u32) -> Result<(), LogitsError> {
        if self.end.contains(&id) {
            self.complete = true;
            return Ok(());
        }
        let accepted = self.matcher.consume_token(id);
        accepted.map_err(|error| none_allowed(&error))?;
        self.look();
        Ok(())
    }

    /// Finds what may come next, ahead of its logits: where that is nothing, none need be made.
    fn look(&mut self) {
        let next = self.matcher.compute_mask_or_eos();
        self.next = next.map_err(|error| none_allowed(&error));
        if let Ok(next) = &self.next {
            self.complete = next.is_allowed(self.size as u32) && next.num_set() == 1;
        }
    }

    /// Whether it is of a vocabulary of `vocab_size`.
    pub fn check(&self, vocab_size: usize) -> Result<(), SettingError> {
        check_size(self.size, vocab_size)
    }

    /// Whether the grammar is met and nothing may follow.
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
            "no token of the vocabulary goes on with it".to_owned()
        }
        reason => reason.to_owned(),
    }
}

/// A text's beginning, for an error.
fn shown(source: &str) -> String {
    const MOST: usize = 60;
    match source.char_indices().nth(MOST) {
        Some((at, _)) => format!("{}…", &source[..at]),
        None => source.to_owned(),
    }
}
