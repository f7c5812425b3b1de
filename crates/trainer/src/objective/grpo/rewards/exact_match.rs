//! The reward of a completion that equals a field of its record.

use super::{Answer, Reward, share};
use crate::config::ExactMatchConfig;

/// 1 if the completion equals the field, white space around both aside, and 0 otherwise.
impl Reward for ExactMatchConfig {
    fn field(&self) -> Option<&str> {
        Some(&self.field)
    }

    fn of(&self, answer: Answer<'_>) -> Result<f64, String> {
        let expected = answer.expected(&self.field);
        Ok(share(answer.completion.trim() == expected.trim()))
    }
}
