//! Reads configurations written by versions up to 0.1, which kept all settings of `[train]` in one flat table, and encoders and
//! encoder–decoders in tables of their names, with other words.

use emberlm_model::ModelConfig;
use emberlm_model::encoder::EncoderSettings;
use emberlm_model::encoder_decoder::EncoderDecoderSettings;
use serde::de::DeserializeOwned;
use toml::{Table, Value};

use super::field_docs;

/// The flat keys of `[train]`, each with its current table and key. Keys that choose a kind come first.
const MOVED: [(&str, &str, &str); 26] = [
    ("optimizer", "optimizer", "kind"),
    ("schedule", "schedule", "kind"),
    ("precision", "precision", "products"),
    ("loss_scale", "precision", "loss_scale"),
    ("learning_rate", "schedule", "learning_rate"),
    ("min_learning_rate", "schedule", "min_learning_rate"),
    ("warmup_steps", "schedule", "warmup_steps"),
    ("decay_steps", "schedule", "decay_steps"),
    ("cooldown_steps", "schedule", "cooldown_steps"),
    ("beta1", "optimizer", "beta1"),
    ("beta2", "optimizer", "beta2"),
    ("epsilon", "optimizer", "epsilon"),
    ("momentum", "optimizer", "momentum"),
    ("weight_decay", "optimizer", "weight_decay"),
    ("label_smoothing", "loss", "label_smoothing"),
    ("z_loss", "loss", "z_loss"),
    ("skip_deviations", "skip", "deviations"),
    ("skip_window", "skip", "window"),
    ("skip_limit", "skip", "limit"),
    ("eval_interval", "evaluation", "interval"),
    ("eval_tokens", "evaluation", "tokens"),
    ("eval_batch", "evaluation", "batch"),
    ("sample_tokens", "evaluation", "sample_tokens"),
    ("checkpoint_interval", "checkpoints", "interval"),
    ("keep_last", "checkpoints", "keep_last"),
    ("keep_best", "checkpoints", "keep_best"),
];

/// Moves flat keys of `[train]` in a (possibly partial) configuration into their tables. Keys in the current
/// form are kept and take precedence.
///
/// In a table that sets its kind, flat keys that the kind does not have are dropped: earlier versions wrote
/// all keys.
pub fn upgrade(run: &mut Table) {
    move_model::<EncoderSettings>(run, "encoder");
    move_model::<EncoderDecoderSettings>(run, "encoder_decoder");
    if let Some(Value::Table(model)) = run.get_mut("model") {
        drop_replaced_window(model);
    }
    let Some(Value::Table(train)) = run.get_mut("train") else {
        return;
    };
    let mut moved = Vec::new();
    for (old, table, new) in MOVED {
        // Three of the old keys are now the names of tables.
        let Some(value) = train.remove(old) else {
            continue;
        };
        if value.is_table() {
            train.insert(old.to_owned(), value);
            continue;
        }
        let section = train.entry(table).or_insert_with(|| Table::new().into());
        let Value::Table(section) = section else {
            continue;
        };
        if new == "deviations" {
            section.entry("kind").or_insert_with(|| skip_kind(&value));
        }
        section.entry(new).or_insert(value);
        moved.push((table, new));
    }
    for (table, key) in moved {
        if let Some(Value::Table(section)) = train.get_mut(table)
            && let Some(kind) = section.get("kind").and_then(Value::as_str)
            && field_docs(&format!("train.{table}"), Some(kind), key).is_none()
        {
            section.remove(key);
        }
    }
}

/// Moves a whole table of a model into `[model]`. A table that is not whole stays, and is refused.
fn move_model<S: DeserializeOwned + Into<ModelConfig>>(run: &mut Table, name: &str) {
    let settings = run.get(name).cloned().map(Value::try_into::<S>);
    let Some(Ok(settings)) = settings else {
        return;
    };
    if let Ok(model) = Table::try_from(settings.into()) {
        run.remove(name);
        run.insert("model".to_owned(), Value::Table(model));
    }
}

