//! Recognition of UTF-16 and UTF-32 text.

use std::fmt;

/// The order of the bytes of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteOrder {
    /// The lowest byte first.
    Little,
    /// The highest byte first.
    Big,
}

/// An encoding of Unicode text other than UTF-8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextEncoding {
    /// The bytes of a code unit: 2 for UTF-16, and 4 for UTF-32.
    pub unit: usize,
    /// The order of the bytes of a unit.
    pub order: ByteOrder,
    /// True if the text begins with a byte order mark, which states the encoding. Otherwise it is
    /// estimated from the bytes.
    pub is_marked: bool,
}

impl TextEncoding {
    /// The encoding that the first bytes of a text show.
    pub fn of(head: &[u8]) -> Option<Self> {
        marked(head).or_else(|| unmarked(head))
    }

    /// The encoding's name for `iconv`.
    pub(super) fn iconv_name(self) -> String {
        let order = match (self.is_marked, self.order) {
            // The mark states the order, and is removed.
            (true, _) => "",
            (false, ByteOrder::Little) => "LE",
            (false, ByteOrder::Big) => "BE",
        };
        format!("UTF-{}{order}", self.unit * 8)
    }
}

impl fmt::Display for TextEncoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let order = match self.order {
            ByteOrder::Little => "little-endian",
            ByteOrder::Big => "big-endian",
        };
        write!(f, "UTF-{} ({order})", self.unit * 8)
    }
}

fn marked(head: &[u8]) -> Option<TextEncoding> {
    let (unit, order) = match head {
        [0xFF, 0xFE, 0, 0, ..] => (4, ByteOrder::Little),
        [0, 0, 0xFE, 0xFF, ..] => (4, ByteOrder::Big),
        [0xFF, 0xFE, ..] => (2, ByteOrder::Little),
        [0xFE, 0xFF, ..] => (2, ByteOrder::Big),
        _ => return None,
    };
    let encoding = TextEncoding {
        unit,
        order,
        is_marked: true,
    };
    // Other binary files can begin with these bytes as well.
    decodes(encoding, &head[unit..], |_| true).then_some(encoding)
}

/// The encoding in which the bytes are usual text with ASCII characters, such as spaces and line breaks. UTF-8 text has no
/// NULs, and UTF-16 and UTF-32 have them in every ASCII character.
fn unmarked(head: &[u8]) -> Option<TextEncoding> {
    if head.len() < 8 || !head.contains(&0) {
        return None;
    }
    let orders = [ByteOrder::Little, ByteOrder::Big];
    let encodings = [4, 2].into_iter().flat_map(|unit| {
        orders.map(|order| TextEncoding {
            unit,
            order,
            is_marked: false,
        })
    });
    let mut plausible = encodings
        .filter(|encoding| decodes(*encoding, head, is_usual) && has_ascii(*encoding, head));
    plausible.next()
}

/// Returns true if enough of the code units are ASCII: more than have the NUL on the other side, and three quarters of them
/// if the bytes could be UTF-8 with NULs, or numbers of 32 bits.
fn has_ascii(encoding: TextEncoding, bytes: &[u8]) -> bool {
    let units = units(encoding, bytes);
    let ascii = units.iter().filter(|unit| **unit < 0x80).count();
    let swapped = units.iter().filter(|unit| **unit & 0xFF == 0).count();
    let is_utf8 = match str::from_utf8(bytes) {
        Ok(_) => true,
        Err(error) => error.error_len().is_none(),
    };
    let needs_most = is_utf8 || encoding.unit == 4;
    ascii > swapped && (!needs_most || ascii * 4 >= units.len() * 3)
}

/// The code units of `bytes`, which may end within one.
fn units(encoding: TextEncoding, bytes: &[u8]) -> Vec<u32> {
    let add = |value: u32, byte: &u8| value << 8 | u32::from(*byte);
    let number = |unit: &[u8]| match encoding.order {
        ByteOrder::Big => unit.iter().fold(0, add),
        ByteOrder::Little => unit.iter().rev().fold(0, add),
    };
    bytes.chunks_exact(encoding.unit).map(number).collect()
}

