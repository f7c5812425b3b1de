//! The keys of a run's configuration, and suggestions for mistyped ones.

use std::collections::BTreeSet;

use documented::DocumentedFields;
use emberlm_model::config::choices;
use emberlm_model::families;
use emberlm_system::nearest::nearest;
use toml::{Table, Value};

use super::Groups;
use super::docs::tables;

/// Nested keys of the model that no preset sets and that are not of [`MODEL_CHOICES`].
const NOT_IN_PRESETS: [&str; 26] = [
    "model.attention.window.tokens",
    "model.attention.window.global_tokens",
    "model.attention.window.full_layers",
    "model.head.soft_cap",
    "model.experts.shared_width",
    "model.experts.dense_layers",
    "model.experts.scores",
    "model.experts.choice_bias",
    "model.experts.groups.count",
    "model.experts.groups.active",
    "model.experts.scale",
    "model.experts.shared_gate",
    "model.delta_nets.key_heads",
    "model.delta_nets.value_heads",
    "model.delta_nets.key_dim",
    "model.delta_nets.value_dim",
    "model.delta_nets.taps",
    "model.delta_nets.full_layers",
    "model.latent_attention.rank",
    "model.latent_attention.query_rank",
    "model.latent_attention.rope_dim",
    "model.latent_attention.value_dim",
    "model.residual_mix.stream",
    "model.residual_mix.embedding",
    "model.value_embeddings.layers",
    "model.value_embeddings.gate_inputs",
];

/// The model's components that have several variants, with their tables.
const MODEL_CHOICES: [(&str, &str); 9] = [
    ("attention", "model.attention"),
    ("norm", "model.norm"),
    ("position", "model.position"),
    ("scaling", "model.position.scaling"),
    ("layer_positions", "model.layer_positions"),
    ("feed_forward", "model.feed_forward"),
    ("wiring", "model.wiring"),
    ("init", "model.init"),
    ("architecture", "model.architecture"),
];

/// Names of settings in other programs, by the key they correspond to here.
const OTHER_NAMES: [(&str, &[&str]); 16] = [
    (
        "train.schedule.learning_rate",
        &["lr", "rate", "max_lr", "peak_lr"],
    ),
    ("train.schedule.min_learning_rate", &["min_lr"]),
    ("train.schedule.warmup_steps", &["warmup", "warmup_iters"]),
    ("train.schedule.decay_steps", &["lr_decay_iters"]),
    (
        "train.steps",
        &[
            "epochs",
            "num_epochs",
            "max_iters",
            "max_steps",
            "num_steps",
            "iterations",
            "iters",
        ],
    ),
    (
        "train.micro_batch",
        &["batch_size", "batch", "micro_batch_size"],
    ),
    (
        "train.accumulation",
        &[
            "gradient_accumulation_steps",
            "grad_accum",
            "accumulation_steps",
        ],
    ),
    (
        "train.clip_norm",
        &["grad_clip", "clip", "max_grad_norm", "gradient_clipping"],
    ),
    ("model.d_model", &["n_embd", "hidden_size", "dim", "width"]),
    (
        "model.n_layers",
        &[
            "n_layer",
            "num_layers",
            "layers",
            "depth",
            "num_hidden_layers",
        ],
    ),
    (
        "model.heads",
        &["n_head", "n_heads", "num_heads", "num_attention_heads"],
    ),
    (
        "model.kv_heads",
        &["n_kv_head", "n_kv_heads", "num_key_value_heads"],
    ),
    (
        "model.seq_len",
        &[
            "block_size",
            "context",
            "context_length",
            "n_ctx",
            "max_position_embeddings",
        ],
    ),
    (
        "model.feed_forward.width",
        &["intermediate_size", "d_ff", "ffn_dim", "n_inner"],
    ),
    ("model.vocab_size", &["vocab"]),
    ("train.precision.products", &["dtype", "amp"]),
];

/// The key that was probably meant by an unknown key: a setting of the same name in another table, the
/// counterpart of another program's setting, or the nearest spelling. `None` if the key exists or nothing is
/// close.
pub fn suggested_key(given: &str) -> Option<String> {
    let keys = keys();
    if keys.contains(given) {
        return None;
    }
    let last = |key: &str| key.rsplit('.').next().unwrap_or_default().to_owned();
    let name = last(given).to_lowercase().replace('-', "_");
    let other = OTHER_NAMES
        .into_iter()
        .find(|(_, names)| names.contains(&name.as_str()));
    if let Some((key, _)) = other {
        return Some(key.to_owned());
    }
    // Prefer a run-wide setting to that of a parameter group.
    let named = keys.iter().filter(|key| last(key) == name);
    if let Some(key) = named.min_by_key(|key| key.len()) {
        return Some(key.clone());
    }
    let (table, _) = given.rsplit_once('.').unwrap_or_default();
    let of_table = |key: &&String| {
        let rest = key.strip_prefix(table);
        rest.is_some_and(|rest| rest.starts_with('.') && !rest[1..].contains('.'))
    };
    let near = |keys: Vec<&String>| {
        let names: BTreeSet<String> = keys.iter().map(|key| last(key)).collect();
        let name = nearest(&name, names.iter().map(String::as_str))?.to_owned();
        let named = keys.into_iter().filter(|key| last(key) == name);
        named.min_by_key(|key| key.len()).cloned()
    };
    near(keys.iter().filter(of_table).collect()).or_else(|| near(keys.iter().collect()))
}

