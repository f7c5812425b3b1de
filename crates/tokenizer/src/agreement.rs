//! Agreement of two tokenizers on the meaning of ids.

use crate::Tokenizer;

/// Text that tokenizers of equal vocabularies but other merges or patterns cut differently.
const PROBE: &str = "It's 12345 tokens' worth:\n\n\tdon't  hyphen-ate, naïve café — 日本語, 🔥!  \n for (i = 0; i < 10; ++i) {}";

impl Tokenizer {
    /// Returns true if every id that both have stands for the same bytes, and a text that is hard to cut is cut alike. A
    /// built-in vocabulary agrees with the same one from a file.
    pub fn agrees_with(&self, other: &Self) -> bool {
        let same = |id: u32| match (self.decode_bytes(&[id]), other.decode_bytes(&[id])) {
            (Ok(one), Ok(two)) => one == two,
            // Ids of only one of them: special tokens, or unused rows.
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
    fn a_vocabulary_agrees_with_itself_from_a_file_and_with_no_other() {
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
