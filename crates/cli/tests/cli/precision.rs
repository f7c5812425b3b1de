//! Matrix products in bf16, and bit-identical results for any number of threads.

use super::objectives::SMALL;
use super::support::Sandbox;
use super::support::train::{TINY, TINY_ENCODER, TINY_ENCODER_DECODER};

/// Large enough to split every kind of product into tiles for several threads.
const WIDE: &str = "--set model.d_model=128 --set model.n_layers=2 --set model.heads=4 --set model.kv_heads=2 \
    --set model.seq_len=96 --set model.feed_forward.width=384 --set train.micro_batch=6 \
    --set model.dropout=0.1 --set train.log_interval=1 --set train.evaluation.sample_tokens=0 --renderer plain";

/// Trains a few steps on `threads` threads.
fn weights_on(threads: usize, sandbox: &Sandbox, more: &str) -> (Vec<f64>, Vec<u8>) {
    let run = format!("run-{threads}{}", more.replace(' ', ""));
    let line = format!("train {WIDE} --data data --steps 4 --out {run} {more}");
    let output = sandbox
        .command(line.split_whitespace())
        .env("RAYON_NUM_THREADS", threads.to_string())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    (sandbox.losses(&run), sandbox.weights(&run, 4))
}

#[test]
fn training_is_independent_of_the_number_of_threads() {
    let sandbox = Sandbox::with_data();
    for more in ["", "--precision bf16"] {
        let one = weights_on(1, &sandbox, more);
        assert_eq!(one.0.len(), 4);
        for threads in [2, 3] {
            assert!(
                weights_on(threads, &sandbox, more) == one,
                "{threads} threads {more}"
            );
        }
    }
}

#[test]
fn bf16_learns_like_f32() {
    let sandbox = Sandbox::with_data();
    let encoder = format!("--data data --objective mlm {TINY_ENCODER} {SMALL}");
    sandbox.write_sources();
    let pair = format!(
        "--objective seq2seq --data sources.jsonl {TINY_ENCODER_DECODER} --set data.tokenizer=byte {SMALL}"
    );
    for (name, model, least) in [
        ("decoder", &format!("--data data {TINY}"), 1.0),
        ("encoder", &encoder, 0.05),
        ("pair", &pair, 4.0),
    ] {
        learns_like_f32(&sandbox, name, model, least);
    }
}

/// Checks that the loss falls by more than `least` in f32, and that bf16 reaches nearly the same loss.
fn learns_like_f32(sandbox: &Sandbox, name: &str, model: &str, least: f64) {
    let train = |precision: &str| {
        let out = format!("{name}-{precision}");
        let line = format!(
            "train {model} --steps 200 --set train.schedule.learning_rate=0.003 --set train.evaluation.interval=200 \
             --precision {precision} --out {out}"
        );
        let said = sandbox.succeeds(&line);
        let warned = said
            .stderr
            .contains("does not support matrix products in bf16");
        let evaluations = sandbox.events(&out, "evaluation");
        let loss = evaluations.last().unwrap()["loss"].as_f64().unwrap();
        (loss, sandbox.losses(&out), warned)
    };
    let (full, rounded) = (train("f32"), train("bf16"));
    assert!(full.1[0] - full.0 > least, "{name}: {full:?}");
    assert!(
        (full.0 - rounded.0).abs() < 0.02,
        "{name}: {} {}",
        full.0,
        rounded.0
    );
    // bf16 products are used if the CPU supports them; otherwise the run prints a warning.
    assert_eq!(full.1 == rounded.1, rounded.2, "{}", rounded.2);
    assert!(!full.2);
}

/// Of weights in f32, and of those that stay in bf16.
#[test]
fn a_model_is_evaluated_and_continued_in_bf16() {
    let sandbox = Sandbox::with_data();
    sandbox.trains("--preset char-nano --data data --out run --set train.steps=20");
    sandbox.succeeds("export run --out half --dtype bf16");
    for model in ["run", "half"] {
        let eval = |more: &str| {
            let ran = sandbox.succeeds(&format!("eval {model} --data data --json {more}"));
            let found: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
            (found["loss"].as_f64().unwrap(), ran.stderr)
        };
        let (full, rounded) = (eval("--precision f32"), eval("--precision bf16"));
        assert_eq!(eval("").0, full.0, "{model}");
        assert!(
            (rounded.0 / full.0 - 1.0).abs() < 0.01,
            "{model}: {rounded:?}"
        );
        let warned = |said: &str| said.contains("does not support matrix products in bf16");
        assert!(!warned(&full.1), "{}", full.1);
        assert_eq!(
            rounded.0 == full.0,
            warned(&rounded.1),
            "{model}: {rounded:?}"
        );
        let line = format!(
            "generate {model} --prompt 12 --max-new-tokens 5 --temperature 0 --precision bf16"
        );
        assert!(!sandbox.succeeds(&line).stdout.is_empty());
    }
    // Neither the weights nor the program change: f16 is not for this backend.
    let ran = sandbox.succeeds("eval run --data data --precision f16");
    ran.says("flex does not support matrix products in f16; they are computed in f32");
}

#[cfg(feature = "ndarray")]
#[test]
fn a_backend_without_bf16_prints_a_warning() {
    let sandbox = Sandbox::with_data();
    let train = |precision: &str| {
        let line = format!(
            "train {TINY} --data data --steps 3 --precision {precision} --out {precision} --backend ndarray"
        );
        let ran = sandbox.succeeds(&line);
        (ran.stderr, sandbox.losses(precision))
    };
    let (full, rounded) = (train("f32"), train("bf16"));
    let expected = "does not support matrix products in bf16; they are computed in f32";
    assert!(rounded.0.contains(expected), "{}", rounded.0);
    assert!(!full.0.contains(expected));
    assert_eq!(full.1, rounded.1);
}
