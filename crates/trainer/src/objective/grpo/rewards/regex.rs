//! The reward of a completion that a regular expression matches.

use regex_automata::meta::Regex;

use super::{Answer, Reward, share};
use crate::config::RegexConfig;
use crate::error::TrainError;

/// 1 if the expression matches, or if the first group of its last match equals a field, and 0 otherwise.
pub(super) struct Match {
    regex: Regex,
    /// The field to compare; empty if any match is right.
    field: String,
}

impl Match {
    /// Compiles the expression.
    ///
    /// # Errors
    /// The regular expression is invalid, or has no group to compare.
    pub(super) fn new(config: &RegexConfig) -> Result<Self, TrainError> {
        Ok(Self {
            regex: regex(&config.pattern, !config.field.is_empty())?,
            field: config.field.clone(),
        })
    }
}

impl Reward for Match {
    fn field(&self) -> Option<&str> {
        Some(&self.field)
            .filter(|field| !field.is_empty())
            .map(String::as_str)
    }

    fn of(&self, answer: Answer<'_>) -> Result<f64, String> {
        let completion = answer.completion;
        if self.field.is_empty() {
            return Ok(share(self.regex.is_match(completion)));
        }
        let last = self.regex.captures_iter(completion).last();
        let group = last.and_then(|found| found.get_group(1));
        let text = group.and_then(|span| completion.get(span.range()));
        let expected = answer.expected(&self.field);
        Ok(share(text.map(str::trim) == Some(expected.trim())))
    }
}

/// Compiles a regular expression.
fn regex(pattern: &str, has_group: bool) -> Result<Regex, TrainError> {
    let refuse = |rule: String| TrainError::Setting {
        table: "train.objective.rewards",
        field: "pattern",
        value: pattern.to_owned(),
        rule,
    };
    let regex = Regex::new(pattern).map_err(|error| match error.syntax_error() {
        Some(error) => refuse(format!("must be a regular expression: {error}")),
        None => refuse(format!("must be a regular expression: {error}")),
    })?;
    match has_group && regex.group_info().group_len(Default::default()) < 2 {
        true => Err(refuse(
            "must have a group to compare with `field`".to_owned(),
        )),
        false => Ok(regex),
    }
}