/// Removes the keys of earlier versions that describe a window ([`emberlm_model::ModelConfig`] reads them) where the same
/// configuration has the current ones.
fn drop_replaced_window(model: &mut Table) {
    let attention = model.get("attention").and_then(Value::as_table);
    let window = attention.and_then(|attention| attention.get("window"));
    let is_length = window.is_some_and(|window| !window.is_table());
    let replaced = [
        ("tokens", "window"),
        ("full_layers", "full_attention_layers"),
        ("global_tokens", "global_tokens"),
    ];
    let replaced = replaced.map(|(key, old)| {
        let is_set = window.is_some_and(|window| window.get(key).is_some());
        (old, is_set || (is_length && old == "window"))
    });
    for (old, _) in replaced.into_iter().filter(|(_, is_replaced)| *is_replaced) {
        model.remove(old);
    }
}

/// The kind for a number of deviations: earlier versions disabled outlier skipping with 0.
fn skip_kind(deviations: &Value) -> Value {
    let none = deviations.as_integer() == Some(0) || deviations.as_float() == Some(0.0);
    match none {
        true => "non_finite".into(),
        false => "outliers".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    use emberlm_model::ModelKind;

    use crate::config::{
        OptimizerConfig, ScheduleConfig, SkipConfig, TrainConfig, presets, run_config,
    };

    /// `[train]` as written by version 0.1, except `optimizer`, `schedule` and `skip_deviations`.
    const REST: &str = "from = \"\"\nsteps = 7\nseed = 1\nseq_len = 0\ndocuments = \"stream\"\nloader_workers = 1\n\
        micro_batch = 12\naccumulation = 1\nrecompute = false\nprecision = \"bf16\"\nloss_scale = 0.5\n\
        learning_rate = 0.003\nmin_learning_rate = 0.0002\nwarmup_steps = 3\ndecay_steps = 6\ncooldown_steps = 2\n\
        beta1 = 0.8\nbeta2 = 0.95\nepsilon = 1e-6\nmomentum = 0.9\nweight_decay = 0.05\nlabel_smoothing = 0.1\n\
        z_loss = 0.0001\nema = 0.5\nclip_norm = 2.0\nskip_window = 16\nskip_limit = 4\nlog_interval = 5\n\
        eval_interval = 6\neval_tokens = 8\neval_batch = 9\ncheckpoint_interval = 11\nkeep_last = 12\n\
        keep_best = true\nsample_tokens = 13\n[train.groups.matrices]\nrate = 2.0\nweight_decay = 1.0\n";

    fn read(text: &str) -> TrainConfig {
        let mut run: Table = toml::from_str(text).unwrap();
        upgrade(&mut run);
        let before = run.clone();
        upgrade(&mut run);
        assert_eq!(run, before, "an upgraded configuration stays");
        run.remove("train").unwrap().try_into().unwrap()
    }

    fn whole(optimizer: &str, schedule: &str, deviations: &str) -> TrainConfig {
        read(&format!(
            "[train]\noptimizer = \"{optimizer}\"\nschedule = \"{schedule}\"\nskip_deviations = {deviations}\n{REST}"
        ))
    }

    #[test]
    fn every_key_of_earlier_versions_is_moved() {
        let config = whole("adamw", "cosine", "0.0");
        let expected: TrainConfig = toml::from_str(
            "steps = 7\nema = 0.5\nclip_norm = 2.0\nlog_interval = 5\n\
            [precision]\nproducts = \"bf16\"\nloss_scale = 0.5\n[loss]\nlabel_smoothing = 0.1\nz_loss = 0.0001\n\
            [optimizer]\nkind = \"adamw\"\nbeta1 = 0.8\nbeta2 = 0.95\nepsilon = 1e-6\nweight_decay = 0.05\n\
            [schedule]\nkind = \"cosine\"\nlearning_rate = 0.003\nmin_learning_rate = 0.0002\nwarmup_steps = 3\ndecay_steps = 6\n\
            [skip]\nkind = \"non_finite\"\nlimit = 4\n\
            [evaluation]\ninterval = 6\ntokens = 8\nbatch = 9\nsample_tokens = 13\n\
            [checkpoints]\ninterval = 11\nkeep_last = 12\nkeep_best = true\n\
            [groups.matrices]\nrate = 2.0\nweight_decay = 1.0\n",
        )
        .unwrap();
        assert_eq!(config, expected);
    }

    #[test]
    fn flat_keys_of_other_kinds_are_dropped() {
        for (optimizer, schedule) in [
            ("muon", "constant"),
            ("lion", "linear"),
            ("adamw", "inverse_sqrt"),
            ("muon", "warmup_stable_decay"),
        ] {
            let config = whole(optimizer, schedule, "6.0");
            config.check().unwrap();
            match config.optimizer {
                OptimizerConfig::Muon(muon) => assert_eq!((muon.momentum, muon.beta2), (0.9, 0.95)),
                OptimizerConfig::Lion(lion) => {
                    assert_eq!((lion.beta1, lion.weight_decay), (0.8, 0.05))
                }
                OptimizerConfig::AdamW(adamw) => assert_eq!(adamw.epsilon, 1e-6),
                OptimizerConfig::NorMuon(_) | OptimizerConfig::Soap(_) => {
                    unreachable!("no earlier version has it")
                }
            }
            assert_eq!(config.schedule.learning_rate(), 0.003);
            if let ScheduleConfig::WarmupStableDecay(cooldown) = config.schedule {
                assert_eq!((cooldown.cooldown_steps, cooldown.decay_steps), (2, 6));
            }
            let SkipConfig::Outliers(outliers) = config.skip else {
                panic!("{:?}", config.skip);
            };
            assert_eq!(
                (outliers.deviations, outliers.window, outliers.limit),
                (6.0, 16, 4)
            );
        }
    }

    #[test]
    fn a_partial_configuration_stays_partial() {
        let mut run: Table = toml::from_str("[train]\nbeta2 = 0.95\nsteps = 3").unwrap();
        upgrade(&mut run);
        let expected = "[train]\nsteps = 3\n[train.optimizer]\nbeta2 = 0.95";
        assert_eq!(run, toml::from_str::<Table>(expected).unwrap());
        let mut run: Table = toml::from_str("[train]\nskip_deviations = 4").unwrap();
        upgrade(&mut run);
        let expected = "[train.skip]\nkind = \"outliers\"\ndeviations = 4";
        assert_eq!(run, toml::from_str::<Table>(expected).unwrap());
    }

    #[test]
    fn current_keys_take_precedence() {
        let config = read(
            "[train]\nlearning_rate = 1.0\n[train.schedule]\nkind = \"cosine\"\nlearning_rate = 0.5",
        );
        assert_eq!(config.schedule.learning_rate(), 0.5);
    }

    #[test]
    fn tables_of_earlier_versions_are_read() {
        let encoder = EncoderSettings {
            first_position: 2,
            ..EncoderSettings::nano(0)
        };
        let text = toml::to_string(&encoder).expect("TOML");
        let (sizes, inner) = text.split_at(text.find('[').expect("tables"));
        let inner = inner.replace('[', "[encoder.");
        let old = format!(
            "[encoder]\n{sizes}{inner}[data]\n[train]\n[train.objective]\nkind = \"mlm\"\n"
        );
        let read = run_config::from_toml(&old).expect("a file of an earlier version");
        assert_eq!((read.model.seq_len, read.model.vocab_size), (126, None));
        assert_eq!(read.model.kind(), ModelKind::Encoder);
        let file = tempfile::NamedTempFile::new().expect("a file");
        fs::write(file.path(), old).expect("written");
        let base = presets::run("char-nano").expect("a preset");
        let layered = run_config::layered(base, Some(file.path()), &[]).expect("legal");
        assert_eq!(layered.model, read.model);
        let base = presets::run("bert-nano").expect("a preset");
        let settings = ["encoder.d_model=32".to_owned()];
        let error = run_config::layered(base, None, &settings).expect_err("not whole");
        assert!(
            error.to_string().contains("unknown field `encoder`"),
            "{error}"
        );
    }
}
