//! Inputs of training and evaluation: dataset mixes, isolated documents, masked targets, prefetched batches.

use std::fs;

use serde_json::{Value, json};

use super::support::model::{tiny, write_run};
use super::support::{AssertText, CommandOutput, Sandbox, close};

/// Byte datasets of numbered lines, one file per document.
fn with_datasets(names: &[&str]) -> Sandbox {
    let sandbox = Sandbox::new();
    for name in names {
        for file in 0..12 {
            let line = |i: usize| format!("{name} {} ", file * 7 + i * 3);
            let text: String = (0..10 + 5 * file).map(line).collect();
            sandbox.write(&format!("texts/{name}/{file:02}.txt"), text);
        }
        let line = format!("prepare texts/{name} --out {name} --tokenizer byte");
        sandbox.ok(&line);
    }
    sandbox
}

/// Adds a loss mask to every shard of a dataset. `learnt` selects the token positions of a split that count.
fn mask(sandbox: &Sandbox, data: &str, learnt: impl Fn(u64) -> bool) {
    sandbox.edit(format!("{data}/dataset.json"), |manifest| {
        for split in ["train", "val"] {
            let shard = &mut manifest["splits"][split]["shards"][0];
            let tokens = shard["tokens"].as_u64().unwrap();
            let bytes: Vec<u8> = (0..tokens).map(|at| u8::from(learnt(at))).collect();
            let file = format!("{split}.mask");
            let count = bytes.iter().filter(|&&byte| byte == 1).count();
            let hash = blake3::hash(&bytes).to_hex();
            shard["mask"] = json!({ "file": file, "learnt": count, "blake3": hash.as_str() });
            sandbox.write(&format!("{data}/{file}"), bytes);
        }
    });
}

#[track_caller]
fn refused(ran: CommandOutput) -> String {
    let message = ran.refusal();
    message.assert_has("hint: ");
    message
}

#[test]
fn a_mix_resumes_at_the_same_position() {
    let sandbox = with_datasets(&["a", "b"]);
    let line = "--data a=0.7 b=0.3 --set train.schedule.decay_steps=50 --set train.schedule.warmup_steps=2";
    sandbox.trains(&format!("{line} --out long --steps 8"));
    sandbox.trains(&format!("{line} --out run --steps 5"));
    // Resumes with moved datasets and a different number of threads.
    fs::rename(sandbox.path("a"), sandbox.path("c")).unwrap();
    let resume = "train --resume run --steps 8 --renderer plain";
    sandbox.succeeds(&format!(
        "{resume} --data c=0.7 b=0.3 --set train.loader_workers=3"
    ));
    assert_eq!(sandbox.losses("long"), sandbox.losses("run"));
    assert_eq!(sandbox.weights("long", 8), sandbox.weights("run", 8));
    let message = refused(sandbox.words(&format!("{resume} --data c=0.6 b=0.4")));
    let expected =
        "data.mix.0.weight was 0.7 and now is 0.6; data.mix.1.weight was 0.3 and now is 0.4";
    message.assert_has(expected);
    let message = refused(sandbox.words(&format!("{resume} --data b=0.7 c=0.3")));
    message.assert_has("b: its train split");
}

/// Stages change the weights. Also forks with the same past continue in the data, and others read it from its beginning.
#[test]
fn a_mix_whose_weights_change_resumes_and_forks_at_the_same_position() {
    let sandbox = with_datasets(&["a", "b"]);
    let stages = |stages: &str| {
        let schedule = "train.schedule.decay_steps=50 --set train.schedule.warmup_steps=2";
        format!("--set {schedule} --set train.stages=[{stages}]")
    };
    let data = "--data a=0.7 b=0.3";
    let staged = stages("{step=3,weights=[0,1]},{step=6,weights=[1,1],accumulation=2}");
    sandbox.trains(&format!("{data} {staged} --out long --steps 9"));
    for stopped in [3, 5] {
        let run = format!("run{stopped}");
        sandbox.trains(&format!("{data} {staged} --out {run} --steps {stopped}"));
        sandbox.succeeds(&format!(
            "train --resume {run} --steps 9 --renderer plain --set train.loader_workers=3"
        ));
        assert_eq!(sandbox.losses("long"), sandbox.losses(&run));
        assert_eq!(sandbox.weights("long", 9), sandbox.weights(&run, 9));
    }
    let resume = "train --resume run5 --renderer plain --steps 10";
    let message = refused(sandbox.words(&format!("{resume} --set train.stages=[]")));
    message.assert_has("train.stages.0.weights was [0.0,1.0]");

    // A fork adds the second change.
    let first = stages("{step=3,weights=[0,1]}");
    sandbox.trains(&format!("{data} {first} --out short --steps 5"));
    let fixed = stages("");
    sandbox.trains(&format!("{data} {fixed} --out fixed --steps 5"));
    let [short, fixed] = ["short", "fixed"].map(|run| sandbox.losses(run));
    assert!(short[..3] == fixed[..3] && short[3] != fixed[3]);
    let fork = "train --resume short/checkpoints/5 --renderer plain --steps 9";
    let ran = sandbox.succeeds(&format!("{fork} {staged} --out added"));
    assert!(!ran.stderr.contains("from its beginning"), "{ran}");
    assert_eq!(sandbox.losses("long"), sandbox.losses("added"));
    let other = stages("{step=2,weights=[0,1]}");
    let ran = sandbox.succeeds(&format!("{fork} {other} --out other"));
    ran.says(
        "the data is read from its beginning: the order of the datasets before step 5 has changed",
    );
    let ran = sandbox.succeeds(&format!("{fork} {first} --batch-size 3 --out batch"));
    ran.says("from its beginning: the order of the datasets before step 5 has changed");
}

