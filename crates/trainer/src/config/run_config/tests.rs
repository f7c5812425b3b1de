//! Tests of layered configurations.

use emberlm_trainer::config::{
    ConstantConfig, LionConfig, ObjectiveConfig, OptimizerConfig, ScheduleConfig,
};

use super::*;
use crate::config::presets;

mod layers;

fn set(settings: &[&str]) -> Result<RunConfig, String> {
    let settings: Vec<String> = settings.iter().map(|&s| s.to_owned()).collect();
    let base = presets::run("char-nano").map_err(|error| error.to_string())?;
    layered(base, None, &settings).map_err(|error| error.to_string())
}

fn decoder(config: &RunConfig) -> &emberlm_model::ModelConfig {
    &config.model
}

#[test]
fn settings_reach_every_depth() {
    let config = set(&[
        "model.d_model=256",
        "train.schedule.learning_rate=1",
        "model.norm.epsilon=1e-6",
        "data.dataset=my data",
    ])
    .expect("legal");
    assert_eq!(decoder(&config).d_model, 256);
    assert_eq!(config.train.schedule.learning_rate(), 1.0);
    assert_eq!(config.data.dataset, Path::new("my data"));
    let expected = emberlm_model::config::Norm::Layer {
        bias: false,
        epsilon: 1e-6,
    };
    assert_eq!(decoder(&config).norm, expected);
}

#[test]
fn a_variant_is_chosen_before_its_fields_are_set() {
    let config = set(&["train.objective.beta=0.5", "train.objective.kind=dpo"]).expect("legal");
    let ObjectiveConfig::Dpo(dpo) = &config.train.objective else {
        panic!("{:?}", config.train.objective);
    };
    assert_eq!(dpo.beta, 0.5);
}

#[test]
fn windows_are_set_by_one_key_or_by_keys_of_earlier_versions() {
    use emberlm_model::config::{AttentionKind, Window};

    let window = |settings: &[&str]| match decoder(&set(settings).expect("legal")).attention.clone()
    {
        AttentionKind::Softmax { window, .. } => window,
        AttentionKind::Linear { .. } => None,
    };
    let expected = Some(Window {
        global_tokens: 2,
        ..Window::new(8)
    });
    let today = [
        "model.attention.window.tokens=8",
        "model.attention.window.global_tokens=2",
    ];
    assert_eq!(window(&today), expected);
    assert_eq!(
        window(&["model.window=8", "model.global_tokens=2"]),
        expected
    );
    assert_eq!(
        window(&["model.window=8", "model.attention.window.tokens=4"]),
        Some(Window::new(4))
    );
    assert_eq!(window(&["model.window=8", "model.window=0"]), None);
    let error = set(&["model.attention.window.global_tokens=2"]).expect_err("no length");
    assert!(error.contains("missing field `tokens`"), "{error}");
}

