//! `train --overfit-batch`: a run on its first batch only.

use super::support::Sandbox;

const LINE: &str = "--data data --overfit-batch --set train.schedule.kind=constant";

#[test]
fn the_loss_approaches_zero() {
    let sandbox = Sandbox::with_data();
    let ran = sandbox.trains(&format!(
        "{LINE} --steps 150 --set train.schedule.learning_rate=1e-2 --set train.evaluation.interval=1000 --out run"
    ));
    ran.says(" 150 steps of 4 × 32 = 128 tokens, the same in each step");
    let losses = sandbox.losses("run");
    let (first, last) = (losses[0], losses[149]);
    assert!(first > 2.0 && last < 0.1, "{first} {last}");
    // The validation loss does not.
    let evaluated = &sandbox.events("run", "evaluation")[0];
    assert!(evaluated["loss"].as_f64().unwrap() > 1.0, "{evaluated}");
    let tokens = &sandbox.events("run", "step")[149]["tokens"];
    assert_eq!(tokens.as_u64(), Some(150 * 128));
}

#[test]
fn every_step_has_the_same_batch() {
    let sandbox = Sandbox::with_data();
    let line = "--accumulation 3 --steps 4 --set train.schedule.learning_rate=0 --set train.schedule.kind=constant";
    sandbox.trains(&format!("--data data {line} --out all"));
    sandbox.trains(&format!("--data data {line} --overfit-batch --out one"));
    let (all, one) = (sandbox.losses("all"), sandbox.losses("one"));
    assert_eq!(one, vec![all[0]; 4]);
    assert!(all[1] != all[0] && all[2] != all[1], "{all:?}");
}

#[test]
fn records_are_repeated_too() {
    let sandbox = Sandbox::with_data();
    let lines =
        (0..60).map(|i| format!("{{\"text\": \"number {i}\", \"label\": \"{}\"}}\n", i % 3));
    sandbox.write("labelled.jsonl", lines.collect::<String>());
    let ran = sandbox.succeeds(
        "train --data labelled.jsonl --objective classify --overfit-batch --steps 3 --batch-size 4 \
         --set data.tokenizer=byte --set train.schedule.kind=constant --set train.schedule.learning_rate=0 \
         --set train.log_interval=1 --set model.dropout=0 --set model.architecture.attention_dropout=0 \
         --renderer plain --out run",
    );
    ran.says("3 steps of 4 = 4 texts, the same in each step");
    ran.says("ln 3 = 1.099: the loss of a model that gives every label the same probability");
    let losses = sandbox.losses("run");
    assert_eq!(losses, vec![losses[0]; 3]);
}

#[test]
fn resuming_equals_a_longer_run() {
    let sandbox = Sandbox::with_data();
    let line = format!("{LINE} --accumulation 2");
    sandbox.trains(&format!("{line} --steps 8 --out long"));
    sandbox.trains(&format!("{line} --steps 3 --out run"));
    sandbox.succeeds("train --resume run --steps 8 --renderer plain");
    assert_eq!(sandbox.losses("long"), sandbox.losses("run"));
    assert!(sandbox.checkpoint("long", 8) == sandbox.checkpoint("run", 8));
    // A run on all data is another run.
    let message =
        sandbox.refusal("train --resume run --renderer plain --set train.overfit_batch=false");
    assert!(
        message.contains("train.overfit_batch was true and now is false"),
        "{message}"
    );
}

#[test]
fn settings_that_keep_the_loss_up_are_named() {
    let sandbox = Sandbox::with_data();
    let noisy = "--steps 1 --set model.dropout=0.2 --set train.loss.label_smoothing=0.1";
    let ran = sandbox.trains(&format!("{LINE} {noisy} --out noisy"));
    ran.says(
        "model.dropout = 0.2 and train.loss.label_smoothing = 0.1 can keep the loss above 0; to test without: \
         --set model.dropout=0 --set train.loss.label_smoothing=0",
    );
    let ran = sandbox.trains(&format!("--data data {noisy} --out all"));
    assert!(!ran.stderr.contains("above 0"), "{ran}");
}

#[test]
fn unsupported_combinations_are_refused() {
    Sandbox::with_data().check_messages("overfit_batch");
}

#[test]
fn the_loss_without_knowledge_is_printed_above_the_first() {
    let sandbox = Sandbox::with_data();
    let ran = sandbox.trains("--data data --steps 2 --out run");
    let expected = "ln 18 = 2.890: the loss of a model that gives every token the same probability";
    let stderr = &ran.stderr;
    let place = |part: &str| {
        stderr
            .find(part)
            .unwrap_or_else(|| panic!("{part}: {stderr}"))
    };
    assert!(place(expected) < place("step 1/2  loss "), "{stderr}");
    let begun = &sandbox.events("run", "begun")[0];
    assert!(
        (begun["uniform_loss"].as_f64().unwrap() - 18f64.ln()).abs() < 1e-12,
        "{begun}"
    );
    // A resumed run prints no first loss.
    let ran = sandbox.succeeds("train --resume run --steps 3 --renderer plain");
    assert!(!ran.stderr.contains("ln 18"), "{ran}");
}
