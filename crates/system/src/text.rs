//! Text that is shown in a terminal.
//!
//! A file's name, a model's answer or a template's error can hold control characters: an escape sequence may change a
//! terminal's title, write to the clipboard, or move the cursor over what was shown before. Overrides of the direction of
//! writing can make one text look like another.

use std::borrow::Cow;

/// Returns true if a terminal may show a character: all but control characters and overrides of the direction of writing. A
/// line's end and a tab are control characters.
pub fn is_harmless(c: char) -> bool {
    !(c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'))
}

/// A text for a terminal: lines and tabs stay, each other character that a terminal may not show becomes U+FFFD.
pub fn neutralized(text: &str) -> Cow<'_, str> {
    let stays = |c: char| is_harmless(c) || c == '\n' || c == '\t';
    if text.chars().all(stays) {
        return text.into();
    }
    let shown = |c| if stays(c) { c } else { '\u{fffd}' };
    text.chars().map(shown).collect::<String>().into()
}

/// A text on one line: each character that a terminal may not show is written as in Rust, such as `\n` and `\u{1b}`.
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
    fn a_terminal_gets_no_orders() {
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
