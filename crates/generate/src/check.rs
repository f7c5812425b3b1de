//! Validation of prompts and stop tokens.

use emberlm_model::InputError;

use crate::error::SettingError;

pub(crate) fn check_stop_tokens(
    vocab_size: usize,
    stop_tokens: &[u32],
) -> Result<(), SettingError> {
    let unknown = |id: &&u32| **id as usize >= vocab_size;
    match stop_tokens.iter().find(unknown) {
        Some(id) => {
            let rule = format!("must be below the vocabulary's size of {vocab_size}");
            Err(SettingError::new("stop_tokens", id, rule))
        }
        None => Ok(()),
    }
}

/// As [`emberlm_model::TransformerConfig::check_tokens`], but without a limit on the length.
pub(crate) fn check_prompt(vocab_size: usize, prompt: &[u32]) -> Result<(), InputError> {
    if prompt.is_empty() {
        return Err(InputError::Empty);
    }
    let unknown = |&id: &u32| id as usize >= vocab_size;
    match prompt.iter().position(unknown) {
        Some(position) => Err(InputError::UnknownToken {
            id: prompt[position],
            position,
            vocab_size,
        }),
        None => Ok(()),
    }
}
