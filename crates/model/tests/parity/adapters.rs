//! Compares adapters that PEFT wrote with PEFT's results: logits, loss, every gradient, ten AdamW steps, merged weights,
//! and the files that are written again. `fixtures/make_adapters.py` generates them.

use std::path::PathBuf;

use burn::backend::Autodiff;
use burn::module::AutodiffModule;
use burn::tensor::Device;
use emberlm_kernels::Backend;
use emberlm_model::adapter::{ADAPTER_WEIGHTS_FILE, PeftAdapter, write_peft};
use emberlm_model::hugging_face::{ExportOptions, HuggingFaceModel, export};
use emberlm_model::weights::{Element, load_tensors, named_tensors, published};

use crate::decoder::gradients::one_at_a_time;
use crate::parity::checks::{Batch, LOSS, STEP, check_gradients, host, relative, within};
use crate::parity::fixture::Fixture;
use crate::parity::optimize::Trainer;

const LOGITS: f64 = 3e-6;
// The gradients of the magnitudes of GPT-2's keys are sums that nearly cancel.
const GRADIENT: f64 = 1e-4;

pub fn check<B: Backend>(name: &str, device: &Device<B>) {
    let _guard = one_at_a_time();
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/adapters");
    let folder = folder.join(name);
    let fixture = Fixture::read(folder.join("expected.safetensors"));
    let base = HuggingFaceModel::open(&folder.join("base")).unwrap();
    let adapter = PeftAdapter::open(&folder).unwrap();
    let decoder = base.decoder::<Autodiff<B>>(device).unwrap();
    let decoder = adapter.add_to(decoder).unwrap();
    let batch = Batch::<Autodiff<B>>::of(&fixture, device);
    let expected = fixture.floats("logits");

    let logits = host(batch.logits(&decoder));
    within("logits", relative(&logits, &expected), LOGITS);
    let loss = batch.loss(&decoder);
    let error = host(loss.clone())[0] / fixture.floats("loss")[0] - 1.0;
    within("loss", f64::from(error.abs()), LOSS);

    let written = tempfile::tempdir().unwrap();
    write_peft(&decoder, adapter.config(), "base", written.path()).unwrap();
    let of = |folder: &std::path::Path| {
        let mut tensors = load_tensors(&folder.join(ADAPTER_WEIGHTS_FILE)).unwrap();
        tensors.sort_by(|(a, _), (b, _)| a.cmp(b));
        tensors
    };
    assert_eq!(of(written.path()), of(&folder), "written as PEFT writes it");
    let again = PeftAdapter::open(written.path()).unwrap();
    let again = again.add_to(base.decoder::<B>(device).unwrap()).unwrap();
    for ((path, a), (_, b)) in named_tensors(&again)
        .iter()
        .zip(named_tensors(&decoder.valid()))
    {
        assert_eq!(*a, b, "{path} is read as it was written");
    }

    let unmerged = export(&decoder.valid(), written.path(), &ExportOptions::default());
    let refused = unmerged.unwrap_err().to_string();
    assert!(refused.contains("has an adapter"), "{refused}");
    let inference = Batch::<B>::of(&fixture, device);
    let fused = decoder.valid().with_fused_adapters();
    let logits = host(inference.logits(&fused));
    within(
        "logits of fused adapters",
        relative(&logits, &expected),
        LOGITS,
    );
    let removed = host(inference.logits(&decoder.valid().without_adapter()));
    let original = host(inference.logits(&base.decoder::<B>(device).unwrap()));
    assert_eq!(removed, original, "the base model is restored");
    let merged = decoder.valid().merged();
    assert!(!merged.has_adapter());
    let logits = host(inference.logits(&merged));
    within(
        "logits of merged weights",
        relative(&logits, &expected),
        LOGITS,
    );
    let config = base.config();
    let source = |path: &str| config.family().source(config, path);
    let weights = published(&merged, Element::F32, source);
    for name in fixture.names("merged.") {
        let found = weights.iter().find(|tensor| tensor.name() == name);
        let found = found.unwrap().values().values;
        let expected = fixture.floats(&format!("merged.{name}"));
        within(&name, relative(&found, &expected), LOGITS);
    }

    // Only adapters have gradients: the sources do not name another parameter.
    let sources = decoder.peft_sources();
    let source = |path: &str| sources.get(path).cloned();
    let gradients = loss.backward();
    check_gradients(&fixture, &decoder, &gradients, source, GRADIENT);
    for path in decoder.parameters().iter().filter(|of| of.trainable) {
        assert!(sources.contains_key(&path.path), "{} is frozen", path.path);
    }
    Trainer::new(decoder, &fixture).check_steps(&fixture, &batch, STEP);
}
