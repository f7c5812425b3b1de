//! A model that is served: its thread, its vocabulary and its description.

use std::sync::{Arc, OnceLock};

use emberlm_generate::{
    Constraint, Grammar, GrammarSandbox, SamplingDefaults, SettingError, Vocabulary,
};
use emberlm_tokenizer::Tokenizer;
use emberlm_tokenizer::chat::{ChatEncoder, Stops};
use serde::Serialize;

use crate::grammars::{GrammarError, Grammars, ToCompile};
use crate::tools::ToolFormat;
use crate::worker::Worker;

/// A model that is served.
pub struct ServedModel {
    /// The name that clients ask for.
    pub name: String,
    /// Other names that clients may ask for.
    pub aliases: Vec<String>,
    /// The time of its creation, in seconds since 1970.
    pub created: u64,
    /// The text of its ids.
    pub tokenizer: Tokenizer,
    /// Writes its conversations, if it has a chat template.
    pub chat: Option<ChatFormat>,
    /// Writes conversations with tools, if it has another chat template for them.
    pub tool_chat: Option<ChatFormat>,
    /// The sampling settings of requests that leave them out.
    pub sampling: SamplingDefaults,
    /// The ids that end a text.
    pub stop_tokens: Vec<u32>,
    /// The id that begins a text without a prompt.
    pub beginning: Option<u32>,
    /// Its description, read again for each request: a run may still be training.
    pub card: Box<dyn Fn() -> Card + Send + Sync>,
    /// The thread that runs it.
    pub worker: Worker,
    /// Tables that are made when they are first needed.
    pub tables: Tables,
}

/// The form of a model's conversations.
#[derive(Debug)]
pub struct ChatFormat {
    /// Writes them by a chat template.
    pub encoder: ChatEncoder,
    /// The ends of an answer.
    pub stops: Stops,
}

/// The description of a model, without its sizes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Card {
    /// The model's family.
    pub family: String,
    /// The number of its parameters.
    pub parameters: u64,
    /// The name of its tokenizer.
    pub tokenizer: String,
    /// Its origin.
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

    /// Writes conversations, with tools or without.
    pub(crate) fn chat_format(&self, with_tools: bool) -> Option<&ChatFormat> {
        let of_tools = self.tool_chat.as_ref().filter(|_| with_tools);
        of_tools.or(self.chat.as_ref())
    }

    /// The format in which the model calls functions; `None` if it calls none.
    pub(crate) fn tool_format(&self) -> Option<&'static ToolFormat> {
        let template = self.chat_format(true)?.encoder.template();
        ToolFormat::of_template(template.source())
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
        let mut texts = token_texts(&self.tokenizer, self.worker.model().vocab_size())?;
        // The markers of calls are part of an answer, special tokens or not.
        if let Some(format) = self.tool_format() {
            for (name, id) in self.tokenizer.special_tokens() {
                if let Some(text) = texts.get_mut(id as usize)
                    && format.is_marker(&name)
                {
                    *text = name.into_bytes();
                }
            }
        }
        Vocabulary::new(texts, &self.end_tokens())
    }

    /// The ids that end a text or an answer.
    pub(crate) fn end_tokens(&self) -> Vec<u32> {
        let formats = self.chat.iter().chain(&self.tool_chat);
        let of_answers = formats.flat_map(|chat| &chat.stops.tokens);
        self.stop_tokens.iter().chain(of_answers).copied().collect()
    }
}

/// The vocabulary of a model, to constrain its text to a grammar. Ids beyond its tokenizer's stand for nothing. `end` are the ids
/// that end a text.
///
/// # Errors
/// The tokenizer's tokens do not say by themselves what text they are; too many of them.
pub fn vocabulary(
    tokenizer: &Tokenizer,
    vocab_size: usize,
    end: &[u32],
) -> Result<Vocabulary, SettingError> {
    Vocabulary::new(token_texts(tokenizer, vocab_size)?, end)
}

/// The text of each id `[vocab_size]`.
fn token_texts(tokenizer: &Tokenizer, vocab_size: usize) -> Result<Vec<Vec<u8>>, SettingError> {
    let mut texts = tokenizer.texts().ok_or_else(|| {
        let rule = "its tokens must say by themselves what text they are, to constrain a text to a schema or an expression";
        SettingError::new("tokenizer", tokenizer.kind(), rule)
    })?;
    texts.resize(vocab_size, Vec::new());
    Ok(texts)
}
