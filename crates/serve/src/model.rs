//! A served model: its engine's thread, its vocabulary and its description.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use emberlm_checkpoint::{ModelKind, unit_vector};
use emberlm_generate::{
    Constraint, Grammar, GrammarSandbox, SamplingDefaults, SettingError, Vocabulary,
};
use emberlm_tokenizer::chat::{ChatEncoder, Stops};
use emberlm_tokenizer::{LeastTokens, SequenceEncoder, Tokenizer, TokenizerError};
use serde::Serialize;

use crate::grammars::{GrammarError, Grammars, ToCompile};
use crate::memory::Memory;
use crate::reasoning::ReasoningFormat;
use crate::tools::{ToolFormat, ToolSupport};
use crate::worker::Worker;

/// A served model.
pub struct ServedModel {
    /// The name that clients use.
    pub name: String,
    /// Alternative names that clients may use.
    pub aliases: Vec<String>,
    /// The creation time in seconds since 1970.
    pub created: u64,
    /// The tokenizer.
    pub tokenizer: Tokenizer,
    /// The chat template, if the model has one.
    pub chat: Option<ChatFormat>,
    /// The chat template for conversations with tools, if it is a different one.
    pub tool_chat: Option<ChatFormat>,
    /// Defaults of the sampling settings.
    pub sampling: SamplingDefaults,
    /// The ids that end a text.
    pub stop_tokens: Vec<u32>,
    /// The kind of the model.
    pub kind: ServedKind,
    /// Creates the description. Called for each request, since a run may still be training.
    pub card: Box<dyn Fn() -> Card + Send + Sync>,
    /// The thread that runs the model.
    pub worker: Worker,
    /// Lazily computed tables.
    pub tables: Tables,
    /// The files that it was loaded from, for an administrator.
    pub source: ModelSource,
}

/// The files that a model was loaded from, and its memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelSource {
    /// The path of the model or adapter.
    pub path: PathBuf,
    /// The path of an adapter's base model.
    pub base: Option<PathBuf>,
    /// True if the newest checkpoint of a run is served.
    pub follows: bool,
    /// The predicted memory in bytes. `None` if it is not predicted, or counted with another model of the same engine.
    pub memory: Option<u64>,
}

/// The kind of a served model, which decides its endpoints and how it reads texts.
#[derive(Debug)]
pub enum ServedKind {
    /// Continues prompts. Embeds texts by the mean of their states.
    Decoder {
        /// The id that begins a text when the prompt is empty.
        beginning: Option<u32>,
    },
    /// Embeds texts by the model's pooling and normalization. The tokenizer's template adds the special tokens of a
    /// text.
    Encoder(EncoderFormat),
    /// Generates a target for each prompt, which is its source. The tokenizer's template adds the special tokens of a
    /// source.
    EncoderDecoder(SequenceEncoder),
}

/// The texts and outputs of an encoder.
#[derive(Debug)]
pub struct EncoderFormat {
    /// Encodes texts and pairs of texts, without a limit on their length.
    pub sequences: SequenceEncoder,
    /// True if embeddings have length 1.
    pub normalizes: bool,
    /// The classifier of texts, if the model has one.
    pub classifier: Option<Classifier>,
}

/// A classifier of texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Classifier {
    /// Names of the labels.
    pub labels: Vec<String>,
}

/// A use of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// Generating an answer to a prompt.
    Generation,
    /// Continuing a prompt and the first tokens of its answer.
    Continuation,
    /// Embedding texts.
    Embedding,
    /// Scoring labels for texts or pairs of texts.
    Classification,
}

impl ServedKind {
    /// The kind with its article, for messages.
    pub(crate) fn name(&self) -> &'static str {
        let kind = match self {
            Self::Decoder { .. } => ModelKind::Decoder,
            Self::Encoder(_) => ModelKind::Encoder,
            Self::EncoderDecoder(_) => ModelKind::EncoderDecoder,
        };
        kind.named()
    }

    /// Returns true if models of this kind are used for a task.
    pub(crate) fn supports(&self, task: Task) -> bool {
        match (self, task) {
            (Self::Decoder { .. }, task) => task != Task::Classification,
            (Self::Encoder(encoder), Task::Classification) => encoder.classifier.is_some(),
            (Self::Encoder(_), task) => task == Task::Embedding,
            (Self::EncoderDecoder(_), task) => task == Task::Generation,
        }
    }
}

/// A text has more tokens than the model's context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a text of at least {tokens} tokens is longer than this model's context of {context}: shorten it"
)]
pub(crate) struct TextTooLong {
    tokens: usize,
    context: usize,
}

/// A model's format for conversations.
#[derive(Debug)]
pub struct ChatFormat {
    /// Encodes conversations with a chat template.
    pub encoder: ChatEncoder,
    /// The stop tokens and stop strings of an answer.
    pub stops: Stops,
}

