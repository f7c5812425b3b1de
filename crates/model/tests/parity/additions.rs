//! Value embeddings and the mix of the residual stream, compared with PyTorch: logits, every gradient with and without
//! recomputation, and a greedy continuation with a cache. `fixtures/make_additions.py` makes the fixture.

use burn::backend::Autodiff;
use burn::module::AutodiffModule;
use burn::tensor::Device;
use burn_flex::Flex;
use burn_ndarray::NdArray;
use emberlm_kernels::Backend;
use emberlm_model::weights::map::Source;
use emberlm_model::weights::{SafetensorsStore, load_named};
use emberlm_model::{ModelConfig, TrainingPass, TransformerConfig};

use crate::decoder::gradients::one_at_a_time;
use crate::parity::checks::{
    Batch, GRADIENT, LOSS, check_gradients, check_greedy, host, relative, within,
};
use crate::parity::fixture::Fixture;

const LOGITS: f64 = 2e-6;

fn check<B: Backend>(device: &Device<B>) {
    let _guard = one_at_a_time();
    let fixture = Fixture::open("additions");
    let model: ModelConfig = serde_json::from_value(fixture.json("model")).unwrap();
    let config = TransformerConfig::try_from(model).unwrap();
    let store = SafetensorsStore::open(&fixture.path)
        .unwrap()
        .below("weight.");
    let own = |path: &str| Some(Source::as_is(path));
    let decoder = config.init::<Autodiff<B>>(0, device);
    let decoder = load_named(decoder, &store, own).unwrap();
    let batch = Batch::<Autodiff<B>>::of(&fixture, device);

    let logits = host(decoder.forward(batch.input.clone()));
    let error = relative(&logits, &fixture.floats("logits"));
    within("logits", error, LOGITS);
    for recompute in [false, true] {
        let pass = TrainingPass {
            recompute,
            ..TrainingPass::default()
        };
        let (loss, gradients) = decoder.gradients(batch.input.clone(), pass, |hidden| {
            batch.loss_of(&decoder, hidden)
        });
        let error = (f64::from(host(loss)[0]) / fixture.loss() - 1.0).abs();
        within("loss", error, LOSS);
        check_gradients(&fixture, &decoder, &gradients, own, GRADIENT);
    }
    check_greedy(&fixture, &decoder.valid());
}

#[test]
fn additions_equal_those_of_pytorch_on_flex() {
    check::<Flex>(&Default::default());
}

#[test]
fn additions_equal_those_of_pytorch_on_ndarray() {
    check::<NdArray>(&Default::default());
}
