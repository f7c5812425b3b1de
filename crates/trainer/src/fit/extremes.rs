//! Every number of the configuration at the extremes of its type: it is refused with field, value and rule, or accepted
//! without a panic and without a large allocation.

use std::iter;
use std::panic::{AssertUnwindSafe, catch_unwind};

use emberlm_model::{ModelKind, TransformerConfig, count};
use toml::{Table, Value};

use crate::config::{ObjectiveConfig, ObjectiveKind, field_docs, tables};
use crate::fit::{plans, predict_rank};
use crate::optimizer::decay::decay_factor;
use crate::optimizer::schedule::learning_rate;
use crate::peers::Rank;
use crate::{RunConfig, memory, presets, run_config};

const FLOATS: [&str; 12] = [
    "0.0", "-1.0", "nan", "inf", "-inf", "1e308", "-1e308", "1e-320", "1e-45", "3.5e38", "1e38",
    "1e-37",
];
const INTEGERS: [&str; 7] = [
    "0",
    "-1",
    "4294967296",
    "4294967295",
    "9223372036854775807",
    "1000000000000",
    "1048577",
];
/// The most memory that a check may leave resident.
const MOST_BYTES: u64 = 200 << 20;

/// The configurations whose tables have all settings: those of every objective on a small model, of large models, and of every
/// kind of the other tables.
fn bases() -> Vec<(String, RunConfig)> {
    let mut bases = Vec::new();
    let mut add = |preset: &str, name: &str, set: &[&str]| {
        let base = presets::run(preset).expect("a preset");
        let settings: Vec<String> = set.iter().map(|set| (*set).to_owned()).collect();
        let config = run_config::layered(base, None, &settings).expect("settings");
        bases.push((format!("{preset} {name}"), config));
    };
    for kind in ObjectiveKind::ALL {
        let preset = match kind.model_kind() {
            ModelKind::Decoder => "char-nano",
            ModelKind::Encoder => "bert-nano",
            ModelKind::EncoderDecoder => "t5-nano",
        };
        let set = format!("train.objective.kind={}", kind.name());
        let rewards = "train.objective.rewards=[{kind='command', command=['true']}]";
        match ObjectiveConfig::from(kind).samples() {
            true => add(preset, kind.name(), &[&set, rewards]),
            false => add(preset, kind.name(), &[&set]),
        }
    }
    add("llama-2-7b", "next_token", &[]);
    add("mixtral-8x7b", "next_token", &[]);
    add(
        "char-nano",
        "adapter",
        &["train.adapter.rank=4", "train.from=x"],
    );
    for table in tables() {
        let (
            "train.parametrization"
            | "train.optimizer"
            | "train.schedule"
            | "train.decay_schedule"
            | "train.skip",
            Some(kind),
        ) = (table.path, table.kind)
        else {
            continue;
        };
        let set = format!("{}.kind={kind}", table.path);
        let cooldown = ["train.schedule.cooldown_steps=10"];
        let has_cooldown = field_docs(table.path, Some(kind), "cooldown_steps").is_some();
        let more = cooldown.into_iter().filter(|_| has_cooldown);
        let set: Vec<&str> = iter::once(set.as_str()).chain(more).collect();
        add("char-nano", kind, &set);
    }
    bases
}

/// The keys of all numbers, with true for floats.
fn numbers(within: &str, table: &Table, found: &mut Vec<(String, bool)>) {
    for (key, value) in table {
        let key = match within {
            "" => key.clone(),
            within => format!("{within}.{key}"),
        };
        match value {
            Value::Table(inner) => numbers(&key, inner, found),
            Value::Float(_) => found.push((key, true)),
            Value::Integer(_) => found.push((key, false)),
            _ => {}
        }
    }
}

/// Numbers that no preset sets.
const UNSET: [(&str, bool); 20] = [
    ("model.kv_heads", false),
    ("model.head_dim", false),
    ("model.embedding_scale", true),
    ("model.residual_scale", true),
    ("model.residual_mix.stream", true),
    ("model.residual_mix.embedding", true),
    ("model.value_embeddings.gate_inputs", false),
    ("model.delta_nets.key_heads", false),
    ("model.delta_nets.value_heads", false),
    ("model.delta_nets.key_dim", false),
    ("model.delta_nets.value_dim", false),
    ("model.delta_nets.taps", false),
    ("model.head.scale", true),
    ("model.head.soft_cap", true),
    ("model.attention.scale", true),
    ("model.attention.soft_cap", true),
    ("model.feed_forward.width", false),
    ("model.feed_forward.expansion", true),
    ("train.groups.matrices.beta1", true),
    ("train.groups.embeddings.beta2", true),
];

