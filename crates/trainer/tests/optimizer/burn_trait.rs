//! The optimizer through Burn's trait: the same updates, and a record that survives serialization.

use burn::optim::{MultiGradientsParams, Optimizer as BurnOptimizer};
use burn::record::{BinBytesRecorder, FullPrecisionSettings, Recorder};
use burn::tensor::backend::DeviceOps;
use burn_flex::Flex;
use emberlm_model::Transformer;
use emberlm_trainer::OptimizerKind;

use crate::optimizer::fixture::{
    Training, config, gradients, optimizer, rates, start, updated, values,
};

type B = Training<Flex>;

/// Some of the ten updates, through Burn's optimizer trait.
fn stepped<O: BurnOptimizer<Transformer<B>, B>>(
    optimizer: &mut O,
    mut decoder: Transformer<B>,
    steps: std::ops::Range<usize>,
) -> Transformer<B> {
    for step in steps {
        let grads = gradients(&decoder, step, 1.0);
        decoder = optimizer.step(rates()[step], decoder, grads);
    }
    decoder
}

#[test]
fn burn_trait_steps_match_direct_updates() {
    for kind in OptimizerKind::ALL {
        let config = config(kind, true);
        let expected = values(&updated(&mut optimizer(&config), start::<Flex>(), 0..10));
        let mut first = optimizer::<Flex>(&config);
        let decoder = stepped(&mut first, start::<Flex>(), 0..4);
        // Through bytes, into a new optimizer.
        let recorder = BinBytesRecorder::<FullPrecisionSettings>::default();
        let record = BurnOptimizer::<Transformer<B>, B>::to_record(&first);
        let bytes = Recorder::<B>::record(&recorder, record, ()).unwrap();
        let record = Recorder::<B>::load(&recorder, bytes, &Default::default()).unwrap();
        let resumed = optimizer::<Flex>(&config);
        let mut resumed = BurnOptimizer::<Transformer<B>, B>::load_record(resumed, record);
        let decoder = stepped(&mut resumed, decoder, 4..10);
        assert_eq!(values(&decoder), expected, "{kind:?}");
    }
}

#[test]
fn gradients_of_several_devices_are_summed() {
    let config = config(OptimizerKind::AdamW, false);
    let whole = stepped(&mut optimizer::<Flex>(&config), start::<Flex>(), 0..1);
    let decoder = start::<Flex>();
    let device = <Flex as burn::tensor::backend::BackendTypes>::Device::default().id();
    let halves = [0.5, 0.5].map(|factor| (gradients(&decoder, 0, factor), device));
    let grads = MultiGradientsParams {
        grads: halves.into(),
    };
    let mut first = optimizer::<Flex>(&config);
    let decoder = first.step_multi(rates()[0], decoder, grads);
    assert_eq!(values(&decoder), values(&whole));
}