#[test]
fn a_transition_between_weights_resumes_and_forks_within_it() {
    let sandbox = with_datasets(&["a", "b"]);
    let run = |transition: usize| {
        let schedule = "train.schedule.decay_steps=50 --set train.schedule.warmup_steps=2";
        let stage = format!("{{step=2,weights=[0,1],transition={transition}}}");
        format!("--set {schedule} --set train.stages=[{stage}]")
    };
    let data = "--data a=0.7 b=0.3";
    let slow = run(6);
    sandbox.trains(&format!("{data} {slow} --out long --steps 10"));
    for stopped in [2, 5, 8] {
        let run = format!("run{stopped}");
        sandbox.trains(&format!("{data} {slow} --out {run} --steps {stopped}"));
        sandbox.succeeds(&format!("train --resume {run} --steps 10 --renderer plain"));
        assert_eq!(sandbox.losses("long"), sandbox.losses(&run));
        assert_eq!(sandbox.weights("long", 10), sandbox.weights(&run, 10));
    }
    // The steps before the stage are the same, and those in it are others.
    let at_once = run(0);
    sandbox.trains(&format!("{data} {at_once} --out short --steps 5"));
    let [long, short] = ["long", "short"].map(|run| sandbox.losses(run));
    assert!(long[..2] == short[..2] && long[2..5] != short[2..5]);
    let fork = "train --resume run5/checkpoints/5 --renderer plain --steps 6";
    let ran = sandbox.succeeds(&format!("{fork} {} --out other", run(5)));
    ran.says(
        "the data is read from its beginning: the order of the datasets before step 5 has changed",
    );
}

#[test]
fn a_mix_is_validated_on_each_dataset() {
    let sandbox = with_datasets(&["a", "b"]);
    let ran = sandbox.trains("--data a=3 --data b=1 --out run --steps 2");
    let last = &sandbox.events("run", "evaluation")[0];
    let datasets = last["datasets"].as_array().unwrap();
    let names: Vec<&Value> = datasets.iter().map(|of| &of["dataset"]).collect();
    assert_eq!(names, ["a", "b"]);
    let loss = |at: usize| datasets[at]["loss"].as_f64().unwrap();
    let mean = json!(0.75 * loss(0) + 0.25 * loss(1));
    close(&last["loss"], &mean, 1e-12);
    let shown = format!("  a {:.4}  b {:.4}", loss(0), loss(1));
    ran.says(&shown);
    // The losses equal those of `eval` on each dataset.
    for (of, name) in datasets.iter().zip(["a", "b"]) {
        let found: Value = sandbox.json(&format!("eval run --data {name} --json"));
        close(&found["loss"], &of["loss"], 1e-6);
        assert_eq!(found["tokens"], of["tokens"]);
    }
    let config = sandbox.text("run/config.toml");
    config.assert_has("[[data.mix]]\n");
    // Without weights, all datasets have equal weight.
    let printed = sandbox.train("--data a b --print-config").ok();
    assert_eq!(printed.matches("\nweight = 1.0\n").count(), 2, "{printed}");
    sandbox.write("mix.toml", &printed);
    let again = sandbox.ok("train --config mix.toml --print-config");
    assert_eq!(printed, again);
}

