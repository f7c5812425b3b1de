use emberlm_model::families;

use super::*;
use crate::TrainConfig;
use crate::config::presets;

/// A preset with 8 blocks of width 512 and heads of width 128.
fn wide(preset: &str) -> ModelConfig {
    let mut model = families::preset(preset).expect("a preset").config;
    (model.d_model, model.n_layers, model.heads) = (512, 8, 4);
    (model.kv_heads, model.head_dim) = (None, None);
    model
}

fn complete_p() -> ParametrizationConfig {
    ParametrizationConfig::CompleteP(CompletePConfig {
        base_width: 128,
        base_head_dim: 32,
        base_layers: 2,
    })
}

fn scale_of(model: &ModelConfig) -> Option<f64> {
    match model.attention {
        AttentionKind::Softmax { scale, .. } => scale,
        AttentionKind::Linear { .. } => None,
    }
}

#[test]
fn factors_of_the_model_follow_the_table() {
    let model = complete_p().applied(&wide("llama-2-7b"));
    assert_eq!(model.head.scale, Some(0.25));
    assert_eq!(model.residual_scale, Some(0.25));
    let scale = scale_of(&model).expect("a factor");
    assert!((scale - 32.0_f64.sqrt() / 128.0).abs() < 1e-16, "{scale}");
    assert_eq!(model.embedding_scale, None);

    let mup = ParametrizationConfig::Mup(MupConfig {
        base_width: 128,
        base_head_dim: 0,
    });
    let model = mup.applied(&wide("llama-2-7b"));
    assert_eq!(model.head.scale, Some(0.25));
    assert_eq!((model.residual_scale, scale_of(&model)), (None, None));
}

/// The factors that a model has already are those of its base.
#[test]
fn factors_of_the_base_are_kept() {
    let mut wide = wide("llama-2-7b");
    wide.head.scale = Some(0.5);
    wide.residual_scale = Some(0.2);
    wide.scale_embedding = true;
    let AttentionKind::Softmax { scale, .. } = &mut wide.attention else {
        panic!("softmax");
    };
    *scale = Some(0.125);
    let model = complete_p().applied(&wide);
    assert_eq!(model.head.scale, Some(0.125));
    assert_eq!(model.residual_scale, Some(0.05));
    assert_eq!(scale_of(&model), Some(0.125 / 4.0));
    assert_eq!(model.embedding_scale, Some(128.0_f64.sqrt()));
    assert!(!model.scale_embedding);

    wide.head.scale = None;
    wide.head.scaled = true;
    let scale = complete_p().applied(&wide).head.scale.expect("a factor");
    assert!((scale - 0.25 / 128.0_f64.sqrt()).abs() < 1e-15, "{scale}");
}

#[test]
fn a_model_of_the_base_s_size_is_not_changed() {
    let mut base = wide("llama-2-7b");
    (base.d_model, base.n_layers, base.heads) = (128, 2, 4);
    assert_eq!(complete_p().applied(&base), base);
    let standard = ParametrizationConfig::default();
    assert_eq!(standard.applied(&wide("gemma2-2b")), wide("gemma2-2b"));
}

#[test]
fn what_has_no_parametrization_is_refused() {
    let error = |model: &ModelConfig| {
        let error = complete_p().check_model(model).expect_err("refused");
        error.to_string()
    };
    let encoder = presets::run("bert-nano").expect("a preset").model;
    let expected =
        "train.parametrization.kind = complete_p: must be standard for models other than decoders";
    assert_eq!(error(&encoder), expected);
    let mut linear = wide("llama-2-7b");
    linear.attention = AttentionKind::Linear {
        features: None,
        seed: 0,
    };
    let expected = "train.parametrization.base_head_dim = 32: must be 0 with linear attention, whose scores have no factor";
    assert_eq!(error(&linear), expected);

    let of = |settings: &str| {
        let config: TrainConfig = toml::from_str(settings).expect("settings");
        config.check().expect_err("refused").to_string()
    };
    let fine_tuning = of("from = \"model\"\nparametrization = { kind = \"mup\" }");
    let expected = "train.parametrization.kind = mup: must be standard with train.from, whose weights are not initial ones";
    assert_eq!(fine_tuning, expected);
    let no_base = of("parametrization = { kind = \"mup\", base_width = 0 }");
    let expected = "train.parametrization.base_width = 0: must be at least 1";
    assert_eq!(no_base, expected);
    let no_base = of("parametrization = { kind = \"complete_p\", base_layers = 0 }");
    let expected = "train.parametrization.base_layers = 0: must be at least 1";
    assert_eq!(no_base, expected);
}
