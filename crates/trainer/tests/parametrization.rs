//! Coordinate checks (Yang et al. 2022, appendix D.1): after some steps, activations grow with the size of a model in the
//! standard parametrization, and not in µP and CompleteP.

use std::ops::Range;

use burn::backend::Autodiff;
use burn_flex::Flex;
use emberlm_trainer::config::{
    CompletePConfig, ConstantConfig, MupConfig, ParametrizationConfig, ScheduleConfig,
};
use emberlm_trainer::events::{self, Event};
use emberlm_trainer::{OptimizerKind, RunConfig};

use crate::common::{TestFolder, train};

type Training = Autodiff<Flex>;

/// Steps after which activations are measured, before the update of the next one.
const STEPS: usize = 9;

/// The root mean square of the residual stream after the last block, after some steps of training.
fn activation(place: &TestFolder, out: &str, mut config: RunConfig) -> f64 {
    let last = format!("blocks.{}", config.model.n_layers - 1);
    config.train.steps = STEPS;
    config.train.micro_batch = 4;
    config.train.clip_norm = 0.0;
    config.train.norms_interval = STEPS;
    train::<Training>(place, config, out).unwrap();
    let events = events::read(&place.path(out)).unwrap().events;
    let layers = events.iter().find_map(|event| match event {
        Event::Norms { layers, .. } => Some(layers),
        _ => None,
    });
    let mut layers = layers.unwrap().iter();
    let last = layers.find(|layer| layer.layer == last).unwrap();
    last.activation.unwrap()
}

/// A model of `d_model` and `n_layers` with heads of width 16.
fn sized(
    place: &TestFolder,
    [d_model, n_layers]: [usize; 2],
    rate: f64,
    optimizer: OptimizerKind,
    parametrization: &ParametrizationConfig,
) -> RunConfig {
    let mut config = place.config();
    let model = &mut config.model;
    (model.d_model, model.n_layers) = (d_model, n_layers);
    (model.heads, model.head_dim) = (d_model / 16, None);
    model.feed_forward.width = Some(2 * d_model);
    config.train.schedule = ScheduleConfig::Constant(ConstantConfig {
        learning_rate: rate,
        warmup_steps: 0,
    });
    config.train.optimizer = optimizer.into();
    config.train.parametrization = parametrization.clone();
    config
}

/// The activation of the largest model over that of the smallest.
fn growth(
    name: &str,
    sizes: &[[usize; 2]],
    rate: f64,
    optimizer: OptimizerKind,
    parametrization: &ParametrizationConfig,
) -> f64 {
    let place = TestFolder::new(0);
    let found: Vec<f64> = sizes
        .iter()
        .map(|&size| {
            let config = sized(&place, size, rate, optimizer, parametrization);
            activation(&place, &format!("{}-{}", size[0], size[1]), config)
        })
        .collect();
    println!("{name}: {found:.3?}");
    found[found.len() - 1] / found[0]
}

const WIDTHS: [[usize; 2]; 3] = [[64, 2], [128, 2], [256, 2]];
const DEPTHS: [[usize; 2]; 3] = [[32, 2], [32, 6], [32, 18]];

fn mup() -> ParametrizationConfig {
    ParametrizationConfig::Mup(MupConfig {
        base_width: 64,
        ..MupConfig::default()
    })
}

fn complete_p(base_width: usize) -> ParametrizationConfig {
    ParametrizationConfig::CompleteP(CompletePConfig {
        base_width,
        base_layers: 2,
        ..CompletePConfig::default()
    })
}

/// Asserts that activations grow with the width at least as `least` in the standard parametrization, and as `rest` in others.
fn check_widths(
    optimizer: OptimizerKind,
    least: f64,
    rest: Range<f64>,
    others: &[(&str, ParametrizationConfig)],
) {
    let of = |name, of: &ParametrizationConfig| growth(name, &WIDTHS, 1e-2, optimizer, of);
    let standard = of("standard", &ParametrizationConfig::default());
    assert!(standard > least, "{standard}");
    for (name, parametrization) in others {
        let grown = of(name, parametrization);
        assert!(rest.contains(&grown), "{name}: {grown}");
    }
}

#[test]
fn activations_do_not_grow_with_the_width() {
    let others = [("mup", mup()), ("complete_p", complete_p(64))];
    check_widths(OptimizerKind::AdamW, 2.0, 0.6..1.6, &others);
}

#[test]
fn activations_do_not_grow_with_the_width_under_muon() {
    check_widths(OptimizerKind::Muon, 1.3, 0.6..1.6, &[("mup", mup())]);
}

/// The range is wider than for the others, since SOAP depends on rounding. Measured: 700 and 0.7.
#[test]
fn activations_do_not_grow_with_the_width_under_soap() {
    check_widths(OptimizerKind::Soap, 10.0, 0.4..2.0, &[("mup", mup())]);
}

#[test]
fn activations_do_not_grow_with_the_depth() {
    let of =
        |name, of: &ParametrizationConfig| growth(name, &DEPTHS, 1e-2, OptimizerKind::AdamW, of);
    let standard = of("standard", &ParametrizationConfig::default());
    let complete = of("complete_p", &complete_p(32));
    assert!(standard > 2.0, "{standard}");
    assert!((0.6..1.6).contains(&complete), "{complete}");
}
