//! The messages of refused configurations, for tests.

use super::TransformerConfig;
use crate::config::ModelConfig;
use crate::families;

/// The error of a preset with a change; "accepted" if there is none.
pub(super) fn error_of(preset: &str, change: impl FnOnce(&mut ModelConfig)) -> String {
    let mut raw = families::preset(preset).expect("a preset").config;
    raw.vocab_size.get_or_insert(65);
    change(&mut raw);
    match TransformerConfig::try_from(raw) {
        Ok(_) => "accepted".to_owned(),
        Err(error) => error.to_string(),
    }
}