/// The keys of the table at `path`, as dotted paths; empty if `path` is no table.
pub fn keys_of(path: &str) -> Vec<String> {
    let in_table = |key: &String| {
        let rest = key
            .strip_prefix(path)
            .and_then(|rest| rest.strip_prefix('.'));
        rest.is_some_and(|rest| !rest.contains('.'))
    };
    keys().into_iter().filter(in_table).collect()
}

/// A suggestion for the first unknown key of a configuration layer.
pub(crate) fn suggested_in(layer: &Table) -> Option<String> {
    let mut given = Vec::new();
    flatten("", layer, &mut given);
    given.iter().find_map(|key| suggested_key(key))
}

/// A suggestion for the value in an "unknown variant" error of serde, chosen from the expected variants it
/// lists.
pub(crate) fn suggested_value(reason: &str) -> Option<String> {
    let (_, rest) = reason.split_once("unknown variant `")?;
    let (given, rest) = rest.split_once('`')?;
    let (_, expected) = rest.split_once("expected ")?;
    let names = expected.split('`').skip(1).step_by(2);
    nearest(given, names).map(str::to_owned)
}

/// Every key as a dotted path.
fn keys() -> BTreeSet<String> {
    let mut keys: BTreeSet<String> = NOT_IN_PRESETS.map(str::to_owned).into();
    for table in tables() {
        let paths = match table.path.strip_suffix('*') {
            Some(above) => Groups::FIELD_NAMES
                .iter()
                .map(|name| format!("{above}{name}"))
                .collect(),
            None => vec![table.path.to_owned()],
        };
        let names = table.documented().map(|(name, _)| name);
        let names = names.chain(table.kind.map(|_| "kind"));
        for name in names {
            keys.extend(paths.iter().map(|path| format!("{path}.{name}")));
        }
    }
    for (component, table) in MODEL_CHOICES {
        let kinds = choices::kinds(component);
        let names = kinds.flat_map(|kind| choices::settings(component, kind));
        keys.extend(names.map(|name| format!("{table}.{name}")));
    }
    for preset in families::presets() {
        if let Ok(model) = Table::try_from(&preset.config) {
            let mut nested = Vec::new();
            flatten("model", &model, &mut nested);
            keys.extend(nested);
        }
    }
    keys
}

fn flatten(above: &str, table: &Table, keys: &mut Vec<String>) {
    for (name, value) in table {
        let key = match above {
            "" => name.clone(),
            above => format!("{above}.{name}"),
        };
        match value {
            Value::Table(below) => flatten(&key, below, keys),
            _ => keys.push(key),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistyped_and_foreign_keys_get_suggestions() {
        for (given, key) in [
            ("lr", "train.schedule.learning_rate"),
            ("train.lr", "train.schedule.learning_rate"),
            ("learning_rate", "train.schedule.learning_rate"),
            ("weight_decay", "train.optimizer.weight_decay"),
            ("batch-size", "train.micro_batch"),
            ("train.epochs", "train.steps"),
            ("steps", "train.steps"),
            ("model.d_modle", "model.d_model"),
            ("trian.steps", "train.steps"),
            ("model.n_embd", "model.d_model"),
            ("model.attention.windwo", "model.attention.window"),
            ("train.optimizer.beta_1", "train.optimizer.beta1"),
            ("train.evaluation.intervall", "train.evaluation.interval"),
        ] {
            let found = suggested_key(given).unwrap_or_default();
            assert!(found.starts_with(key), "{given}: {found}");
        }
        assert_eq!(suggested_key("train.steps"), None);
        assert_eq!(suggested_key("model.quux"), None);
    }

    #[test]
    fn every_key_of_every_preset_is_known() {
        for preset in families::presets() {
            let run = crate::config::presets::run(preset.name).expect("a preset");
            let table = Table::try_from(&run).expect("TOML");
            assert_eq!(suggested_in(&table), None, "{}", preset.name);
        }
    }

    #[test]
    fn unknown_values_have_suggestions() {
        let reason = "unknown variant `gpt3`, expected one of `llama`, `gpt2`";
        assert_eq!(suggested_value(reason).as_deref(), Some("gpt2"));
        assert_eq!(suggested_value("invalid type: string"), None);
    }
}
