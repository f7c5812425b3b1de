//! Quotes the words of suggested commands.

use std::path::Path;

/// Quotes a shell argument if it needs quotes.
pub fn shell_word(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./=,:+@%^…".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// A path as an argument of a suggested command.
pub fn shell_path(path: &Path) -> String {
    shell_word(&path.to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shell_words_are_quoted_if_needed() {
        let words = ["--out", "a b", "", "it's", "düne.txt", "$x"].map(shell_word);
        assert_eq!(
            words,
            ["--out", "'a b'", "''", r"'it'\''s'", "düne.txt", "'$x'"]
        );
    }
}
