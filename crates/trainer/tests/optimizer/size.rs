//! Learning rates, weight decay and ε by the size of the model: those of table 1 of Dey et al. 2025, "Don't be lazy: CompleteP
//! enables compute-efficient deep transformers".

use std::collections::BTreeMap;

use burn::module::ParamId;
use burn::optim::GradientsParams;
use burn::tensor::Tensor;
use burn_flex::Flex;
use emberlm_model::config::ValueEmbeddings;
use emberlm_model::weights::{ParamVisitor, visit_params};
use emberlm_model::{Transformer, TransformerConfig, families};
use emberlm_trainer::config::{
    AdamWConfig, CompletePConfig, Group, Groups, MupConfig, ParametrizationConfig,
};
use emberlm_trainer::optimizer::Optimizer;
use emberlm_trainer::{OptimizerConfig, OptimizerKind, TrainConfig};

use crate::optimizer::fixture::{Training, values};

const RATE: f64 = 1e-3;
const DECAY: f64 = 10.0;
const EPSILON: f64 = 1e-4;

/// Four times as wide and three times as deep as the base.
fn model() -> Transformer<Training<Flex>> {
    let mut config = families::preset("qwen2").unwrap().config;
    (config.vocab_size, config.seq_len) = (Some(13), 4);
    (config.d_model, config.n_layers) = (32, 6);
    (config.heads, config.kv_heads, config.head_dim) = (4, Some(2), None);
    (config.head.tied, config.feed_forward.width) = (false, Some(48));
    config.value_embeddings = Some(ValueEmbeddings::default());
    let config = TransformerConfig::try_from(config).unwrap();
    config.init::<Training<Flex>>(1, &Default::default())
}

/// The same gradient for every element.
struct Same(f64, GradientsParams);

impl ParamVisitor<Training<Flex>> for Same {
    fn visit<const D: usize>(&mut self, _: &str, id: ParamId, value: Tensor<Training<Flex>, D>) {
        let grad = Tensor::<Flex, D>::full(value.shape(), self.0, &value.device());
        self.1.register(id, grad);
    }
}

/// The values before the first update and after it, by path.
type Change = BTreeMap<String, (f64, f64)>;

/// An element of each parameter before and after the first update, with this gradient.
fn change(parametrization: &ParametrizationConfig, gradient: f64, weight_decay: f64) -> Change {
    let config = TrainConfig {
        parametrization: parametrization.clone(),
        optimizer: OptimizerConfig::AdamW(AdamWConfig {
            epsilon: EPSILON,
            weight_decay,
            ..AdamWConfig::default()
        }),
        groups: Groups {
            vectors: Group::default(),
            ..Groups::default()
        },
        ..TrainConfig::default()
    };
    let before = model();
    let mut optimizer = Optimizer::<Flex>::new(&config, before.parameters());
    let mut grads = Same(gradient, GradientsParams::new());
    visit_params(&before, &mut grads);
    let first = values(&before);
    let after = optimizer.update::<Training<Flex>, _>(before, grads.1, None, RATE);
    let pairs = values(&after).into_iter().map(|(path, after)| {
        // An element that is not 0, if there is one.
        let at = first[&path].iter().position(|x| x.abs() > 1e-3);
        let at = at.unwrap_or_default();
        let pair = (f64::from(first[&path][at]), f64::from(after[at]));
        (path, pair)
    });
    pairs.collect()
}

/// Compares a factor with the one expected of the parameter.
fn assert_factors(name: &str, found: &Change, of: impl Fn(f64, f64) -> f64, expected: [f64; 3]) {
    let [matrix, block, other] = expected;
    for (path, &(before, after)) in found {
        let is_gate = path.ends_with("values.gate");
        let is_matrix = path.starts_with("blocks") && path.ends_with(".weight") && !is_gate;
        let expected = match (is_matrix, path.starts_with("blocks")) {
            (true, _) => matrix,
            (false, true) => block,
            (false, false) => other,
        };
        let factor = of(before, after);
        let error = (factor - expected).abs() / expected;
        assert!(error < 1e-2, "{name} of {path}: {factor}, not {expected}");
    }
}

#[test]
fn rates_decay_and_epsilon_follow_the_table() {
    let complete = ParametrizationConfig::CompleteP(CompletePConfig {
        base_width: 8,
        base_layers: 2,
        ..CompletePConfig::default()
    });
    let mup = ParametrizationConfig::Mup(MupConfig {
        base_width: 8,
        ..MupConfig::default()
    });
    // Of matrices of blocks, other parameters of blocks, and all others, with m = 4 and l = 3.
    for (of, rates, decays, epsilons) in [
        (
            &complete,
            [0.25, 1.0, 1.0],
            [1.0; 3],
            [1.0 / 12.0, 1.0 / 12.0, 0.25],
        ),
        (&mup, [0.25, 1.0, 1.0], [0.25, 1.0, 1.0], [1.0; 3]),
        (
            &ParametrizationConfig::default(),
            [1.0; 3],
            [1.0; 3],
            [1.0; 3],
        ),
    ] {
        // The first update of AdamW is the rate, whatever the gradient.
        let large = change(of, 1e3, 0.0);
        assert_factors(
            "rate",
            &large,
            |before, after| (before - after) / RATE,
            rates,
        );
        // A parameter without a gradient loses rate · decay of itself, here in units of those of the base.
        let decayed = change(of, 0.0, DECAY);
        let nonzero: Change = decayed.into_iter().filter(|(_, of)| of.0 != 0.0).collect();
        let share = |before: f64, after: f64| (1.0 - after / before) / (RATE * DECAY);
        assert_factors("decay", &nonzero, share, decays);
        // A gradient g changes a parameter by rate · g / (g + ε).
        let small = change(of, EPSILON, 0.0);
        for (path, (before, after)) in small {
            let whole = large[&path].0 - large[&path].1;
            let factor = whole / (before - after) - 1.0;
            let found = Change::from([(path, (0.0, factor))]);
            assert_factors("epsilon", &found, |_, factor| factor, epsilons);
        }
    }
}

/// The root mean square of Muon's updates is the learning rate times 0.2, so its spectral norm grows with the root of the width.
#[test]
fn muon_s_rates_fall_with_the_root_of_the_width() {
    let norm_of = |parametrization: ParametrizationConfig| {
        let config = TrainConfig {
            parametrization,
            optimizer: OptimizerKind::Muon.into(),
            ..TrainConfig::default()
        };
        let before = model();
        let mut optimizer = Optimizer::<Flex>::new(&config, before.parameters());
        let mut grads = Same(1.0, GradientsParams::new());
        visit_params(&before, &mut grads);
        let first = values(&before);
        let after = values(&optimizer.update::<Training<Flex>, _>(before, grads.1, None, RATE));
        let path = "blocks.0.attention.out.weight";
        let change = after[path].iter().zip(&first[path]).map(|(a, b)| a - b);
        f64::from(change.map(|x| x * x).sum::<f32>().sqrt())
    };
    let mup = ParametrizationConfig::Mup(MupConfig {
        base_width: 8,
        ..MupConfig::default()
    });
    let ratio = norm_of(mup) / norm_of(ParametrizationConfig::default());
    assert!((ratio - 0.5).abs() < 1e-2, "{ratio}");
}
