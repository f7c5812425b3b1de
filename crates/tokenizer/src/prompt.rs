//! Encodes prompts, with the special tokens that the tokenizer puts before a text.

use serde_json::Value;

use crate::tokenizer::Vocab;
use crate::{Tokenizer, TokenizerError};

impl Tokenizer {
    /// Encodes a text for a model to continue. The ids of [`Tokenizer::encode`] follow the special tokens that
    /// the template of a `tokenizer.json` puts before a text, such as LLaMA's `<s>`.
    ///
    /// # Errors
    /// See [`Tokenizer::encode`].
    pub fn encode_prompt(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        let mut ids = self.beginning();
        ids.extend(self.encode(text)?);
        Ok(ids)
    }

    /// Returns the special tokens that precede a text.
    pub fn beginning(&self) -> Vec<u32> {
        match self.vocab() {
            Vocab::File(file) => beginning(file.json()),
            Vocab::Bpe(_) | Vocab::Char(_) | Vocab::Byte => Vec::new(),
        }
    }
}

/// Returns the ids before the text in the template of a valid `tokenizer.json`.
fn beginning(json: &[u8]) -> Vec<u32> {
    let value: Value = serde_json::from_slice(json).unwrap_or_default();
    let processor = &value["post_processor"];
    let parts = match processor["processors"].as_array() {
        Some(parts) => parts.iter().collect(),
        None => vec![processor],
    };
    let template = parts
        .into_iter()
        .find(|part| part["type"] == "TemplateProcessing");
    let Some((template, pieces)) = template.and_then(|t| Some((t, t["single"].as_array()?))) else {
        return Vec::new();
    };
    let specials = pieces
        .iter()
        .map_while(|piece| piece["SpecialToken"]["id"].as_str());
    specials
        .flat_map(|name| template["special_tokens"][name]["ids"].as_array())
        .flatten()
        .filter_map(|id| u32::try_from(id.as_u64()?).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TokenizerKind;

    #[test]
    fn only_tokens_before_the_text_are_prepended() {
        let template = |parts: &str| {
            let json = format!(
                r#"{{"post_processor": {{"type": "TemplateProcessing", "single": [{parts}], "special_tokens": {{
                    "<s>": {{"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
                    "</s>": {{"id": "</s>", "ids": [2], "tokens": ["</s>"]}}}}}}}}"#
            );
            beginning(json.as_bytes())
        };
        let (bos, text) = (
            r#"{"SpecialToken": {"id": "<s>"}}"#,
            r#"{"Sequence": {"id": "A"}}"#,
        );
        let eos = r#"{"SpecialToken": {"id": "</s>"}}"#;
        assert_eq!(template(&format!("{bos}, {text}, {eos}")), [1]);
        assert_eq!(template(&format!("{bos}, {bos}, {text}")), [1, 1]);
        assert!(template(&format!("{text}, {eos}")).is_empty());
        assert!(beginning(br#"{"post_processor": null}"#).is_empty());
    }

    #[test]
    fn a_template_within_a_sequence_is_found() {
        let json = br#"{"post_processor": {"type": "Sequence", "processors": [{"type": "ByteLevel"},
            {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<b>"}}, {"Sequence": {"id": "A"}}],
             "special_tokens": {"<b>": {"id": "<b>", "ids": [128000], "tokens": ["<b>"]}}}]}}"#;
        assert_eq!(beginning(json), [128_000]);
    }

    #[test]
    fn built_in_tokenizers_prepend_nothing() {
        let bytes = Tokenizer::builtin(TokenizerKind::Byte).unwrap();
        assert_eq!(bytes.encode_prompt("a").unwrap(), [97]);
    }
}