#[test]
fn a_new_kind_replaces_the_old_one() {
    let config = set(&[r#"model.norm={ kind = "rms", epsilon = 1e-5 }"#]).expect("legal");
    let expected = emberlm_model::config::Norm::Rms { epsilon: 1e-5 };
    assert_eq!(decoder(&config).norm, expected);
    let config = set(&["model.position.kind=none"]).expect("legal");
    assert_eq!(
        decoder(&config).position,
        emberlm_model::config::Position::None
    );
}

#[test]
fn common_settings_survive_a_change_of_kind() {
    let config = set(&[
        "train.optimizer.beta2=0.5",
        "train.optimizer.kind=lion",
        "train.schedule.warmup_steps=7",
        "train.schedule.kind=constant",
        "train.optimizer.weight_decay=1",
    ])
    .expect("legal");
    let expected = OptimizerConfig::Lion(LionConfig {
        beta2: 0.5,
        weight_decay: 1.0,
        ..LionConfig::default()
    });
    assert_eq!(config.train.optimizer, expected);
    let expected = ScheduleConfig::Constant(ConstantConfig {
        learning_rate: 1e-3,
        warmup_steps: 7,
    });
    assert_eq!(config.train.schedule, expected);
    let error = set(&["train.optimizer.momentum=0.9"]).expect_err("of another kind");
    assert!(error.contains("unknown field `momentum`"), "{error}");
}

#[test]
fn settings_by_names_of_earlier_versions() {
    let old = set(&[
        "train.learning_rate=1",
        "train.optimizer=muon",
        "train.momentum=0.9",
        "train.skip_deviations=4",
        "train.eval_interval=7",
        "train.keep_last=2",
        "train.precision=bf16",
    ]);
    let new = set(&[
        "train.schedule.learning_rate=1",
        "train.optimizer={ kind = \"muon\", momentum = 0.9 }",
        "train.skip={ kind = \"outliers\", deviations = 4 }",
        "train.evaluation.interval=7",
        "train.checkpoints.keep_last=2",
        "train.precision.products=bf16",
    ]);
    assert_eq!(old.expect("accepted"), new.expect("legal"));
}

#[test]
fn counts_may_be_written_with_an_exponent() {
    let config = set(&[
        "train.steps=1e4",
        "model.vocab_size=5e2",
        "model.head.soft_cap=3e1",
    ]);
    let config = config.expect("legal");
    assert_eq!(config.train.steps, 10_000);
    assert_eq!(decoder(&config).vocab_size, Some(500));
    assert_eq!(decoder(&config).head.soft_cap, Some(30.0));
}

#[test]
fn errors_suggest_the_nearest_key() {
    let suggested = |setting: &str| {
        let base = presets::run("char-nano").expect("a preset");
        match layered(base, None, &[setting.to_owned()]) {
            Err(RunConfigError::Setting { suggestion, .. }) => suggestion,
            other => panic!("{setting}: {other:?}"),
        }
    };
    for (setting, suggestion) in [
        ("lr=1e-3", "train.schedule.learning_rate"),
        ("model.n_head=4", "model.heads"),
        ("train.optimizer.kind=adam", "adamw"),
    ] {
        assert_eq!(suggested(setting).as_deref(), Some(suggestion), "{setting}");
    }
    assert_eq!(suggested("model.quux=1"), None);
}

#[test]
fn unknown_keys_and_wrong_types_are_rejected_by_name() {
    let error = set(&["model.d_modle=256"]).expect_err("a typing error");
    assert!(error.contains("unknown field `d_modle`"), "{error}");
    let error = set(&["trian.steps=1"]).expect_err("a typing error");
    assert!(error.contains("unknown field `trian`"), "{error}");
    let error = set(&["train.steps=many"]).expect_err("not a number");
    assert!(error.contains("train.steps"), "{error}");
    assert!(set(&["train.steps=1.5"]).is_err());
    assert!(set(&["train.steps"]).is_err());
    assert!(set(&["train.steps=-1"]).is_err());
}

#[test]
fn a_file_of_a_whole_model_takes_no_sizes_from_the_preset_below_it() {
    // `pocket` uses grouped queries. `char-nano`, and the file printed from it, do not.
    let text = to_toml(&set(&[]).expect("a preset")).expect("TOML");
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), text).expect("written");
    let base = presets::run("pocket").expect("a preset");
    let read = layered(base, Some(file.path()), &[]).expect("legal");
    assert_eq!(read, set(&[]).expect("a preset"));
}

#[test]
fn printed_toml_is_commented_and_round_trips() {
    for preset in emberlm_model::families::presets() {
        let config = presets::run(preset.name).expect("a preset");
        let text = to_toml(&config).expect("TOML");
        assert_eq!(toml::from_str::<RunConfig>(&text).expect("TOML"), config);
        for (i, line) in text.lines().enumerate() {
            if let Some((key, _)) = line.split_once(" = ") {
                let before = text.lines().nth(i - 1).unwrap_or_default();
                let documented = before.starts_with("# ");
                let inner = text.lines().take(i).filter(|l| l.starts_with('[')).last();
                // Keys of one of the model's variants.
                let nested = inner.is_some_and(|header| header.starts_with("[model."));
                assert!(documented || nested, "`{key}` has no comment");
            }
        }
    }
}

#[test]
fn a_model_of_another_kind_replaces_the_model() {
    for (preset, other) in [
        ("bert-nano", "char-nano"),
        ("t5-nano", "bert-nano"),
        ("char-nano", "t5-nano"),
    ] {
        let [base, other] = [preset, other].map(|name| presets::run(name).expect("a preset"));
        let text = to_toml(&base).expect("TOML");
        assert_eq!(from_toml(&text).expect("TOML"), base);
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), text).expect("written");
        let settings = ["model.d_model=32".to_owned()];
        let read = layered(other, Some(file.path()), &settings).expect("legal");
        let mut expected = base.model;
        expected.d_model = 32;
        assert_eq!(read.model, expected);
    }
}
