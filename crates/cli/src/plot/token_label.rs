//! Labels of tokens, limited to Latin-1, which the bundled fonts cover.

use emberlm_tokenizer::Tokenizer;

/// Maximum length of a label in characters. A longer one is cut and ends in two dots.
const LONGEST: usize = 12;

/// Formats a token's bytes as a label: a middle dot for a space, and escapes for characters that are
/// invisible or outside of Latin-1.
pub fn token_label(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                ' ' => text.push('·'),
                '!'..='~' | '\u{a1}'..='\u{ac}' | '\u{ae}'..='\u{ff}' => text.push(character),
                '\n' | '\r' | '\t' => text.extend(character.escape_default()),
                _ => text.extend(character.escape_unicode()),
            }
        }
        for byte in chunk.invalid() {
            text += &format!("\\x{byte:02x}");
        }
    }
    if text.chars().count() > LONGEST {
        text = text.chars().take(LONGEST - 2).collect::<String>() + "..";
    }
    text
}

/// The label of a token id: its text, or the id if there is no tokenizer or no text.
pub fn id_label(id: u32, tokenizer: Option<&Tokenizer>) -> String {
    let bytes = tokenizer.and_then(|tokenizer| tokenizer.decode_bytes(&[id]).ok());
    match bytes {
        Some(bytes) if !bytes.is_empty() => token_label(&bytes),
        Some(_) | None => id.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_token_has_a_printable_label() {
        let labels = [
            " the",
            "\n",
            "\t\r",
            "käse",
            "火",
            "\u{7f}",
            "abcdefghijkl",
            "abcdefghijklm",
        ]
        .map(|token| token_label(token.as_bytes()));
        assert_eq!(
            labels,
            [
                "·the",
                "\\n",
                "\\t\\r",
                "käse",
                "\\u{706b}",
                "\\u{7f}",
                "abcdefghijkl",
                "abcdefghij.."
            ]
        );
        assert_eq!(token_label(b"a\xe4\xb8"), "a\\xe4\\xb8");
        assert_eq!(token_label(b""), "");
    }
}
