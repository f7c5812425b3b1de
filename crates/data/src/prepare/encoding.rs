//! Encoding of documents as token ids and target masks.

use std::borrow::Cow;
use std::sync::OnceLock;

use emberlm_tokenizer::chat::{ChatEncoder, ChatError, ChatTemplate, ChatTokens};
use emberlm_tokenizer::{TokenBytes, Tokenizer};

use crate::conversations::to_example;
use crate::{DataError, Input};

/// The maximum length of a record for a chat template, in bytes. A conversation cannot be cut, and its text, values
/// and tokens need up to 300 bytes of memory per byte.
const MAX_CHAT_BYTES: usize = 8 << 20;

/// The encoding of a document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Encoding {
    /// The end-of-text token if the tokenizer has one, then the tokens of the text. All are targets.
    #[default]
    Text,
    /// A record with a conversation of any form, or with a prompt and its completion, rendered by a chat template. The
    /// end-of-text token comes first if the tokenizer has one, unless the template is a published model's or begins
    /// with a special token itself. Only the answers are targets.
    Chat {
        /// The name or path of the template, as parsed by the `FromStr` of [`ChatTemplate`].
        template: String,
    },
}

impl Encoding {
    /// Returns true if a document can be cut between two splits or two threads, wherever its text can be tokenized
    /// separately.
    pub(crate) fn can_be_cut(&self) -> bool {
        match self {
            Self::Text => true,
            Self::Chat { .. } => false,
        }
    }

    /// Returns true if a document is a whole record rather than one of its fields.
    pub(crate) fn takes_records(&self) -> bool {
        !self.can_be_cut()
    }

    /// Loads the chat template, if there is one.
    ///
    /// # Errors
    /// Fails if the template cannot be read or used.
    pub(crate) fn template(&self) -> Result<Option<ChatTemplate>, DataError> {
        Ok(match self {
            Self::Text => None,
            Self::Chat { template } => {
                let with_tools = ChatTemplate::for_tools(template)?;
                Some(template.parse::<ChatTemplate>()?.with_tool_use(with_tools))
            }
        })
    }

    /// Checks that the inputs are in a format that can be encoded.
    pub(crate) fn check(&self, inputs: &[Input]) -> Result<(), DataError> {
        let other = inputs.iter().any(|input| !input.format.has_records());
        match self {
            Self::Chat { .. } if other => Err(DataError::Contradiction {
                reason: "a chat template takes records (.jsonl, .parquet, .csv or .tsv), and not all inputs are",
            }),
            _ => Ok(()),
        }
    }
}

/// The tokens of a document or of a span of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Encoded {
    /// The token ids.
    pub(crate) ids: Vec<u32>,
    /// True for each id that is a target. `None` means that all are targets.
    pub(crate) learnt: Option<Vec<bool>>,
    /// The number of bytes of text that the tokens represent, or 0 if unknown.
    pub(crate) bytes: u64,
}

/// Encodes documents. Shared between threads.
pub(crate) struct Encoder<'a> {
    tokenizer: &'a Tokenizer,
    chat: Option<Chat>,
}

/// The number of conversations rendered per call, since a call to the renderer process costs as much as a few
/// renderings.
const CHAT_BATCH: usize = 32;

struct Chat {
    encoder: ChatEncoder,
    /// The name of the special token that the template begins with.
    begins_with: Option<String>,
    bytes: Option<TokenBytes>,
    /// The error that stopped the renderer, after which it is not called again.
    stopped: OnceLock<ChatError>,
}

impl<'a> Encoder<'a> {
    /// An encoder of texts, or of conversations with `template`.
    pub(crate) fn new(tokenizer: &'a Tokenizer, template: Option<ChatTemplate>) -> Self {
        let chat = template.map(|template| {
            let encoder = ChatEncoder::new(template, tokenizer).with_document_start();
            Chat {
                begins_with: encoder.begins_with().map(|token| token.name),
                encoder,
                bytes: tokenizer.token_bytes(),
                stopped: OnceLock::new(),
            }
        });
        Self { tokenizer, chat }
    }

    /// The tokenizer.
    pub(crate) fn tokenizer(&self) -> &'a Tokenizer {
        self.tokenizer
    }

    /// Returns true if the shards have masks.
    pub(crate) fn is_masked(&self) -> bool {
        self.chat.is_some()
    }

    /// The name of the special token that the template begins with.
    pub(crate) fn begins_with(&self) -> Option<&str> {
        self.chat.as_ref()?.begins_with.as_deref()
    }

    /// The special tokens in the template that the tokenizer lacks.
    pub(crate) fn missing(&self) -> &[String] {
        self.chat
            .as_ref()
            .map_or(&[], |chat| chat.encoder.missing())
    }

    /// The number of documents or spans to encode per call.
    pub(crate) fn batch(&self) -> usize {
        match self.chat {
            Some(_) => CHAT_BATCH,
            None => 1,
        }
    }

    /// Encodes each of `texts`. The flag states whether a document begins with the text.
    ///
    /// After the renderer has exceeded a limit once, all further conversations fail: each of them could take as long.
    pub(crate) fn encode_batch(&self, texts: &[(&str, bool)]) -> Vec<Result<Encoded, ChatError>> {
        let Some(chat) = &self.chat else {
            let encode = |&(text, begins): &(&str, bool)| {
                let mut ids = self.tokenizer.encode(text)?;
                if let Some(begin) = self.tokenizer.end_of_text().filter(|_| begins) {
                    ids.insert(0, begin);
                }
                Ok(Encoded {
                    ids,
                    learnt: None,
                    bytes: text.len() as u64,
                })
            };
            return texts.iter().map(encode).collect();
        };
        if let Some(error) = chat.stopped.get() {
            return texts.iter().map(|_| Err(error.clone())).collect();
        }
        let converted = texts.iter().map(|(text, _)| match text.len() {
            0..=MAX_CHAT_BYTES => to_example(text),
            _ => Err(too_long()),
        });
        let converted: Vec<Result<Cow<str>, ChatError>> = converted.collect();
        let records: Vec<&str> = converted.iter().flatten().map(AsRef::as_ref).collect();
        let tokens = chat.encoder.encode_documents(&records);
        if let Some(Err(error)) = tokens
            .iter()
            .find(|tokens| matches!(tokens, Err(error) if error.is_of_renderer()))
        {
            // Ignored if another thread was first.
            let _ = chat.stopped.set(error.clone());
        }
        let mut tokens = tokens.into_iter();
        let encoded = converted.iter().map(|record| {
            let ChatTokens { ids, learnt } = match record {
                Ok(_) => tokens.next().unwrap_or_else(|| Err(too_long()))?,
                Err(error) => return Err(error.clone()),
            };
            Ok(Encoded {
                bytes: chat
                    .bytes
                    .as_ref()
                    .map_or(0, |table| text_bytes(table, &ids)),
                ids,
                learnt: Some(learnt),
            })
        });
        encoded.collect()
    }
}

/// The error for a record longer than [`MAX_CHAT_BYTES`].
fn too_long() -> ChatError {
    let rule = format!("must have at most {} MiB", MAX_CHAT_BYTES >> 20);
    ChatError::record("messages", rule)
}

/// The number of bytes of text that `ids` represent, or 0 if unknown for any of them.
fn text_bytes(table: &TokenBytes, ids: &[u32]) -> u64 {
    let pairs = ids.windows(2);
    let bytes = pairs.map(|pair| table.after(pair[0], pair[1]).map(u64::from));
    bytes.sum::<Option<u64>>().unwrap_or(0)
}
