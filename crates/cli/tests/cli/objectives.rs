//! `emberlm train --objective`, and the commands on its runs.

use std::fs;

use serde_json::{Value, json};

use super::support::train::{TINY_ENCODER, TINY_ENCODER_DECODER};
use super::support::{Sandbox, fixtures};

pub const SMALL: &str = "--renderer plain --set train.log_interval=5 --batch-size 8";

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
    let events = sandbox.text(format!("{run}/events.jsonl"));
    let line = events
        .lines()
        .rfind(|line| line.contains("\"event\":\"evaluation\""));
    serde_json::from_str(line.unwrap()).unwrap()
}

#[test]
fn an_encoder_is_trained_on_masks_then_on_labels() {
    let sandbox = Sandbox::with_text("some text to read\n".repeat(200), "byte");
    let line =
        format!("train --objective mlm --data data --steps 20 {SMALL} {TINY_ENCODER} --out bert");
    let trained = sandbox.succeeds(&line);
    assert!(
        trained.stdout.contains("emberlm -- embed bert")
            || trained.stdout.contains("embed bert FILE"),
        "{trained}"
    );
    let vectors = sandbox.ok("embed bert text.txt");
    assert_eq!(vectors.lines().count(), 200);

    // The files of sentence-transformers are kept.
    sandbox.ok("export bert --out sentences");
    // The settings of a tokenizer are written if the directory lacks them.
    let settings: Value = sandbox.value("sentences/tokenizer_config.json");
    fs::remove_file(sandbox.path("sentences/tokenizer_config.json")).unwrap();
    sandbox.ok("export sentences --out again");
    let again: Value = sandbox.value("again/tokenizer_config.json");
    for field in ["model_max_length", "eos_token"] {
        assert_eq!(again[field], settings[field], "{again}");
    }
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
    sandbox.succeeds(line);
    let folder = "more/checkpoints/step-00000002";
    for file in ["modules.json", "1_Pooling/config.json"] {
        let kept = sandbox.bytes(format!("{folder}/{file}"));
        assert_eq!(kept, sandbox.bytes(format!("sentences/{file}")));
    }
    sandbox.succeeds("train --resume more --steps 4 --renderer plain");
    let config =
        |step: usize| fs::read(sandbox.path(format!("more/checkpoints/step-{step:08}/model.json")));
    assert_eq!(config(2).unwrap(), config(4).unwrap());

    let followed = sandbox.words("serve --follow more");
    let expected = "more trains an encoder, and --follow is for decoders";
    followed.says(expected);
    fs::remove_file(sandbox.path("more/checkpoints/step-00000004/manifest.json")).unwrap();
    for line in ["info more", "attention more --tokens 1,2"] {
        let shown = sandbox.succeeds(line);
        let expected = "warning: more/checkpoints/step-00000004 is not a complete checkpoint";
        assert!(shown.stderr.starts_with(expected), "{shown}");
    }

    sandbox.write("labelled.jsonl", labelled(80));
    let line = "train --from bert --data labelled.jsonl --objective classify --epochs 12 --renderer plain \
        --learning-rate 5e-3 --out tuned";
    let trained = sandbox.succeeds(line);
    trained.says("accuracy 1.000");
    assert_eq!(evaluation(&sandbox, "tuned")["metrics"]["accuracy"], 1.0);
    sandbox.write("new.txt", "bxyz\naxyzxyz\n");
    let check = |model: &str| {
        let labels = sandbox.ok(&format!("classify {model} new.txt"));
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
    sandbox.ok("export tuned --out exported");
    check("exported");
    let config: Value = sandbox.value("exported/config.json");
    assert_eq!(config["architectures"][0], "BertForSequenceClassification");
    assert_eq!(config["id2label"]["1"], "b");

    sandbox.fails("generate tuned --prompt x");
    let resumed = sandbox.succeeds("train --resume tuned --steps 200 --renderer plain");
    resumed.says("Resuming tuned after step");
}

#[test]
fn an_encoder_decoder_is_tuned_on_pairs() {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.path("t5")).unwrap();
    for file in ["config.json", "model.safetensors"] {
        fs::copy(
            fixtures().join("encoder_decoder/t5-untied").join(file),
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
    sandbox.succeeds(line);
    let found: Value = sandbox
        .run(["generate", "run", "--prompt", "w5 w9", "--json"])
        .json();
    assert_eq!(found["tokens"][0], 15, "{found}");
    sandbox.ok("export run --out exported");
    let again: Value = sandbox
        .run(["generate", "exported", "--prompt", "w5 w9", "--json"])
        .json();
    assert_eq!(again["tokens"], found["tokens"]);
}

#[test]
fn spans_of_the_tales_are_learnt_from_the_beginning() {
    let sandbox = Sandbox::with_text("some text to read\n".repeat(200), "byte");
    let line = format!(
        "train --objective span-corruption --data data --steps 6 {SMALL} {TINY_ENCODER_DECODER} --set train.seq_len=32 --out t5"
    );
    let trained = sandbox.succeeds(&line);
    let note = "windows of 34 tokens become sources of 32 and targets of 8";
    trained.says(note);
    sandbox.succeeds("generate t5 --prompt some --max-new-tokens 3 --json");
}

#[test]
fn bad_records_and_options_are_refused() {
    let sandbox = Sandbox::new();
    sandbox.write("broken.csv", "text,label\na,b\nc,\n");
    sandbox.write("text.txt", "no records");
    let good = r#"{"prompt": "a", "chosen": "b", "rejected": "c"}"#;
    let empty = r#"{"prompt": "a", "chosen": "b", "rejected": ""}"#;
    sandbox.write("pairs.jsonl", format!("{good}\n{empty}\n"));
    let spam = |i: usize| json!({"text": format!("text {i}"), "label": "spam"}).to_string() + "\n";
    sandbox.write("spam.jsonl", (0..40).map(spam).collect::<String>());
    sandbox.check_messages("objectives");
}
