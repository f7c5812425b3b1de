//! Rules for the stacks of encoders and encoder–decoders.

use super::TransformerConfig;
use crate::config::limits::{LARGEST_SIZE, MOST_LAYERS, within};
use crate::config::{Architecture, AttentionKind, Position, RelativePositions};
use crate::error::ConfigError;

impl TransformerConfig {
    pub(super) fn check_architecture(&self) -> Result<(), ConfigError> {
        let raw = &self.filled;
        if let Position::Relative(positions) = raw.position {
            check_relative(positions)?;
        }
        match &raw.architecture {
            Architecture::Decoder => return Ok(()),
            Architecture::Encoder {
                segments,
                first_position,
                attention_dropout,
                head,
                ..
            } => {
                within("segments", *segments, 0..=LARGEST_SIZE)?;
                if !(0.0..1.0).contains(attention_dropout) {
                    let rule = "must be at least 0 and below 1";
                    let field = "attention_dropout";
                    return Err(ConfigError::new(field, attention_dropout, rule));
                }
                if let Some(head) = head {
                    head.check()?;
                }
                match raw.position {
                    Position::Learned => {}
                    Position::Rotary { .. } if *first_position == 0 => {}
                    Position::Rotary { .. } => {
                        let rule = "must be 0 with rotary positions";
                        return Err(ConfigError::new("first_position", first_position, rule));
                    }
                    _ => {
                        let rule = "must be \"learned\" or \"rotary\" in an encoder";
                        return Err(ConfigError::new("position", "another kind", rule));
                    }
                }
            }
            Architecture::EncoderDecoder {
                encoder_layers,
                start_token,
                padding_token,
            } => {
                within("encoder_layers", *encoder_layers, 1..=MOST_LAYERS)?;
                let vocab_size = self.vocab_size;
                for (field, id) in [
                    ("start_token", *start_token),
                    ("padding_token", *padding_token),
                ] {
                    if id as usize >= vocab_size {
                        let rule = format!("must be below vocab_size = {vocab_size}");
                        return Err(ConfigError::new(field, id, rule));
                    }
                }
            }
        }
        match raw.attention {
            AttentionKind::Softmax { .. } => Ok(()),
            AttentionKind::Linear { .. } => {
                let rule = "must be \"softmax\" in an encoder: linear attention is causal";
                Err(ConfigError::new("attention.kind", "\"linear\"", rule))
            }
        }
    }
}

fn check_relative(positions: RelativePositions) -> Result<(), ConfigError> {
    let RelativePositions {
        buckets,
        max_distance,
    } = positions;
    within("position.buckets", buckets, 4..=LARGEST_SIZE)?;
    // Buckets of one distance each reach half as far as there are buckets.
    if !(buckets / 2 + 1..=LARGEST_SIZE).contains(&max_distance) {
        let rule = format!("must be above buckets / 2 = {}", buckets / 2);
        return Err(ConfigError::new(
            "position.max_distance",
            max_distance,
            rule,
        ));
    }
    Ok(())
}
