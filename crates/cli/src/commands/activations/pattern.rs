//! Names of activations with wildcards.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

/// A name in which `*` is any text.
#[derive(Clone, Debug)]
pub struct Pattern(String);

impl Pattern {
    /// Returns true if the whole name has this form.
    pub fn matches(&self, name: &str) -> bool {
        let mut parts = self.0.split('*');
        let Some(rest) = parts.next().and_then(|first| name.strip_prefix(first)) else {
            return false;
        };
        let parts: Vec<&str> = parts.collect();
        let Some((last, between)) = parts.split_last() else {
            return rest.is_empty();
        };
        let Some(mut rest) = rest.strip_suffix(last) else {
            return false;
        };
        between.iter().all(|part| match rest.split_once(part) {
            Some((_, after)) => {
                rest = after;
                true
            }
            None => false,
        })
    }
}

impl FromStr for Pattern {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_are_any_text() {
        let matches = |pattern: &str, name| Pattern(pattern.to_owned()).matches(name);
        let name = "blocks.11.attn.hook_q";
        for pattern in ["*", "blocks.*", "*hook_q", "blocks.*.attn.*_q", name, "**"] {
            assert!(matches(pattern, name), "{pattern}");
        }
        for pattern in [
            "",
            "blocks",
            "blocks.*.mlp.*",
            "*hook_k",
            "hook_q",
            "blocks.11.attn.hook_q*q",
        ] {
            assert!(!matches(pattern, name), "{pattern}");
        }
    }
}
