//! Optimizers, parameter groups and auxiliary loss terms in training runs.

use std::fs;

use serde_json::Value;

use super::support::Sandbox;

#[test]
fn accumulation_equals_the_large_batch_for_every_optimizer_and_loss_term() {
    let sandbox = Sandbox::with_data();
    // Eigenvectors of SOAP's means whose eigenvalues are near 0 depend on rounding. Measured: 7e-4.
    for (optimizer, tolerance) in [
        ("adamw", 1e-4),
        ("muon", 1e-4),
        ("normuon", 1e-4),
        ("soap", 3e-3),
        ("lion", 1e-4),
    ] {
        let line = format!(
            "--data data --steps 6 --set train.optimizer.kind={optimizer} --set train.schedule.warmup_steps=0 \
            --set train.loss.label_smoothing=0.1 --set train.loss.z_loss=1e-3 --set train.micro_batch"
        );
        sandbox.trains(&format!("{line}=6 --out {optimizer}-whole"));
        sandbox.trains(&format!(
            "{line}=2 --accumulation 3 --out {optimizer}-parts"
        ));
        let whole = sandbox.losses(&format!("{optimizer}-whole"));
        let parts = sandbox.losses(&format!("{optimizer}-parts"));
        assert!(whole[5] < whole[0], "{whole:?}");
        for (a, b) in whole.iter().zip(&parts) {
            assert!(
                (a - b).abs() < tolerance,
                "{optimizer}: {whole:?}\n{parts:?}"
            );
        }
    }
}

#[test]
fn auxiliary_loss_terms_only_affect_training() {
    let sandbox = Sandbox::with_data();
    // A learning rate of 0 keeps both runs' weights equal.
    let line = "--data data --steps 2 --set train.schedule.learning_rate=0 --set train.schedule.min_learning_rate=0";
    sandbox.trains(&format!("{line} --out plain"));
    sandbox.trains(&format!("{line} --set train.loss.z_loss=0.1 --out z"));
    let evaluation = |run| {
        sandbox.events(run, "evaluation")[0]["loss"]
            .as_f64()
            .unwrap()
    };
    assert_eq!(evaluation("plain"), evaluation("z"));
    let manifest = sandbox.text("data/dataset.json");
    let manifest: Value = serde_json::from_str(&manifest).unwrap();
    let vocab_size = manifest["tokenizer"]["vocab_size"].as_f64().unwrap();
    // `ln Σ exp x` equals the log of the vocabulary size if all logits are 0, and is slightly larger if they
    // are small.
    let least = 0.1 * vocab_size.ln().powi(2);
    for (plain, z) in sandbox.losses("plain").iter().zip(sandbox.losses("z")) {
        let added = z - plain;
        assert!((1.0..1.3).contains(&(added / least)), "{added} of {least}");
    }
}

#[test]
fn optimizers_other_than_adamw_learn() {
    let sandbox = Sandbox::with_data();
    for (optimizer, rate) in [
        ("muon", "1e-2"),
        ("normuon", "1e-2"),
        ("soap", "3e-3"),
        ("lion", "1e-3"),
    ] {
        let line = format!(
            "--data data --out {optimizer} --steps 60 --set train.optimizer.kind={optimizer} \
            --set train.schedule.learning_rate={rate} --set train.schedule.warmup_steps=5"
        );
        sandbox.trains(&line);
        let losses = sandbox.losses(optimizer);
        assert!(
            losses[0] > 2.5 && losses[59] < 0.8 * losses[0],
            "{optimizer}: {losses:?}"
        );
    }
}

#[test]
fn parameter_groups_have_individual_learning_rates() {
    let sandbox = Sandbox::with_data();
    let line = "--data data --steps 1 --set train.schedule.warmup_steps=0 --set train.groups.embeddings.rate=0";
    sandbox.trains(&format!("{line} --out run"));
    let still = "--set train.schedule.learning_rate=0 --set train.schedule.min_learning_rate=0";
    sandbox.trains(&format!("{line} {still} --out still"));
    let (run, still) = (sandbox.weights("run", 1), sandbox.weights("still", 1));
    let [run, still] =
        [&run, &still].map(|bytes| safetensors::SafeTensors::deserialize(bytes).unwrap());
    for (name, tensor) in run.tensors() {
        let stays = tensor.data() == still.tensor(&name).unwrap().data();
        assert_eq!(stays, name == "tokens", "{name}");
    }
}

#[test]
fn every_optimizer_resumes_bit_exactly() {
    let sandbox = Sandbox::with_data();
    for optimizer in ["muon", "normuon", "soap", "lion"] {
        let line = format!(
            "--data data --set train.optimizer.kind={optimizer} --set train.optimizer.cautious_decay=true \
            --set train.decay_schedule.kind=learning_rate --set train.schedule.kind=warmup_stable_decay \
            --set train.schedule.decay_steps=10 --set train.schedule.cooldown_steps=4 --set train.schedule.warmup_steps=2 \
            --set train.ema=0.9 --set train.loss.label_smoothing=0.1 --set train.skip.kind=outliers \
            --set train.skip.deviations=3 --set train.skip.window=3 --set train.groups.head.rate=0.5"
        );
        let [whole, parts] = ["whole", "parts"].map(|name| format!("{optimizer}-{name}"));
        sandbox.trains(&format!("{line} --out {whole} --steps 10"));
        sandbox.trains(&format!("{line} --out {parts} --steps 5"));
        let resumed = format!("train --resume {parts} --steps 10 --renderer plain");
        sandbox.succeeds(&resumed);
        assert_eq!(sandbox.losses(&whole), sandbox.losses(&parts));
        for file in ["model", "training", "optimizer"] {
            let read = |run: &str| {
                let folder = sandbox.path(run).join("checkpoints/step-00000010");
                fs::read(folder.join(format!("{file}.safetensors"))).unwrap()
            };
            assert!(read(&whole) == read(&parts), "{optimizer}: {file}");
        }
    }
}
