//! Settings in any order and form.

use emberlm_model::TransformerConfig;
use emberlm_model::config::{Norm, choices};

use super::{decoder, set};
use crate::config::run_config::{RunConfigError, layered, single_keys};
use crate::config::{kind_docs, tables};
use crate::{RunConfig, presets};

fn over(preset: &str, settings: &[&str]) -> Result<RunConfig, String> {
    let settings: Vec<String> = settings.iter().map(|&s| s.to_owned()).collect();
    let base = presets::run(preset).expect("a preset");
    layered(base, None, &settings).map_err(|error| error.to_string())
}

fn over_by_file(preset: &str, text: &str) -> RunConfig {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), text).expect("written");
    let base = presets::run(preset).expect("a preset");
    layered(base, Some(file.path()), &[]).expect("legal")
}

/// Calls `check` with every order of `items`.
fn permutations(items: &mut [&str], from: usize, check: &mut impl FnMut(&[&str])) {
    if from == items.len() {
        return check(items);
    }
    for at in from..items.len() {
        items.swap(from, at);
        permutations(items, from + 1, check);
        items.swap(from, at);
    }
}

#[test]
fn any_order_of_settings_is_the_configuration_of_a_file_with_them() {
    let cases: [(&[&str], &str); 4] = [
        (
            &[
                "model.position.kind=rotary",
                "model.feed_forward.kind=gated",
                "model.position.base=500",
                "model.norm={ kind = \"rms\", epsilon = 1e-3 }",
                "model.norm.epsilon=1e-6",
            ],
            "[model]\nposition = { kind = \"rotary\", base = 500 }\nnorm = { kind = \"rms\", epsilon = 1e-6 }\n\
             feed_forward.kind = \"gated\"\n",
        ),
        (
            &[
                "train.schedule.kind=warmup_stable_decay",
                "train.schedule.cooldown_steps=7",
                "train.learning_rate=1",
                "train.objective=dpo",
                "train.objective.beta=0.5",
            ],
            "[train]\nobjective = { kind = \"dpo\", beta = 0.5 }\n[train.schedule]\nkind = \"warmup_stable_decay\"\n\
             cooldown_steps = 7\nlearning_rate = 1.0\n",
        ),
        (
            &[
                "model.attention.window=8",
                "model.attention.window.tokens=4",
                "model.window=0",
                "model.bias=true",
                "model.bias.qkv=false",
            ],
            "[model]\nattention.window = { tokens = 4 }\n\
             bias = { qkv = false, attention_out = true, feed_forward = true }\n",
        ),
        (
            &[
                "model.position.scaling.kind=yarn",
                "model.position.kind=rotary",
                "model.position.scaling.factor=3",
                "model.layer_positions.kind=none",
                "model.family=llama",
            ],
            "[model]\nfamily = \"llama\"\nlayer_positions.kind = \"none\"\n\
             position = { kind = \"rotary\", scaling = { kind = \"yarn\", factor = 3 } }\n",
        ),
    ];
    for (settings, text) in cases {
        for preset in ["char-nano", "mistral-7b"] {
            let expected = over_by_file(preset, text);
            let mut settings = settings.to_vec();
            permutations(&mut settings, 0, &mut |order| {
                let config = over(preset, order).expect("legal");
                assert!(config == expected, "{preset} {order:?}: {config:?}");
            });
        }
    }
}

#[test]
fn every_kind_is_chosen_by_its_name_alone() {
    let of_model = [
        ("attention", "model.attention"),
        ("norm", "model.norm"),
        ("position", "model.position"),
        ("feed_forward", "model.feed_forward"),
        ("wiring", "model.wiring"),
        ("init", "model.init"),
        ("scaling", "model.position.scaling"),
    ];
    for (component, table) in of_model {
        for kind in choices::kinds(component) {
            let (long, short) = (format!("{table}.kind={kind}"), format!("{table}={kind}"));
            for preset in ["char-nano", "pocket-tales", "llama-nano", "mixtral-8x7b"] {
                let with = |setting: &str| match component {
                    "scaling" => over(preset, &[setting, "model.position.kind=rotary"]),
                    _ => over(preset, &[setting]),
                };
                let config = with(&long).unwrap_or_else(|error| panic!("{preset}: {error}"));
                assert_eq!(with(&short).expect("legal"), config, "{preset} {short}");
            }
            let config = over("llama-nano", &[&long, "model.vocab_size=65"]).expect("legal");
            let checked = TransformerConfig::try_from(decoder(&config).clone());
            checked.unwrap_or_else(|error| panic!("{long}: {error}"));
        }
    }
    for table in tables() {
        let Some(kind) = table.kind.filter(|_| !table.path.ends_with("rewards")) else {
            continue;
        };
        let docs = kind_docs(table.path).expect("documentation of its kinds");
        assert!(docs.contains(kind), "{docs}");
        let long = over("char-nano", &[&format!("{}.kind={kind}", table.path)]).expect("legal");
        let short = over("char-nano", &[&format!("{}={kind}", table.path)]).expect("legal");
        assert_eq!(long, short, "{} {kind}", table.path);
    }
}

