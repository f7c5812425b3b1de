//! `emberlm train --objective`, and the commands on its runs.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::support::Sandbox;

const SMALL: &str = "--renderer plain --set train.log_interval=5 --batch-size 8";
const TINY_ENCODER: &str = "--set encoder.d_model=16 --set encoder.heads=2 --set encoder.n_layers=1 \
    --set encoder.positions=24 --set encoder.feed_forward.width=32 --set train.seq_len=24";

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../model/tests/fixtures")
        .join(name)
}

/// Texts whose label is their first letter.
fn labelled(count: usize) -> String {
    let line = |i: usize| {
        let letter = ["a", "b"][i % 2];
        json!({"text": format!("{letter}{}", "xyz".repeat(1 + i % 4)), "label": letter}).to_string()
            + "\n"
    };
    (0..count).map(line).collect()
}

/// The last evaluation of a run.
fn evaluation(sandbox: &Sandbox, run: &str) -> Value {
    let events = fs::read_to_string(sandbox.path(format!("{run}/events.jsonl"))).unwrap();
    let line = events
        .lines()
        .rfind(|line| line.contains("\"event\":\"evaluation\""));
    serde_json::from_str(line.unwrap()).unwrap()
}

#[test]
fn an_encoder_is_trained_on_masks_then_on_labels() {
    let sandbox = Sandbox::new();
    sandbox.write("text.txt", "some text to read\n".repeat(200));
    sandbox
        .words("prepare text.txt --out data --tokenizer byte")
        .ok();
    let line =
        format!("train --objective mlm --data data --steps 20 {SMALL} {TINY_ENCODER} --out bert");
    let trained = sandbox.words(&line);
    assert_eq!(trained.code, Some(0), "{trained}");
    assert!(
        trained.stdout.contains("emberlm -- embed bert")
            || trained.stdout.contains("embed bert FILE"),
        "{trained}"
    );
    let vectors = sandbox.words("embed bert text.txt").ok();
    assert_eq!(vectors.lines().count(), 200);

    // The files of sentence-transformers are kept.
    sandbox.words("export bert --out sentences").ok();
    let modules = json!([
        {"type": "sentence_transformers.models.Transformer", "path": ""},
        {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"},
    ]);
    sandbox.write("sentences/modules.json", modules.to_string());
    sandbox.write(
        "sentences/1_Pooling/config.json",
        r#"{"pooling_mode_cls_token": true}"#,
    );
    let line = "train --from sentences --objective mlm --data data --steps 2 --renderer plain --set train.seq_len=24 --out more";
    let trained = sandbox.words(line);
    assert_eq!(trained.code, Some(0), "{trained}");
    let folder = "more/checkpoints/step-00000002";
    for file in ["modules.json", "1_Pooling/config.json"] {
        let kept = fs::read(sandbox.path(format!("{folder}/{file}"))).unwrap();
        assert_eq!(
            kept,
            fs::read(sandbox.path(format!("sentences/{file}"))).unwrap()
        );
    }
    let resumed = sandbox.words("train --resume more --steps 4 --renderer plain");
    assert_eq!(resumed.code, Some(0), "{resumed}");
    let config = |step: usize| {
        fs::read(sandbox.path(format!("more/checkpoints/step-{step:08}/config.json")))
    };
    assert_eq!(config(2).unwrap(), config(4).unwrap());

    let followed = sandbox.words("serve --follow more");
    let expected = "more trains an encoder, and --follow is for decoders";
    assert!(followed.stderr.contains(expected), "{followed}");
    fs::remove_file(sandbox.path("more/checkpoints/step-00000004/manifest.json")).unwrap();
    for line in ["info more", "attention more --tokens 1,2"] {
        let shown = sandbox.words(line);
        assert_eq!(shown.code, Some(0), "{shown}");
        let expected = "warning: more/checkpoints/step-00000004 is not a complete checkpoint";
        assert!(shown.stderr.starts_with(expected), "{shown}");
    }

    sandbox.write("labelled.jsonl", labelled(80));
    let line = "train --from bert --data labelled.jsonl --objective classify --epochs 12 --renderer plain \
        --learning-rate 5e-3 --out tuned";
    let trained = sandbox.words(line);
    assert_eq!(trained.code, Some(0), "{trained}");
    assert!(trained.stderr.contains("accuracy 1.000"), "{trained}");
    assert_eq!(evaluation(&sandbox, "tuned")["metrics"]["accuracy"], 1.0);
    sandbox.write("new.txt", "bxyz\naxyzxyz\n");
    let check = |model: &str| {
        let labels = sandbox.words(&format!("classify {model} new.txt")).ok();
        let labels: Vec<Value> = labels
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(
            [&labels[0]["label"], &labels[1]["label"]],
            ["b", "a"],
            "{model}"
        );
    };
    check("tuned");
    sandbox.words("export tuned --out exported").ok();
    check("exported");
    let config: Value =
        serde_json::from_slice(&fs::read(sandbox.path("exported/config.json")).unwrap()).unwrap();
    assert_eq!(config["architectures"][0], "BertForSequenceClassification");
    assert_eq!(config["id2label"]["1"], "b");

    let refused = sandbox.words("generate tuned --prompt x");
    assert_eq!(refused.code, Some(1), "{refused}");
    let resumed = sandbox.words("train --resume tuned --steps 200 --renderer plain");
    assert_eq!(resumed.code, Some(0), "{resumed}");
    assert!(
        resumed.stderr.contains("Resuming tuned after step"),
        "{resumed}"
    );
}

#[test]
fn records_with_a_single_label_are_refused() {
    let sandbox = Sandbox::new();
    let line = |i: usize| json!({"text": format!("text {i}"), "label": "spam"}).to_string() + "\n";
    sandbox.write("records.jsonl", (0..40).map(line).collect::<String>());
    let line = format!(
        "train --objective classify --data records.jsonl --set data.tokenizer=byte --steps 2 {SMALL} {TINY_ENCODER} --out run"
    );
    let ran = sandbox.words(&line);
    assert_eq!(ran.code, Some(1), "{ran}");
    let message = "records.jsonl: all records have the label `spam`, and a classifier needs at least 2 labels";
    assert!(ran.stderr.contains(message), "{ran}");
    assert!(ran.stderr.contains("train.objective.label=NAME"), "{ran}");
}

#[test]
fn an_encoder_decoder_is_tuned_on_pairs() {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.path("t5")).unwrap();
    for file in ["config.json", "model.safetensors"] {
        fs::copy(
            fixture("encoder_decoder/t5-untied").join(file),
            sandbox.path(format!("t5/{file}")),
        )
        .unwrap();
    }
    let mut vocab: serde_json::Map<String, Value> =
        (2..60).map(|id| (format!("w{id}"), json!(id))).collect();
    vocab.insert("<pad>".to_owned(), json!(0));
    vocab.insert("</s>".to_owned(), json!(1));
    let special = |id: u32, content: &str| {
        json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true})
    };
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "decoder": null,
        "added_tokens": [special(0, "<pad>"), special(1, "</s>")],
        "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": null,
        "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "w2"},
    });
    sandbox.write("t5/tokenizer.json", tokenizer.to_string());
    let line = |i: usize| {
        let word = 3 + i % 4;
        json!({"source": format!("w{word} w9"), "target": format!("w{}", word + 10)}).to_string()
            + "\n"
    };
    sandbox.write("pairs.jsonl", (0..60).map(line).collect::<String>());
    let line = "train --from t5 --data pairs.jsonl --steps 80 --renderer plain --learning-rate 1e-2 --out run";
    let trained = sandbox.words(line);
    assert_eq!(trained.code, Some(0), "{trained}");
    let found: Value = sandbox
        .run(["generate", "run", "--prompt", "w5 w9", "--json"])
        .json();
    assert_eq!(found["tokens"][0], 15, "{found}");
    sandbox.words("export run --out exported").ok();
    let again: Value = sandbox
        .run(["generate", "exported", "--prompt", "w5 w9", "--json"])
        .json();
    assert_eq!(again["tokens"], found["tokens"]);
}