/// Returns true if `bytes`, which may end within a character, are valid and all their characters are `allowed`.
fn decodes(encoding: TextEncoding, bytes: &[u8], allowed: impl Fn(char) -> bool) -> bool {
    let numbers = units(encoding, bytes);
    if encoding.unit == 4 {
        let mut characters = numbers.iter().map(|&code| char::from_u32(code));
        return characters.all(|character| character.is_some_and(&allowed));
    }
    // The head may end within a pair of surrogates.
    let is_split = |last: &u32| (0xD800..0xDC00).contains(last);
    let whole = numbers.len() - usize::from(numbers.last().is_some_and(is_split));
    // Two bytes each.
    let units = numbers[..whole].iter().map(|&unit| unit as u16);
    char::decode_utf16(units).all(|decoded| decoded.is_ok_and(&allowed))
}

/// Returns true if a character occurs in usual text.
fn is_usual(character: char) -> bool {
    let is_break = matches!(character, '\t' | '\n' | '\r' | '\u{c}');
    let code = u32::from(character);
    let is_noncharacter = code & 0xFFFE == 0xFFFE || (0xFDD0..0xFDF0).contains(&code);
    let is_private = (0xE000..0xF900).contains(&code) || code >= 0xE_0000;
    is_break || !(character.is_control() || is_noncharacter || is_private)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(text: &str, encoding: TextEncoding) -> Vec<u8> {
        let number = |code: u32| {
            let bytes = code.to_be_bytes()[4 - encoding.unit..].to_vec();
            match encoding.order {
                ByteOrder::Big => bytes,
                ByteOrder::Little => bytes.into_iter().rev().collect(),
            }
        };
        match encoding.unit {
            4 => text.chars().flat_map(|c| number(c.into())).collect(),
            _ => text.encode_utf16().flat_map(|u| number(u.into())).collect(),
        }
    }

    #[test]
    fn encodings_are_recognized_with_and_without_a_mark() {
        for text in [
            "plain text, two words\r\n",
            "漢，字 かな漢字\n",
            "Düne 🔥🔥 a",
        ] {
            for unit in [2, 4] {
                for order in [ByteOrder::Little, ByteOrder::Big] {
                    for is_marked in [true, false] {
                        // Without a mark, most characters of UTF-32 must be ASCII.
                        if unit == 4 && !is_marked && !text.is_ascii() {
                            continue;
                        }
                        let encoding = TextEncoding {
                            unit,
                            order,
                            is_marked,
                        };
                        let mark = if is_marked { "\u{feff}" } else { "" };
                        let bytes = encoded(&format!("{mark}{text}"), encoding);
                        assert_eq!(TextEncoding::of(&bytes), Some(encoding), "{text}");
                        // A head may end anywhere.
                        for end in bytes.len().min(12)..bytes.len() {
                            assert_eq!(TextEncoding::of(&bytes[..end]), Some(encoding), "{text}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn other_bytes_are_not_taken_for_unicode() {
        let token_ids: Vec<u8> = (0..500u16).flat_map(u16::to_le_bytes).collect();
        let floats: Vec<u8> = [0.0f32, 1.5, -2.0, 1e-9].map(f32::to_le_bytes).concat();
        for bytes in [
            &b"plain text of some length"[..],
            b"caf\xe9 au lait, latin",
            b"a\0b\0\x01\0c\0",
            b"text\0with\0nul\0bytes\0between",
            &token_ids,
            &floats,
            &[0; 64],
            b"\xFF\xFE\x00\xD8\x02\x00",
            b"a\0b a\0b a\0b a\0b ",
            b"",
        ] {
            assert_eq!(TextEncoding::of(bytes), None, "{bytes:?}");
        }
    }
}
