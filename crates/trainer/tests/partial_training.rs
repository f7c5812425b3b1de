//! Training of a part of the model: frozen parameters, learning rates by depth, and noise on embeddings.

use std::collections::BTreeMap;
use std::path::Path;

use burn::backend::Autodiff;
use burn_flex::Flex;
use emberlm_model::weights::load_tensors;
use emberlm_trainer::RunConfig;
use emberlm_trainer::config::{AdamWConfig, ConstantConfig, OptimizerConfig, ScheduleConfig};

use crate::common::{TestFolder, train};

type Training = Autodiff<Flex>;

/// The weights in the run's last checkpoint, by path.
fn weights(run: &Path, step: usize) -> BTreeMap<String, Vec<f32>> {
    let file = run.join(format!("checkpoints/step-{step:08}/model.safetensors"));
    let tensors = load_tensors(&file).unwrap().into_iter();
    tensors
        .map(|(path, tensor)| (path, tensor.values))
        .collect()
}

/// Trains from the same initial weights for `steps` steps.
fn trained(
    place: &TestFolder,
    out: &str,
    steps: usize,
    change: impl FnOnce(&mut RunConfig),
) -> BTreeMap<String, Vec<f32>> {
    let mut config = place.config();
    config.train.steps = steps;
    config.train.schedule = ScheduleConfig::Constant(ConstantConfig {
        learning_rate: 1e-3,
        warmup_steps: 0,
    });
    config.train.optimizer = OptimizerConfig::AdamW(AdamWConfig {
        weight_decay: 0.0,
        epsilon: 1e-12,
        ..AdamWConfig::default()
    });
    config.model.n_layers = 2;
    change(&mut config);
    train::<Training>(place, config, out).unwrap();
    weights(&place.path(out), steps)
}

#[test]
fn frozen_parameters_keep_their_values() {
    let place = TestFolder::new(0);
    let names = ["tokens", "blocks.0", "blocks.*.attention"];
    let freeze = |config: &mut RunConfig| config.train.frozen = names.map(str::to_owned).to_vec();
    // Settings of the optimizer do not change the initial weights.
    let first = trained(&place, "first", 1, |config| {
        config.train.layer_decay = 1e-9;
        config.train.groups.head.rate = 0.0;
        config.train.groups.vectors.rate = 0.0;
    });
    let after = trained(&place, "after", 3, freeze);
    for (path, values) in &after {
        let is_frozen =
            path == "tokens" || path.starts_with("blocks.0.") || path.contains(".attention.");
        let change = values.iter().zip(&first[path]).map(|(a, b)| (a - b).abs());
        let change = change.fold(0.0_f32, f32::max);
        assert_eq!(change < 1e-6, is_frozen, "{path} changed by {change}");
    }
}

#[test]
fn names_that_select_nothing_or_everything_are_refused() {
    let place = TestFolder::new(0);
    for (names, rule) in [
        (
            vec!["block.0"],
            "must be the beginning of a parameter's path",
        ),
        (
            vec!["tokens", "blocks", "norm_final", "head"],
            "must leave parameters to train",
        ),
    ] {
        let mut config = place.config();
        config.train.frozen = names.into_iter().map(str::to_owned).collect();
        let error = train::<Training>(&place, config, "refused").err().unwrap();
        assert!(error.to_string().contains(rule), "{error}");
    }
}

/// The first update of AdamW changes each element by the learning rate, whatever the gradient.
#[test]
fn learning_rates_fall_with_the_depth_below_the_head() {
    let place = TestFolder::new(0);
    let plain = trained(&place, "plain", 1, |_| {});
    let decayed = trained(&place, "decayed", 1, |config| {
        config.train.layer_decay = 0.5
    });
    let first = trained(&place, "first", 1, |config| {
        config.train.schedule.set_learning_rate(1e-12)
    });
    for (path, power) in [
        ("tokens", 3),
        ("blocks.0.attention.out.weight", 2),
        ("blocks.1.feed_forward.down.weight", 1),
        ("norm_final.gain", 0),
        ("head", 0),
    ] {
        let largest = |of: &BTreeMap<String, Vec<f32>>| {
            let changes = of[path]
                .iter()
                .zip(&first[path])
                .map(|(a, b)| (a - b).abs());
            changes.fold(0.0_f32, f32::max)
        };
        assert!(
            (largest(&plain) / 1e-3 - 1.0).abs() < 1e-2,
            "{path}: {}",
            largest(&plain)
        );
        let expected = 1e-3 * 0.5_f32.powi(power);
        let found = largest(&decayed);
        assert!(
            (found / expected - 1.0).abs() < 1e-2,
            "{path}: {found}, not {expected}"
        );
    }
}

#[test]
fn noise_on_embeddings_depends_on_the_seed_only() {
    let place = TestFolder::new(0);
    let noise = |alpha| move |config: &mut RunConfig| config.train.embedding_noise = alpha;
    let plain = trained(&place, "plain", 3, noise(0.0));
    let noisy = trained(&place, "noisy", 3, noise(5.0));
    let again = trained(&place, "again", 3, |config| {
        config.train.embedding_noise = 5.0;
        config.train.recompute = true;
    });
    assert_ne!(plain, noisy);
    assert_eq!(noisy, again, "recomputation has the same noise");
}