#[test]
fn spans_of_the_tales_are_learnt_from_the_beginning() {
    let sandbox = Sandbox::new();
    sandbox.write("text.txt", "some text to read\n".repeat(200));
    sandbox
        .words("prepare text.txt --out data --tokenizer byte")
        .ok();
    let small = "--set encoder_decoder.d_model=16 --set encoder_decoder.heads=2 --set encoder_decoder.head_dim=8 \
        --set encoder_decoder.feed_forward.width=32 --set train.seq_len=32";
    let line =
        format!("train --objective span-corruption --data data --steps 6 {SMALL} {small} --out t5");
    let trained = sandbox.words(&line);
    assert_eq!(trained.code, Some(0), "{trained}");
    let note = "windows of 34 tokens become sources of 32 and targets of 8";
    assert!(trained.stderr.contains(note), "{trained}");
    let generated = sandbox.words("generate t5 --prompt some --max-new-tokens 3 --json");
    assert_eq!(generated.code, Some(0), "{generated}");
}

#[test]
fn bad_records_and_options_are_refused() {
    let sandbox = Sandbox::new();
    sandbox.write("broken.csv", "text,label\na,b\nc,\n");
    sandbox.write("text.txt", "no records");
    let fails = |line: &str, message: &str| {
        let output = sandbox.words(line);
        assert_ne!(output.code, Some(0), "{output}");
        assert!(output.stderr.contains(message), "{line}: {output}");
    };
    let classify =
        "train --objective classify --set data.tokenizer=byte --renderer plain --out run";
    fails(
        &format!("{classify} --data broken.csv"),
        "line 3: `label` is missing or empty",
    );
    fails(
        &format!("{classify} --data text.txt"),
        "a text has no fields",
    );
    fails(
        &format!("{classify} --data none.csv"),
        "no such file or folder: none.csv",
    );
    fails(classify, "this objective needs records to train on");
    fails("train --objective nonsense", "invalid value 'nonsense'");
    fails(
        "train --preset gpt2 --objective mlm --data text.txt",
        "kind = mlm: must be next_token, dpo, orpo, simpo, kto or grpo for a decoder",
    );
    let good = r#"{"prompt": "a", "chosen": "b", "rejected": "c"}"#;
    let empty = r#"{"prompt": "a", "chosen": "b", "rejected": ""}"#;
    sandbox.write("pairs.jsonl", format!("{good}\n{empty}\n"));
    let dpo = "train --objective dpo --set data.tokenizer=byte --renderer plain --out run";
    fails(
        &format!("{dpo} --data pairs.jsonl"),
        "pairs.jsonl: line 2: `rejected` is empty",
    );
    fails(
        &format!("{dpo} --data pairs.jsonl --set train.objective.beta=0"),
        "beta = 0: must be above 0",
    );
    fails(
        "train --objective kto --set data.tokenizer=byte --data pairs.jsonl --out run",
        "line 1: `completion` is missing",
    );
    let rewards = "train.objective.rewards=[{kind=\"exact_match\"}]";
    let grpo =
        format!("train --objective grpo --set data.tokenizer=byte --set {rewards} --out run");
    fails(
        &format!("{grpo} --data pairs.jsonl --set train.objective.group=4"),
        "line 1: `answer` is missing, which a reward compares",
    );
    fails(
        &format!("{grpo} --data pairs.jsonl --set train.objective.group=1"),
        "group = 1: must be at least 2",
    );
    fails(
        "train --objective grpo --set train.objective.rewards=[{kind=\"exact\"}] --data pairs.jsonl",
        "exact_match",
    );
    assert!(!sandbox.path("run").exists());
}
