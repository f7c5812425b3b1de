//! Rules for the learned additions to a decoder's blocks and for layers that start with zeros.

use super::TransformerConfig;
use crate::config::limits::within;
use crate::config::{ModelKind, ZeroInit};
use crate::error::ConfigError;

impl TransformerConfig {
    pub(super) fn check_additions(&self) -> Result<(), ConfigError> {
        let raw = &self.filled;
        let only_decoders = |field: &'static str, given: bool| match given {
            true if self.kind() != ModelKind::Decoder => {
                let rule = "must be absent from a model that is not a decoder";
                Err(ConfigError::new(field, "set", rule))
            }
            _ => Ok(()),
        };
        only_decoders("residual_mix", raw.residual_mix.is_some())?;
        only_decoders("value_embeddings", raw.value_embeddings.is_some())?;
        if let Some(mix) = raw.residual_mix {
            for (field, factor) in [
                ("residual_mix.stream", mix.stream),
                ("residual_mix.embedding", mix.embedding),
            ] {
                if !(factor as f32).is_finite() {
                    return Err(ConfigError::new(field, factor, "must be finite in f32"));
                }
            }
        }
        if let Some(values) = &raw.value_embeddings {
            let inputs = values.gate_inputs_for(raw.d_model);
            within("value_embeddings.gate_inputs", inputs, 1..=raw.d_model)?;
            let layers = values.layers.layers(raw.n_layers);
            if let Some(&layer) = layers.last().filter(|&&layer| layer >= raw.n_layers) {
                let rule = format!("must be below n_layers = {}", raw.n_layers);
                return Err(ConfigError::new("value_embeddings.layers", layer, rule));
            }
        }
        if raw.zero_init.contains(&ZeroInit::Head) && raw.head.tied {
            let rule =
                "must not contain \"head\" with head.tied, which would make the embeddings zero";
            return Err(ConfigError::new("zero_init", "[\"head\"]", rule));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::config::{FullLayers, ResidualMix, ValueEmbeddings, ZeroInit};
    use crate::transformer::checked::tests::error_of;

    #[test]
    fn additions_are_within_their_ranges() {
        let values = |layers, gate_inputs| {
            let layers = FullLayers::Listed(layers);
            error_of("char-nano", |raw| {
                raw.value_embeddings = Some(ValueEmbeddings {
                    layers,
                    gate_inputs,
                });
            })
        };
        assert_eq!(values(vec![0, 3], None), "accepted");
        let expected = "model.value_embeddings.layers = 4: must be below n_layers = 4";
        assert_eq!(values(vec![4], None), expected);
        let expected = "model.value_embeddings.gate_inputs = 129: must be between 1 and 128";
        assert_eq!(values(vec![0], Some(129)), expected);
        let expected = "model.value_embeddings.gate_inputs = 0: must be between 1 and 128";
        assert_eq!(values(vec![0], Some(0)), expected);
        let mix = |stream| {
            error_of("char-nano", |raw| {
                raw.residual_mix = Some(ResidualMix {
                    stream,
                    embedding: 0.0,
                });
            })
        };
        assert_eq!(mix(-1.0), "accepted");
        let expected = "model.residual_mix.stream = inf: must be finite in f32";
        assert_eq!(mix(f64::INFINITY), expected);
    }

    #[test]
    fn only_an_untied_head_starts_with_zeros() {
        let tied = |tied| {
            error_of("char-nano", |raw| {
                raw.head.tied = tied;
                raw.zero_init = vec![ZeroInit::Head, ZeroInit::Residual];
            })
        };
        assert_eq!(tied(false), "accepted");
        assert!(tied(true).starts_with("model.zero_init = [\"head\"]: must not contain"));
    }
}
