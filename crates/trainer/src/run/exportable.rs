//! The warning of a run whose model cannot be exported.

use emberlm_model::hugging_face::check_exportable;
use emberlm_model::{Family, ModelConfig, ModelKind, TransformerConfig};

/// The warning that `emberlm export` will not support a model, with a family that supports it; `None` if it can be
/// exported, as encoders and encoder–decoders can.
pub fn export_warning(model: &TransformerConfig) -> Option<String> {
    if model.kind() != ModelKind::Decoder {
        return None;
    }
    let error = check_exportable(model).err()?;
    let expressing = |family: &Family| is_expressible(model, *family);
    let advice = match Family::ALL.into_iter().find(expressing) {
        Some(family) => format!("with --set model.family={} it can be", family.name()),
        None => "a model of the preset llama-nano can be".to_owned(),
    };
    Some(format!(
        "warning: this model cannot be exported as a Hugging Face directory: {error}; {advice}"
    ))
}

/// Returns true if the model can be exported as one of another family.
fn is_expressible(model: &TransformerConfig, family: Family) -> bool {
    let model = ModelConfig {
        family,
        ..model.raw()
    };
    TransformerConfig::try_from(model).is_ok_and(|model| check_exportable(&model).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::presets;

    fn of(preset: &str, change: impl FnOnce(&mut ModelConfig)) -> Option<String> {
        let run = presets::run(preset).expect("a preset");
        let mut model = run.model.clone();
        model.vocab_size = Some(65);
        change(&mut model);
        export_warning(&TransformerConfig::try_from(model).expect("legal"))
    }

    #[test]
    fn families_without_a_format_and_what_a_family_cannot_express_are_named() {
        assert_eq!(of("llama-nano", |_| ()), None);
        assert_eq!(of("char-nano", |_| ()), None);
        let pocket = of("pocket-tales", |_| ()).expect("a warning");
        assert!(pocket.contains("the family `pocket`"), "{pocket}");
        assert!(pocket.contains("llama-nano can be"), "{pocket}");
        let llama = of("llama-nano", |model| model.family = Family::Gpt2).expect("a warning");
        assert!(llama.contains("--set model.family=llama"), "{llama}");
    }
}
