//! GPT-2's byte alphabet, which byte-level vocabularies are written in: one printable character per byte.

/// Returns the character for `byte`: the byte itself if it is printable in Latin-1, otherwise one from U+0100
/// upwards.
pub(crate) fn char_of(byte: u8) -> char {
    match byte {
        b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF => char::from(byte),
        // The remaining bytes in order: 0 to 32, 127 to 160, and 173.
        0..=b' ' => shifted(byte),
        0x7F..=0xA0 => shifted(byte - 0x7F + 33),
        0xAD => shifted(67),
    }
}

/// Returns the byte that `character` represents, if any.
pub(crate) fn byte_of(character: char) -> Option<u8> {
    let code = u32::from(character);
    let byte = match code {
        0x100..=0x120 => code - 0x100,
        0x121..=0x142 => code - 0x121 + 0x7F,
        0x143 => 0xAD,
        _ => code,
    };
    let byte = u8::try_from(byte).ok()?;
    (char_of(byte) == character).then_some(byte)
}

/// Writes `bytes` in the byte alphabet.
pub(crate) fn spell(bytes: &[u8]) -> String {
    bytes.iter().copied().map(char_of).collect()
}

/// Appends the bytes of `token`. A token with a character outside the alphabet, such as a special token's name,
/// is appended as UTF-8.
pub(crate) fn push_bytes(token: &str, out: &mut Vec<u8>) {
    let start = out.len();
    for character in token.chars() {
        match byte_of(character) {
            Some(byte) => out.push(byte),
            None => {
                out.truncate(start);
                out.extend_from_slice(token.as_bytes());
                return;
            }
        }
    }
}

fn shifted(rank: u8) -> char {
    char::from_u32(0x100 + u32::from(rank)).unwrap_or(char::REPLACEMENT_CHARACTER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_map_to_distinct_characters_and_back() {
        let spelled = spell(&(0..=255).collect::<Vec<u8>>());
        assert_eq!(spelled.chars().count(), 256);
        for (byte, character) in (0..=255).zip(spelled.chars()) {
            assert_eq!(byte_of(character), Some(byte));
            assert!(!character.is_whitespace() && !character.is_control());
        }
        let all: std::collections::BTreeSet<char> = spelled.chars().collect();
        assert_eq!(all.len(), 256);
        assert_eq!(spell(b" a\n\xC3\xAD"), "ĠaĊÃŃ");
    }

    #[test]
    fn tokens_outside_the_alphabet_are_plain_text() {
        for character in [' ', '\u{144}', '漢', '\n', '\u{AD}'] {
            assert_eq!(byte_of(character), None);
        }
        let mut bytes = Vec::new();
        push_bytes("Ġ漢", &mut bytes);
        push_bytes("Ġa", &mut bytes);
        assert_eq!(bytes, "Ġ漢 a".as_bytes());
    }
}