/// The description of a model, without its sizes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Card {
    /// The model family.
    pub family: String,
    /// The number of parameters.
    pub parameters: u64,
    /// The name of the tokenizer.
    pub tokenizer: String,
    /// The origin of the model.
    pub about: String,
    /// Pairs of step and training loss, if the model is a run.
    pub loss: Vec<(usize, f64)>,
    /// Pairs of step and validation loss, if the model is a run.
    pub validation: Vec<(usize, f64)>,
}

/// Lazily computed tables of a model, and its compiled grammars.
#[derive(Debug)]
pub struct Tables {
    texts: OnceLock<Vec<Vec<u8>>>,
    vocabulary: OnceLock<Result<Vocabulary, SettingError>>,
    least_tokens: OnceLock<LeastTokens>,
    grammars: Grammars,
}

impl Tables {
    /// Creates empty tables. Without a sandbox, clients' grammars are compiled in this process and can
    /// exhaust its memory and its stack; use this only for tests.
    pub fn new(sandbox: Option<GrammarSandbox>) -> Self {
        Self {
            texts: OnceLock::new(),
            vocabulary: OnceLock::new(),
            least_tokens: OnceLock::new(),
            grammars: Grammars::new(sandbox),
        }
    }
}

impl ServedModel {
    /// Returns true if `name` is the model's name or an alias.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.aliases.iter().any(|alias| alias == name)
    }

    /// The token ids of a prompt or of a text to embed. There may be none.
    ///
    /// # Errors
    /// The tokenizer cannot encode the text.
    pub(crate) fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        match &self.kind {
            ServedKind::Decoder { beginning } => {
                let ids = self.tokenizer.encode_prompt(text)?;
                Ok(match (ids.is_empty(), beginning) {
                    (true, Some(beginning)) => vec![*beginning],
                    _ => ids,
                })
            }
            ServedKind::Encoder(EncoderFormat { sequences, .. })
            | ServedKind::EncoderDecoder(sequences) => Ok(sequences.encode(text)?.ids),
        }
    }

    /// Refuses a text that has more tokens than the model's context, by the number that it has at least.
    ///
    /// # Errors
    /// The text is too long.
    pub(crate) fn check_length(&self, text: &str) -> Result<(), TextTooLong> {
        let least_tokens = self
            .tables
            .least_tokens
            .get_or_init(|| LeastTokens::new(&self.tokenizer));
        let (tokens, context) = (least_tokens.of(text), self.worker.limits().context);
        match tokens > context {
            true => Err(TextTooLong { tokens, context }),
            false => Ok(()),
        }
    }

    /// Truncates the ids of a text to embed to the model's context. The special tokens after an encoder's text stay, as
    /// in [`SequenceEncoder::encode`]; tokens that are no text have none.
    pub(crate) fn truncate(&self, ids: &mut Vec<u32>, is_text: bool) {
        let context = self.worker.limits().context;
        if ids.len() <= context {
            return;
        }
        let end = match &self.kind {
            ServedKind::Encoder(encoder) if is_text => {
                let [_, end] = encoder.sequences.frame();
                end
            }
            _ => Vec::new(),
        };
        ids.truncate(context.saturating_sub(end.len()));
        ids.extend(end);
        ids.truncate(context);
    }

    /// The number of tokens that an answer to a prompt may have.
    pub(crate) fn room(&self, prompt_tokens: usize) -> usize {
        let context = self.worker.limits().context;
        match &self.kind {
            ServedKind::Decoder { .. } => context.saturating_sub(prompt_tokens),
            // The context holds the target only.
            ServedKind::Encoder(_) | ServedKind::EncoderDecoder(_) => context,
        }
    }

    /// The tokens before the first token of an answer to `prompt`.
    pub(crate) fn before_answer<'a>(&self, prompt: &'a [u32]) -> &'a [u32] {
        match &self.kind {
            ServedKind::Decoder { .. } => prompt,
            ServedKind::Encoder(_) | ServedKind::EncoderDecoder(_) => &[],
        }
    }

    /// The first `dimensions` values of a text's vector, or all, from its engine's output. Vectors of length 1 have it
    /// afterwards, too.
    pub(crate) fn embedding(&self, mut output: Vec<f32>, dimensions: Option<usize>) -> Vec<f32> {
        let is_cut = dimensions.is_some_and(|dimensions| dimensions < output.len());
        output.truncate(dimensions.unwrap_or(output.len()));
        match &self.kind {
            // The engine has normalized the whole vector.
            ServedKind::Encoder(encoder) if !(is_cut && encoder.normalizes) => output,
            ServedKind::Encoder(_) | ServedKind::Decoder { .. } | ServedKind::EncoderDecoder(_) => {
                unit_vector(output)
            }
        }
    }

    /// The encoder of texts of a model with a classifier, and the classifier.
    pub(crate) fn classifier(&self) -> Option<(&SequenceEncoder, &Classifier)> {
        match &self.kind {
            ServedKind::Encoder(encoder) => {
                Some((&encoder.sequences, encoder.classifier.as_ref()?))
            }
            ServedKind::Decoder { .. } | ServedKind::EncoderDecoder(_) => None,
        }
    }

    /// The format for conversations with or without tools.
    pub(crate) fn chat_format(&self, with_tools: bool) -> Option<&ChatFormat> {
        let of_tools = self.tool_chat.as_ref().filter(|_| with_tools);
        of_tools.or(self.chat.as_ref())
    }

    /// The way in which functions reach the model in conversations with or without them. `None` if the model has no chat
    /// template.
    pub(crate) fn tool_support(&self, with_tools: bool) -> Option<ToolSupport> {
        let template = self.chat_format(with_tools)?.encoder.template();
        Some(ToolSupport::of_template(template.source()))
    }

    /// The format of function calls. `None` if the model has no chat template.
    pub(crate) fn tool_format(&self) -> Option<&'static ToolFormat> {
        self.tool_support(true).map(ToolSupport::format)
    }

    /// The bytes of a token within a text; the name of a special token.
    pub(crate) fn bytes(&self, id: u32) -> Vec<u8> {
        let texts = self.tables.texts.get_or_init(|| {
            // If the tokens have no fixed text, each one is decoded on demand.
            self.tokenizer.texts().unwrap_or_default()
        });
        match texts.get(id as usize) {
            Some(text) if !text.is_empty() => text.clone(),
            _ => self.tokenizer.decode_bytes(&[id]).unwrap_or_default(),
        }
    }

    /// The compiled constraint for a grammar, from the cache if possible.
    ///
    /// # Errors
    /// The grammar exceeds a limit, too many grammars are queued, there is too little memory, or the tokenizer's tokens have
    /// no fixed text.
    pub(crate) async fn constraint(
        self: &Arc<Self>,
        grammar: Grammar,
        memory: &Memory,
    ) -> Result<Constraint, GrammarError> {
        let model = Arc::clone(self);
        let compile = move |grammar| model.compile(grammar);
        self.tables.grammars.get(grammar, memory, compile).await
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
        let (vocab_size, end) = (self.worker.sizes().vocab_size, self.end_tokens());
        match self.chat_format(true) {
            Some(chat) => answer_vocabulary(&chat.encoder, &self.tokenizer, vocab_size, &end),
            None => vocabulary(&self.tokenizer, vocab_size, &end),
        }
    }

    /// The ids that end a text or an answer.
    pub(crate) fn end_tokens(&self) -> Vec<u32> {
        let formats = self.chat.iter().chain(&self.tool_chat);
        let of_answers = formats.flat_map(|chat| &chat.stops.tokens);
        self.stop_tokens.iter().chain(of_answers).copied().collect()
    }
}