#[test]
fn invalid_mixes_are_rejected() {
    let sandbox = with_datasets(&["a", "b"]);
    sandbox.write("text.txt", "a few words\n".repeat(30));
    sandbox.ok("prepare text.txt --out words --tokenizer char");
    sandbox.write(
        "mix.toml",
        "[data]\nmix = [{ dataset = \"a\", weight = 1 }, { dataset = \"b\", weight = 0.0 }]",
    );
    sandbox.check_messages("mixes");
}

#[test]
fn isolated_documents_have_their_individual_losses() {
    const END_OF_TEXT: u16 = 256;
    let sandbox = Sandbox::new();
    // Rows of 8 positions: short documents, one that fills a row, and one of three rows and a partial one.
    let texts = [
        "abc",
        "d",
        "efghijk",
        "mnopqrstuvwxyz0123456789,.",
        "-+",
        "=?",
    ];
    let (mut nats, mut tokens, mut bytes) = (0.0, 0, 0);
    for (i, text) in texts.iter().enumerate() {
        sandbox.write(&format!("all/{i}.txt"), text);
        // The document by itself, followed by its end-of-text token, which the last document lacks.
        let bytes = text.bytes().map(u16::from);
        let end = (i + 1 < texts.len()).then_some(END_OF_TEXT);
        let ids = std::iter::once(END_OF_TEXT).chain(bytes).chain(end);
        let ids: Vec<u8> = ids.flat_map(u16::to_le_bytes).collect();
        sandbox.write(&format!("data-{i}/train.bin"), ids);
        let line = format!("data adopt data-{i} --tokenizer byte");
        sandbox.ok(&line);
    }
    sandbox.ok("prepare all --out data --val-fraction 0 --tokenizer byte");
    let spec = sandbox.spec("data");
    write_run(&sandbox.path("run"), &tiny(spec.vocab_size), None, &[1]);
    for i in 0..texts.len() {
        let line = format!("eval run --data data-{i} --split train --json");
        let found: Value = sandbox.json(&line);
        let count = found["tokens"].as_u64().unwrap();
        nats += found["loss"].as_f64().unwrap() * count as f64;
        tokens += count;
        bytes += found["bytes"].as_u64().unwrap();
    }
    let line = "eval run --data data --split train --documents isolated";
    let found: Value = sandbox.json(&format!("{line} --json"));
    close(&found["loss"], &json!(nats / tokens as f64), 1e-6);
    assert_eq!(
        (&found["tokens"], &found["bytes"]),
        (&json!(tokens), &json!(bytes))
    );
    let stream: Value =
        sandbox.json("eval run --data data --split train --documents stream --json");
    // The same tokens, predicted from different contexts.
    assert_eq!(stream["tokens"], found["tokens"]);
    assert_ne!(stream["loss"], found["loss"]);
    // Positions are relative to the document: there are as many first tokens as documents, and a long
    // document continues in the next row.
    let found: Value = sandbox.json(&format!("{line} --json --per-position"));
    let positions = found["positions"].as_array().unwrap();
    assert_eq!(
        (positions.len(), &positions[0]["tokens"]),
        (8, &json!(6 + 3))
    );
    let text = sandbox.ok(line);
    text.assert_has("in rows of 8 of isolated documents");
}

#[test]
fn isolated_training_averages_over_unmasked_targets() {
    let sandbox = with_datasets(&["a"]);
    let line = "--data a --documents isolated --steps 3 --set train.micro_batch";
    let ran = sandbox.trains(&format!("{line}=6 --out whole"));
    // The document split between training and validation starts in both.
    let summary = "a: documents 12, rows of 32 positions ";
    ran.says(summary);
    ran.says(", padding ");
    sandbox.trains(&format!("{line}=1 --accumulation 6 --out parts"));
    let (whole, parts) = (sandbox.losses("whole"), sandbox.losses("parts"));
    for (a, b) in whole.iter().zip(&parts) {
        assert!((a - b).abs() < 1e-4, "{whole:?}\n{parts:?}");
    }
    let steps = sandbox.events("whole", "step");
    assert_eq!(steps[2]["tokens"], 3 * 6 * 32);
    let learnt: Vec<u64> = steps
        .iter()
        .filter_map(|step| step["learnt"].as_u64())
        .collect();
    assert!(
        !learnt.is_empty() && learnt.iter().all(|&learnt| learnt < 6 * 32),
        "{steps:?}"
    );
    // The run prints the loss of `eval`.
    let last = &sandbox.events("whole", "evaluation")[0];
    let found: Value = sandbox.json("eval whole --data a --json");
    close(&found["loss"], &last["loss"], 1e-6);
    assert_eq!(found["tokens"], last["tokens"]);
    // Every token except the first of the split, including documents' ends.
    let tokens = |line: &str| -> u64 {
        let line = format!("eval whole --data a --split train --json {line}");
        sandbox.json::<Value>(&line)["tokens"].as_u64().unwrap()
    };
    assert_eq!(tokens(""), tokens("--documents stream"));
}

