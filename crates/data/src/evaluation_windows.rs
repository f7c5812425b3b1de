//! The windows of an evaluation. They follow from the contents of the split and the context of the model, and not from the
//! form of the model or the settings that it was trained with: the same weights have the same loss in every form.

use crate::packing::longest_document;
use crate::{DataError, Dataset, Packing, Split, Windows};

/// The choices of an evaluation. Those that are `None` follow from the split ([`Dataset::evaluation_windows`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvalChoice {
    /// The packing of documents.
    pub packing: Option<Packing>,
    /// Positions of a window.
    pub seq_len: Option<usize>,
    /// The model's context in tokens.
    pub context: usize,
    /// True if the model can isolate documents.
    pub isolates: bool,
}

impl EvalChoice {
    /// The limit of the window length, unless one is chosen: attention scores grow quadratically with it.
    pub const LONGEST: usize = 4096;

    /// The longest window without a chosen length.
    pub fn longest(&self) -> usize {
        self.context.min(Self::LONGEST)
    }
}

impl Dataset {
    /// The windows in which a split is evaluated.
    ///
    /// - Packing: conversations, and documents if the split has several, are isolated. Anything else is a stream of text, and
    ///   so is a split whose documents cannot be distinguished.
    /// - Length: of isolated documents, that of the longest one; of a stream, the model's context. Both are limited to
    ///   [`EvalChoice::LONGEST`] and the context.
    ///
    /// # Errors
    /// As [`Dataset::windows`] with a chosen packing. Fails if the tokens cannot be read.
    pub fn evaluation_windows(
        &self,
        split: Split,
        choice: EvalChoice,
    ) -> Result<Windows, DataError> {
        let stream = || self.in_windows(split, choice, Packing::Stream);
        match choice.packing {
            Some(packing) => self.in_windows(split, choice, packing.for_evaluation()),
            None if choice.isolates && self.holds_documents(split) => {
                match self.in_windows(split, choice, Packing::Isolated) {
                    Err(DataError::NoEndOfText { .. } | DataError::EndOfTextWithin { .. }) => {
                        stream()
                    }
                    windows => windows,
                }
            }
            None => stream(),
        }
    }

    /// Returns true if a split has conversations or several documents.
    fn holds_documents(&self, split: Split) -> bool {
        let manifest = self.manifest();
        let of_split = manifest.split(split);
        manifest.chat_template.is_some() || of_split.is_masked() || of_split.documents > 1
    }

    fn in_windows(
        &self,
        split: Split,
        choice: EvalChoice,
        packing: Packing,
    ) -> Result<Windows, DataError> {
        let seq_len = match choice.seq_len {
            Some(seq_len) => seq_len,
            None if packing.isolates_documents() => self.longest_row(split, choice)?,
            None => choice.longest(),
        };
        self.windows(split, seq_len, packing)
    }

    /// The length of the longest document, within the limits.
    fn longest_row(&self, split: Split, choice: EvalChoice) -> Result<usize, DataError> {
        // Without an end-of-text token, masks that index documents ignore this one; otherwise `windows` fails.
        let end_of_text = self.tokenizer().end_of_text().unwrap_or(0);
        let longest = longest_document(&self.split(split)?, end_of_text)?;
        let longest = usize::try_from(longest).unwrap_or(usize::MAX);
        Ok(longest.min(choice.longest()).max(1))
    }
}
