//! The tokenizer `13a` of BLEU, that of NIST's `mteval-v13a.pl`.

/// A text with blanks between its tokens.
pub(super) fn tokenized(text: &str) -> String {
    let mut text = text
        .replace("<skipped>", "")
        .replace("-\n", "")
        .replace('\n', " ");
    for (entity, character) in [
        ("&quot;", "\""),
        ("&amp;", "&"),
        ("&lt;", "<"),
        ("&gt;", ">"),
    ] {
        text = text.replace(entity, character);
    }
    let mut spaced = String::with_capacity(2 * text.len() + 2);
    spaced.push(' ');
    for c in text.chars() {
        match is_symbol(c) {
            true => spaced.extend([' ', c, ' ']),
            false => spaced.push(c),
        }
    }
    spaced.push(' ');
    let is_digit = |c: char| c.is_ascii_digit();
    let is_point = |c: char| matches!(c, '.' | ',');
    // Points and commas unless they follow a digit, then those that no digit follows, and dashes after digits.
    let spaced = replaced(
        &spaced,
        |c| !is_digit(c),
        is_point,
        |one, other| [one, ' ', other, ' '],
    );
    let spaced = replaced(
        &spaced,
        is_point,
        |c| !is_digit(c),
        |one, other| [' ', one, ' ', other],
    );
    replaced(
        &spaced,
        is_digit,
        |c| c == '-',
        |one, other| [one, ' ', other, ' '],
    )
}

/// ASCII punctuation without `'`, `,`, `-` and `.`, and the blank.
fn is_symbol(c: char) -> bool {
    matches!(c, ' '..='&' | '('..='+' | '/' | ':'..='@' | '['..='`' | '{'..='~')
}

/// Replaces pairs of characters from left to right. Pairs do not overlap.
fn replaced(
    text: &str,
    is_first: impl Fn(char) -> bool,
    is_second: impl Fn(char) -> bool,
    pair: impl Fn(char, char) -> [char; 4],
) -> String {
    let mut made = String::with_capacity(2 * text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match chars.next_if(|&next| is_first(c) && is_second(next)) {
            Some(next) => made.extend(pair(c, next)),
            None => made.push(c),
        }
    }
    made
}