#[test]
fn masked_targets_do_not_contribute_to_the_loss() {
    let sandbox = with_datasets(&["a"]);
    let spec = sandbox.spec("a");
    write_run(&sandbox.path("model"), &tiny(spec.vocab_size), None, &[1]);
    let line = "eval model --data a --split val --documents stream --json";
    let all: Value = sandbox.json(&format!("{line} --per-position"));
    // Only position 3 of each window of 8 counts, which predicts its fifth token.
    mask(&sandbox, "a", |at| at % 8 == 4);
    let found: Value = sandbox.json(line);
    close(&found["loss"], &all["positions"][3]["loss"], 1e-6);
    assert_eq!(found["tokens"], all["positions"][3]["tokens"]);
    assert_eq!(found["bytes"], found["tokens"]);
    let (loss, tokens) = (
        found["loss"].as_f64().unwrap(),
        found["tokens"].as_f64().unwrap(),
    );
    let bits = json!(loss / 2f64.ln() * tokens / found["bytes"].as_f64().unwrap());
    close(&found["bits_per_byte"], &bits, 1e-9);

    let line = "--data a --steps 3 --set train.micro_batch";
    let ran = sandbox.trains(&format!("{line}=6 --out whole"));
    ran.says(" tokens are learnt");
    sandbox.trains(&format!("{line}=2 --accumulation 3 --out parts"));
    let (whole, parts) = (sandbox.losses("whole"), sandbox.losses("parts"));
    for (a, b) in whole.iter().zip(&parts) {
        assert!((a - b).abs() < 1e-4, "{whole:?}\n{parts:?}");
    }
    assert_eq!(sandbox.events("whole", "step")[0]["learnt"], 6 * 32 / 8);
}

#[test]
fn ambiguous_document_starts_are_rejected_for_isolated_documents() {
    let sandbox = with_datasets(&["a"]);
    mask(&sandbox, "a", |at| at % 8 == 4);
    // As with three conversations whose user turns end with the end-of-text token.
    sandbox.edit("a/dataset.json", |manifest| {
        let train = &mut manifest["splits"]["train"];
        train["documents"] = json!(3);
        train["shards"][0]["documents"] = json!(3);
    });
    let line = "--data a --steps 1 --out run";
    let message = refused(sandbox.train(&format!("{line} --documents isolated")));
    let expected = "a: documents of its train split cannot be distinguished: it has 3, but ";
    message.assert_has(expected);
    message.assert_has("--documents stream");
    sandbox.trains(line);
}

#[test]
fn steps_without_unmasked_targets_are_skipped() {
    let sandbox = with_datasets(&["a"]);
    // Only up to two windows of 32 have unmasked targets.
    mask(&sandbox, "a", |at| (40..48).contains(&at));
    let line =
        "--data a --steps 40 --set train.micro_batch=1 --set train.evaluation.sample_tokens=0";
    let ran = sandbox.trains(&format!("{line} --out run"));
    ran.says("none of its targets is to be learnt");
    let (steps, skipped) = (
        sandbox.events("run", "step"),
        sandbox.events("run", "skipped"),
    );
    assert!(steps.len() + skipped.len() == 40 && skipped.len() > 20);
    assert!(steps.iter().all(|step| step["loss"].is_f64()), "{steps:?}");
    // Validation also has no unmasked targets.
    mask(&sandbox, "a", |_| false);
    let ran = sandbox.train(&format!("{line} --out none")).exits(1);
    let expected = "a: its masks exclude every token of the train split from the loss";
    ran.says(expected);
    let message = refused(sandbox.words("eval run --data a"));
    message.assert_has("the val split of a has no token to predict");
    fs::remove_file(sandbox.path("a/val.mask")).unwrap();
    let ran = sandbox.fails("eval run --data a");
    ran.says("a/val.mask");
}

#[test]
fn the_run_is_independent_of_the_number_of_workers() {
    let sandbox = with_datasets(&["a", "b"]);
    for workers in [0, 3] {
        let line = format!("--data a b --documents isolated --steps 4 --out run-{workers}");
        sandbox.trains(&format!("{line} --set train.loader_workers={workers}"));
    }
    assert_eq!(sandbox.losses("run-0"), sandbox.losses("run-3"));
    assert_eq!(sandbox.weights("run-0", 4), sandbox.weights("run-3", 4));
}