#[test]
fn a_new_kind_keeps_common_settings_and_has_defaults_for_the_others() {
    let config = set(&["model.norm=rms"]).expect("legal");
    assert_eq!(decoder(&config).norm, Norm::Rms { epsilon: 1e-5 });
    let config = set(&["model.norm.epsilon=1e-6", "model.norm=offset_rms"]).expect("legal");
    assert_eq!(decoder(&config).norm, Norm::OffsetRms { epsilon: 1e-6 });
    let gated = set(&["model.feed_forward.kind=gated"]).expect("legal");
    let base = set(&[]).expect("legal");
    let activation = |config: &RunConfig| decoder(config).feed_forward.activation;
    assert_eq!(activation(&gated), activation(&base));
    let settings = ["model.bias=true", "model.norm=rms"];
    let by_file = over_by_file("char-nano", "[model]\nnorm = \"rms\"\nbias = true\n");
    assert_eq!(set(&settings).expect("legal"), by_file);
    let longer = over(
        "llama-nano",
        &["model.position.scaling=yarn", "model.seq_len=1024"],
    );
    let written = crate::config::run_config::to_toml(&longer.expect("legal")).expect("TOML");
    assert!(written.contains("original_seq_len = 1024"), "{written}");
}

#[test]
fn the_setting_that_causes_an_error_is_named() {
    let blamed = |settings: &[&str]| {
        let settings: Vec<String> = settings.iter().map(|&s| s.to_owned()).collect();
        let base = presets::run("char-nano").expect("a preset");
        match layered(base, None, &settings).expect_err("refused") {
            RunConfigError::Setting {
                setting, reason, ..
            } => (setting, reason),
            other => panic!("{other}"),
        }
    };
    for (settings, setting, reason) in [
        (
            &["train.steps=3", "train.seed=x", "model.d_model=8"][..],
            "train.seed=x",
            "invalid type",
        ),
        (
            &["model.norm.bias=true", "model.norm.kind=rms"],
            "model.norm.bias=true",
            "unknown field `bias`",
        ),
        (
            &["train.optimizer.momentum=0.5", "train.optimizer.kind=lion"],
            "train.optimizer.momentum=0.5",
            "unknown field `momentum`",
        ),
        (
            &["train.momentum=0.5", "train.optimizer=lion"],
            "train.momentum=0.5",
            "unknown field `momentum`",
        ),
        // Two errors.
        (
            &["model.quux=1", "train.quux=2"],
            "model.quux=1",
            "unknown field `quux`",
        ),
    ] {
        let (blamed, because) = blamed(settings);
        assert_eq!(blamed, setting);
        assert!(because.contains(reason), "{because}");
    }
}

#[test]
fn settings_of_tables_are_settings_of_single_keys() {
    let table = toml::from_str::<toml::Table>("norm = { kind = \"rms\" }").expect("TOML");
    let value = |text: &str| toml::Value::String(text.to_owned());
    assert_eq!(
        single_keys("model", toml::Value::Table(table)),
        [("model.norm.kind".to_owned(), value("rms"))]
    );
    assert_eq!(
        single_keys("model.norm", value("layer")),
        [("model.norm.kind".to_owned(), value("layer"))]
    );
    let seed = toml::Value::Integer(3);
    let single = [("train.seed".to_owned(), seed.clone())];
    assert_eq!(single_keys("train.seed", seed), single);
}
