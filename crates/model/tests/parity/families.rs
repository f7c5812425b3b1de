//! Compares Hugging Face directories written by `transformers` with its results: logits, loss, greedy continuation,
//! and, for one directory per model type, every gradient. `fixtures/make_families.py` generates them.

use std::path::PathBuf;

use burn::backend::Autodiff;
use burn::module::AutodiffModule;
use burn::tensor::Device;
use emberlm_kernels::Backend;
use emberlm_model::TrainingPass;
use emberlm_model::hugging_face::HuggingFaceModel;

use crate::decoder::gradients::one_at_a_time;
use crate::parity::checks::{
    Batch, GRADIENT, LOSS, STEP, check_gradients, check_greedy, check_mean, host, relative, slack,
    within,
};
use crate::parity::fixture::Fixture;
use crate::parity::optimize::Trainer;

// docs/results.md lists measured errors. `transformers` computes norms and angles in float32.
const LOGITS: f64 = 3e-6;

pub fn check<B: Backend>(name: &str, device: &Device<B>) {
    let _guard = one_at_a_time();
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/families");
    let folder = folder.join(name);
    let fixture = Fixture::read(folder.join("expected.safetensors"));
    let model = HuggingFaceModel::open(&folder).unwrap();
    let decoder = model.decoder::<Autodiff<B>>(device).unwrap();
    let batch = Batch::<Autodiff<B>>::of(&fixture, device);

    let config = model.config();
    let factor = slack(config);
    let [logits_within, gradient, step] = [LOGITS, GRADIENT, STEP].map(|of| factor * of);
    let logits = host(decoder.forward(batch.input.clone()));
    let error = relative(&logits, &fixture.floats("logits"));
    within("logits", error, logits_within);
    check_greedy(&fixture, &decoder.valid());
    check_mean(&fixture, &decoder, batch.input.clone());

    let loss = batch.loss(&decoder);
    let error = host(loss.clone())[0] / fixture.floats("loss")[0] - 1.0;
    within("loss", f64::from(error.abs()), LOSS);
    if fixture.names("grad.").is_empty() {
        return;
    }
    let source = |path: &str| config.family().source(config, path);
    if fixture.has("aux_loss") {
        for recompute in [false, true] {
            let pass = TrainingPass {
                recompute,
                ..TrainingPass::default()
            };
            let made = decoder.gradients_with_routers(
                batch.input.clone(),
                pass,
                config.router_coefficients(),
                |hidden| batch.loss_of(&decoder, hidden),
            );
            let coefficient = config.router_coefficients().balance as f32;
            let found = host(made.router_loss.unwrap())[0] / coefficient;
            let error = found / fixture.floats("aux_loss")[0] - 1.0;
            within("balance loss", f64::from(error.abs()), LOSS);
            check_gradients(&fixture, &decoder, &made.gradients, source, gradient);
        }
    } else {
        check_gradients(&fixture, &decoder, &loss.backward(), source, gradient);
    }
    if fixture.has("adamw_losses") {
        Trainer::new(decoder, &fixture).check_steps(&fixture, &batch, step);
    }
}
