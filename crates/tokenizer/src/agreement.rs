//! Compatibility of two tokenizers: the same ids for the same text.

use crate::Tokenizer;

/// A text that tokenizers with equal vocabularies but different merges or patterns split differently.
const PROBE: &str = "It's 12345 tokens' worth:\n\n\tdon't  hyphen-ate, naïve café — 日本語, 🔥!  \n for (i = 0; i < 10; ++i) {}";

impl Tokenizer {
    /// Returns true if every shared id decodes to the same bytes and a probe text encodes to the same ids. A
    /// built-in vocabulary agrees with its own export.
    pub fn agrees_with(&self, other: &Self) -> bool {
        let same = |id: u32| match (self.decode_bytes(&[id]), other.decode_bytes(&[id])) {
            (Ok(one), Ok(two)) => one == two,
            // Ids that only one of them has: special tokens or unused rows.
            _ => true,
        };
        let shared = self.vocab_size().min(other.vocab_size()) as u32;
        self.spec().hash == other.spec().hash
            || (self.encode(PROBE).ok() == other.encode(PROBE).ok() && (0..shared).all(same))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TokenizerKind;

    #[test]
    fn a_vocabulary_agrees_only_with_its_own_export() {
        let builtin = |kind| Tokenizer::builtin(kind).unwrap();
        let gpt2 = builtin(TokenizerKind::Gpt2);
        let file = Tokenizer::from_json(gpt2.to_tokenizer_json()).unwrap();
        assert!(gpt2.agrees_with(&file) && file.agrees_with(&gpt2));
        assert!(!gpt2.agrees_with(&builtin(TokenizerKind::Cl100k)));
        assert!(!gpt2.agrees_with(&builtin(TokenizerKind::Byte)));
        let chars = |text: &str| Tokenizer::char_from_alphabet(text.chars()).unwrap();
        assert!(!chars("ab").agrees_with(&chars("bc")));
    }
}
