//! The names that a template reads.

use std::collections::BTreeSet;

use minijinja::machinery::{Token, tokenize};
use minijinja::syntax::SyntaxConfig;

/// The names in the expressions and statements of a template, up to its first invalid token. Attributes, strings and comments
/// do not count; keywords, filters and functions do.
pub(super) fn names(source: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut follows_dot = false;
    for token in tokenize(source, false, SyntaxConfig::default()) {
        let Ok((token, _)) = token else { break };
        if let Token::Ident(name) = token
            && !follows_dot
        {
            names.insert(name.to_owned());
        }
        follows_dot = matches!(token, Token::Dot);
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_neither_attributes_nor_words_of_texts() {
        for (source, is_read) in [
            ("{{ thinking }}", true),
            ("{% if messages and thinking is false %}a{% endif %}", true),
            ("{{- 'a\\' b' + thinking -}}", true),
            ("{{ {'a': thinking}['a'] }}", true),
            ("it's {# thinking #} {{ 'a' }}{{thinking}}", true),
            ("{{ enable_thinking }} thinking", false),
            ("{{ message.thinking }}", false),
            ("{{ message['thinking'] + \"a \\\" thinking\" }}", false),
            ("{# {{ thinking }} #}{{ 'a' }}", false),
            ("{{ thinkin", false),
            ("{{ 'thinking", false),
            ("{# thinking", false),
            ("", false),
        ] {
            assert_eq!(names(source).contains("thinking"), is_read, "{source}");
        }
    }
}
