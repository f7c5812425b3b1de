//! The warning of a run whose model cannot be exported.

use emberlm_model::hugging_face::check_exportable;
use emberlm_model::{DecoderConfig, Family, ModelConfig};
use emberlm_trainer::RunConfig;

use crate::commands::preset_list::ASSUMED_VOCAB_SIZE;
use crate::error::warn;

/// Warns if `emberlm export` will not support the run's model, with a family that supports it.
pub fn warn_unless_exportable(config: &RunConfig) {
    if let Some(text) = config.model.as_decoder().and_then(warning) {
        warn(&text);
    }
}

/// The warning; `None` for a model that can be exported, and for an invalid one, which is an error later.
fn warning(model: &ModelConfig) -> Option<String> {
    let error = check_exportable(&checked(model)?).err()?;
    // The families of the most programs come first.
    let families = [Family::Llama, Family::Gpt2].into_iter().chain(Family::ALL);
    let mut expressing = families.filter(|family| {
        let model = ModelConfig {
            family: *family,
            ..model.clone()
        };
        checked(&model).is_some_and(|model| check_exportable(&model).is_ok())
    });
    let advice = match expressing.next() {
        Some(family) => format!(
            "the family {} can hold this model: --set model.family={}",
            family.name(),
            family.name()
        ),
        None => "a model of the family llama can be exported: --preset llama-nano".to_owned(),
    };
    Some(format!(
        "this model cannot be exported to Hugging Face or GGUF: {error}; {advice}"
    ))
}

fn checked(model: &ModelConfig) -> Option<DecoderConfig> {
    let mut model = model.clone();
    model.vocab_size.get_or_insert(ASSUMED_VOCAB_SIZE);
    DecoderConfig::try_from(model).ok()
}

#[cfg(test)]
mod tests {
    use emberlm_model::families;

    use super::*;

    fn of(preset: &str, change: impl FnOnce(&mut ModelConfig)) -> Option<String> {
        let mut config = families::preset(preset).expect("a preset").config;
        change(&mut config);
        warning(&config)
    }

    #[test]
    fn families_without_a_format_and_what_a_family_cannot_express_are_named() {
        assert_eq!(of("llama-nano", |_| ()), None);
        assert_eq!(of("char-nano", |_| ()), None);
        let pocket = of("pocket-tales", |_| ()).expect("a warning");
        assert!(pocket.contains("the family `pocket`"), "{pocket}");
        assert!(pocket.contains("--preset llama-nano"), "{pocket}");
        let llama = of("llama-nano", |model| model.family = Family::Gpt2).expect("a warning");
        assert!(llama.contains("--set model.family=llama"), "{llama}");
    }
}
