//! Escapes untrusted text for terminals.
//!
//! A file name, a model's answer or a template's error can contain control characters: an escape sequence can
//! change a terminal's title, write to the clipboard, or overwrite earlier output. Bidirectional overrides can
//! make one text look like another.

use std::borrow::Cow;

/// Returns true if a character is safe to display: neither a control character, such as a line break or tab,
/// nor a bidirectional override, nor one of the two that no XML document may contain.
pub fn is_harmless(c: char) -> bool {
    !(c.is_control()
        || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{fffe}' | '\u{ffff}'))
}

/// Replaces every unsafe character by U+FFFD, except line breaks and tabs.
pub fn neutralized(text: &str) -> Cow<'_, str> {
    let stays = |c: char| is_harmless(c) || c == '\n' || c == '\t';
    if text.chars().all(stays) {
        return text.into();
    }
    let shown = |c| if stays(c) { c } else { '\u{fffd}' };
    text.chars().map(shown).collect::<String>().into()
}

/// Escapes every unsafe character as in Rust, such as `\n` and `\u{1b}`. The result is a single line.
pub fn escaped(text: &str) -> Cow<'_, str> {
    if text.chars().all(is_harmless) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match is_harmless(c) {
            true => shown.push(c),
            false => shown.extend(c.escape_default()),
        }
    }
    shown.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_neutralized() {
        let text = "a\u{1b}[2J\tb\r\nc\u{9b}31m\u{202e}d\u{7f}";
        let expected = "a\u{fffd}[2J\tb\u{fffd}\nc\u{fffd}31m\u{fffd}d\u{fffd}";
        assert_eq!(neutralized(text), expected);
        let expected = r"a\u{1b}[2J\tb\r\nc\u{9b}31m\u{202e}d\u{7f}";
        assert_eq!(escaped(text), expected);
        for plain in ["", "Düne 漢字 👩‍🚀", "שלום"] {
            assert_eq!((&*neutralized(plain), &*escaped(plain)), (plain, plain));
        }
    }
}
