//! What a document becomes: token ids, and which of them are to be learnt.

use emberlm_tokenizer::{Tokenizer, TokenizerError};

/// What a document becomes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Encoding {
    /// The end-of-text token where the tokenizer has one, then the text's tokens. All are to be learnt.
    #[default]
    Text,
}

/// A document's tokens, or those of a part of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Encoded {
    /// The tokens.
    pub(crate) ids: Vec<u32>,
    /// Which are to be learnt, as many as `ids`; without it, all.
    pub(crate) learnt: Option<Vec<bool>>,
}

impl Encoding {
    /// Whether shards have masks.
    pub(crate) fn is_masked(&self) -> bool {
        match self {
            Self::Text => false,
        }
    }

    /// Whether a document can be cut where its text can be tokenized apart, be it between two splits or two threads.
    pub(crate) fn can_be_cut(&self) -> bool {
        match self {
            Self::Text => true,
        }
    }

    /// What the encoding is called where it is written down.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Text => "text",
        }
    }

    /// The tokens of `text`, at whose beginning a document may begin.
    pub(crate) fn encode(
        &self,
        tokenizer: &Tokenizer,
        text: &str,
        begins: bool,
    ) -> Result<Encoded, TokenizerError> {
        match self {
            Self::Text => {
                let mut ids = tokenizer.encode(text)?;
                if begins && let Some(end_of_text) = tokenizer.end_of_text() {
                    ids.insert(0, end_of_text);
                }
                Ok(Encoded { ids, learnt: None })
            }
        }
    }
}
