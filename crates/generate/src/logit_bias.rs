//! Logit biases (OpenAI's `logit_bias`): 100 practically forces a token, -100 practically bans it.

use std::collections::HashSet;

use crate::error::SettingError;
use crate::penalties::to_finite;
use crate::ranges::LOGIT_BIAS;

/// Rejects ids outside the vocabulary, repeated ids, and values outside -100 to 100.
pub(crate) fn check(bias: &[(u32, f32)], vocab_size: usize) -> Result<(), SettingError> {
    let mut seen = HashSet::new();
    let refuse = |id: u32, value: f32, rule: String| {
        Err(SettingError::new(
            "logit_bias",
            format!("{id}={value}"),
            rule,
        ))
    };
    for &(id, value) in bias {
        if id as usize >= vocab_size {
            let rule = format!("the id must be below the vocabulary's size of {vocab_size}");
            return refuse(id, value, rule);
        }
        if !LOGIT_BIAS.allows(value.into()) {
            return refuse(id, value, format!("the value {}", LOGIT_BIAS.rule()));
        }
        if !seen.insert(id) {
            return refuse(id, value, "the id must be given once".to_owned());
        }
    }
    Ok(())
}

/// Adds `bias` to `logits`, `[vocab_size]`. Finite logits stay finite.
pub(crate) fn apply(bias: &[(u32, f32)], logits: &mut [f32]) {
    for &(id, value) in bias {
        if let Some(logit) = logits.get_mut(id as usize) {
            *logit = to_finite(f64::from(*logit) + f64::from(value));
        }
    }
}
