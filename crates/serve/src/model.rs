//! A model that is served: its thread, what its ids stand for, and what is told of it.

use std::sync::{Arc, OnceLock};

use emberlm_generate::{
    Constraint, Grammar, GrammarSandbox, SamplingDefaults, SettingError, Vocabulary,
};
use emberlm_tokenizer::Tokenizer;
use emberlm_tokenizer::chat::{ChatEncoder, Stops};
use serde::Serialize;

use crate::grammars::{GrammarError, Grammars, ToCompile};
use crate::worker::Worker;

/// A model that is served.
pub struct ServedModel {
    /// What it is asked for by.
    pub name: String,
    /// Other names that it is asked for by.
    pub aliases: Vec<String>,
    /// When it was made, in seconds since 1970.
    pub created: u64,
    /// What its ids stand for.
    pub tokenizer: Tokenizer,
    /// How its conversations are written, where that is known.
    pub chat: Option<Talk>,
    /// The sampling settings of requests that leave them out.
    pub sampling: SamplingDefaults,
    /// The ids that end a text.
    pub stop_tokens: Vec<u32>,
    /// The id that begins a text without a prompt.
    pub beginning: Option<u32>,
    /// What is told of it, looked up anew for each question: a run goes on.
    pub card: Box<dyn Fn() -> Card + Send + Sync>,
    /// The thread that runs it.
    pub worker: Worker,
    /// What is looked up once, when it is first wanted.
    pub tables: Tables,
}

/// How a model's conversations are written.
#[derive(Debug)]
pub struct Talk {
    /// What writes them.
    pub encoder: ChatEncoder,
    /// What ends an answer.
    pub stops: Stops,
}

/// What is told of a model beside its sizes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Card {
    /// What kind of model it is.
    pub family: String,
    /// How many numbers it has learnt.
    pub parameters: u64,
    /// What its tokenizer is called.
    pub tokenizer: String,
    /// Where it comes from.
    pub about: String,
    /// Step and training loss, of a run.
    pub loss: Vec<(usize, f64)>,
    /// Step and validation loss, of a run.
    pub validation: Vec<(usize, f64)>,
}

/// Tables of a model that are made when they are first needed, and its compiled grammars.
#[derive(Debug)]
pub struct Tables {
    texts: OnceLock<Vec<Vec<u8>>>,
    vocabulary: OnceLock<Result<Vocabulary, SettingError>>,
    grammars: Grammars,
}

impl Tables {
    /// No tables yet. Without a sandbox, grammars of clients are compiled in this process, where they can exhaust its memory
    /// and its stack: only for tests.
    pub fn new(sandbox: Option<GrammarSandbox>) -> Self {
        Self {
            texts: OnceLock::new(),
            vocabulary: OnceLock::new(),
            grammars: Grammars::new(sandbox),
        }
    }
}

impl ServedModel {
    /// Returns true if requests for `name` are for this model.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.aliases.iter().any(|alias| alias == name)
    }

    /// A token's bytes by itself, within a text; a special token's name.
    pub(crate) fn bytes(&self, id: u32) -> Vec<u8> {
        let texts = self.tables.texts.get_or_init(|| {
            // Where the tokens do not say by themselves what they are, each is decoded when it is asked for.
            self.tokenizer.texts().unwrap_or_default()
        });
        match texts.get(id as usize) {
            Some(text) if !text.is_empty() => text.clone(),
            _ => self.tokenizer.decode_bytes(&[id]).unwrap_or_default(),
        }
    }

    /// A grammar, vetted and compiled for the model's tokens, or taken from the cache.
    ///
    /// # Errors
    /// The grammar exceeds a limit, too many others wait, or the tokenizer does not define the text of its tokens.
    pub(crate) async fn constraint(
        self: &Arc<Self>,
        grammar: Grammar,
    ) -> Result<Constraint, GrammarError> {
        let model = Arc::clone(self);
        let compile = move |grammar| model.compile(grammar);
        self.tables.grammars.get(grammar, compile).await
    }

    fn compile(&self, grammar: ToCompile) -> Result<Constraint, SettingError> {
        let vocabulary = self.tables.vocabulary.get_or_init(|| self.vocabulary());
        let vocabulary = vocabulary.as_ref().map_err(SettingError::clone)?;
        match grammar {
            ToCompile::Vetted(grammar) => Constraint::from_vetted(vocabulary, grammar),
            ToCompile::Unvetted(grammar) => Constraint::new(vocabulary, grammar),
        }
    }

    fn vocabulary(&self) -> Result<Vocabulary, SettingError> {
        vocabulary(
            &self.tokenizer,
            self.worker.model().vocab_size(),
            &self.end_tokens(),
        )
    }

    /// The ids that end a text or an answer.
    pub(crate) fn end_tokens(&self) -> Vec<u32> {
        let of_answers = self.chat.iter().flat_map(|chat| &chat.stops.tokens);
        self.stop_tokens.iter().chain(of_answers).copied().collect()
    }
}

/// What a model's ids stand for, to hold its text to a grammar: those beyond its tokenizer's stand for nothing. `end` are
/// the ids that end a text.
///
/// # Errors
/// The tokenizer's tokens do not say by themselves what text they are; too many of them.
pub fn vocabulary(
    tokenizer: &Tokenizer,
    vocab_size: usize,
    end: &[u32],
) -> Result<Vocabulary, SettingError> {
    let mut texts = tokenizer.texts().ok_or_else(|| {
        let rule = "its tokens must say by themselves what text they are, to hold a text to a schema or an expression";
        SettingError::new("tokenizer", tokenizer.kind(), rule)
    })?;
    texts.resize(vocab_size, Vec::new());
    Vocabulary::new(texts, end)
}