/// The vocabulary for constraining a model's output to a grammar. Ids beyond the tokenizer's have no text.
/// `end` are the ids that end a text.
///
/// # Errors
/// The tokens of the tokenizer have no fixed text, or there are too many.
pub fn vocabulary(
    tokenizer: &Tokenizer,
    vocab_size: usize,
    end: &[u32],
) -> Result<Vocabulary, SettingError> {
    Vocabulary::new(token_texts(tokenizer, vocab_size)?, end)
}

/// [`vocabulary`] for answers in conversations. The markers of calls and reasoning are part of an answer's text even if they are
/// special tokens.
///
/// # Errors
/// Those of [`vocabulary`].
pub fn answer_vocabulary(
    encoder: &ChatEncoder,
    tokenizer: &Tokenizer,
    vocab_size: usize,
    end: &[u32],
) -> Result<Vocabulary, SettingError> {
    let template = encoder.template().source();
    let calls = ToolSupport::of_template(template).format();
    let reasoning = ReasoningFormat::of_template(template);
    let mut texts = token_texts(tokenizer, vocab_size)?;
    for (name, id) in tokenizer.special_tokens() {
        let is_marker =
            calls.is_marker(&name) || reasoning.is_some_and(|format| format.is_tag(&name));
        if let Some(text) = texts.get_mut(id as usize).filter(|_| is_marker) {
            *text = name.into_bytes();
        }
    }
    Vocabulary::new(texts, end)
}

/// The text of each id, `[vocab_size]`.
fn token_texts(tokenizer: &Tokenizer, vocab_size: usize) -> Result<Vec<Vec<u8>>, SettingError> {
    let mut texts = tokenizer.texts().ok_or_else(|| {
        let rule = "must decode each token independently, to constrain a text to a schema or an expression";
        SettingError::new("tokenizer", tokenizer.kind(), rule)
    })?;
    texts.resize(vocab_size, Vec::new());
    Ok(texts)
}