/// Reads, checks and plans a configuration without training it. Returns the message of a refusal.
fn judge(base: &RunConfig, setting: &str) -> Option<String> {
    let config = match run_config::layered(base.clone(), None, &[setting.to_owned()]) {
        Ok(config) => config,
        Err(error) => return Some(error.to_string()),
    };
    let train = &config.train;
    if let Err(error) = train
        .check()
        .and_then(|()| train.check_model(&config.model))
    {
        return Some(error.to_string());
    }
    let model = train.parametrization.applied(&config.model);
    let mut model = model.with_any_vocabulary();
    model.vocab_size = model.vocab_size.map(|size| size.max(65));
    let model = TransformerConfig::try_from(model);
    let model = match model {
        Ok(model) => model,
        Err(error) => return Some(error.to_string()),
    };
    let _ = model.parameters();
    let _ = count::flops_per_token(&model);
    let predicted = predict_rank(&model, train, 1, 0);
    for plan in plans(train).into_iter().take(3) {
        let _ = predict_rank(&model, &plan.over(train), 1, 0);
    }
    let _ = train.rank_micro_batches(Rank::SINGLE);
    for step in [0, 1, train.steps / 2, train.steps] {
        let _ = learning_rate(&train.schedule, train.steps, step);
        let _ = decay_factor(train, step);
    }
    let _ = run_config::to_toml(&config).expect("TOML");
    predicted.err().map(|error| error.to_string())
}

#[test]
fn numbers_at_their_extremes_are_refused_or_accepted_without_a_panic() {
    let mut failures = Vec::new();
    let mut tried = 0;
    for (name, base) in bases() {
        let mut keys = Vec::new();
        numbers("", &Table::try_from(&base).expect("a table"), &mut keys);
        if name == "char-nano next_token" {
            keys.extend(UNSET.map(|(key, is_float)| (key.to_owned(), is_float)));
        }
        // The settings that do not differ between the bases are tried once.
        let is_first = name == "char-nano next_token";
        keys.retain(|(key, _)| {
            let of_base = [
                "model",
                "train.objective",
                "train.optimizer",
                "train.schedule",
                "train.skip",
                "train.adapter",
            ];
            is_first || of_base.iter().any(|table| key.starts_with(table))
        });
        for (key, is_float) in keys {
            let values = match is_float {
                true => &FLOATS[..],
                false => &INTEGERS[..],
            };
            for value in values {
                let setting = format!("{key}={value}");
                tried += 1;
                let before = memory::resident().unwrap_or(0);
                let found = catch_unwind(AssertUnwindSafe(|| judge(&base, &setting)));
                let grown = memory::resident().unwrap_or(0).saturating_sub(before);
                let last = key.rsplit('.').next().expect("a name");
                match found {
                    Err(_) => failures.push(format!("{name}: {setting}: a panic")),
                    Ok(_) if grown > MOST_BYTES => {
                        failures.push(format!("{name}: {setting}: {grown} bytes"));
                    }
                    Ok(Some(message)) if !message.contains(last) && !message.contains("must") => {
                        failures.push(format!("{name}: {setting}: {message}"));
                    }
                    // A number that is none, or 0 or infinite in f32, has no meaning.
                    Ok(None)
                        if is_float
                            && ["nan", "inf", "-inf", "1e308", "-1e308"].contains(value) =>
                    {
                        failures.push(format!("{name}: {setting}: accepted"));
                    }
                    Ok(_) => {}
                }
            }
        }
    }
    assert!(
        failures.is_empty(),
        "{} of {tried}:\n{}",
        failures.len(),
        failures.join("\n")
    );
    assert!(tried > 1000, "{tried}");
    assert!(tables().count() >= 35);
}

#[test]
fn numbers_that_f32_does_not_have_are_refused_with_their_rule() {
    let base = presets::run("char-nano").expect("a preset");
    for (setting, expected) in [
        (
            "train.embedding_noise=1e308",
            "must be between 1.2e-38 and 3.4e38, the range of f32",
        ),
        (
            "train.embedding_noise=1e-320",
            "must be between 1.2e-38 and 3.4e38, the range of f32",
        ),
        (
            "train.accumulation=4000000000",
            "train.accumulation = 4000000000: must be at most 1048576",
        ),
        (
            "train.accumulation=1000000",
            "train.accumulation = 1000000: must be at most 349525 with train.micro_batch = 12",
        ),
        (
            "train.optimizer.epsilon=1e-320",
            "must be between 1.2e-38 and 3.4e38, the range of f32",
        ),
        (
            "model.norm.epsilon=1e-320",
            "must be between 1.2e-38 and 3.4e38, the range of f32",
        ),
        (
            "train.steps=9223372036854775807",
            "train.steps = 9223372036854775807: must be at most 1099511627776",
        ),
    ] {
        let message = judge(&base, setting).unwrap_or_default();
        let (key, _) = setting.split_once('=').expect("a setting");
        assert!(
            message.contains(key) && message.contains(expected),
            "{setting}: {message}"
        );
    }
}
