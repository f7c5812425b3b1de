//! Defaults derived from the data and the machine.

use super::support::{AssertText, Sandbox};

/// The number of tokens in a dataset's training split.
fn train_tokens(sandbox: &Sandbox, dataset: &str) -> f64 {
    let manifest = sandbox.value(format!("{dataset}/dataset.json"));
    manifest["splits"]["train"]["tokens"].as_f64().unwrap()
}

#[test]
fn epochs_are_counted_in_tokens_of_the_training_split() {
    let sandbox = Sandbox::with_char_model();
    let line =
        "train --data data --epochs 2.5 --set model.seq_len=16 --batch-size 4 --print-config";
    let printed = sandbox.ok(line);
    let steps = (2.5 * train_tokens(&sandbox, "data") / 64.0).ceil();
    printed.assert_has(&format!("\nsteps = {steps}\n"));
}

#[test]
fn the_depth_decides_what_is_not_set() {
    let sandbox = Sandbox::with_data();
    let line = "train --data data --preset char-nano --depth 2 --print-config";
    let printed = sandbox.ok(line);
    // Half the blocks: half the width, an eighth of the parameters and tokens, and 0.35 of the batch.
    for setting in [
        "d_model = 64",
        "n_layers = 2",
        "heads = 2",
        "vocab_size = 18",
        "steps = 750",
        "micro_batch = 4",
        "warmup_steps = 38",
        "kind = \"complete_p\"",
        "base_width = 128",
        "base_layers = 4",
    ] {
        printed.assert_has(&format!("\n{setting}\n"));
    }
    let own = sandbox.ok(&format!(
        "{line} --steps 9 --set model.heads=4 --learning-rate 0.25"
    ));
    for setting in [
        "steps = 9",
        "heads = 4",
        "learning_rate = 0.25",
        "d_model = 64",
    ] {
        own.assert_has(&format!("\n{setting}\n"));
    }
    sandbox.succeeds("train --data data --preset char-nano --depth 1 --steps 2 --out run");
    assert_eq!(sandbox.steps("run").last(), Some(&2));
}

#[test]
fn a_depth_is_that_of_a_new_decoder() {
    let sandbox = Sandbox::with_char_model();
    for (line, expected) in [
        (
            "--preset bert-nano --depth 2",
            "must be a decoder: --depth has rules for no other model",
        ),
        ("--from run --depth 2", "cannot be used with"),
        ("--depth 0", "must be at least 1"),
    ] {
        let refused = sandbox.words(&format!("train --data data {line} --print-config"));
        refused.says(expected);
    }
}

#[test]
fn a_run_prints_its_size_first() {
    let sandbox = Sandbox::with_data();
    let ran = sandbox.trains("--data data --steps 2 --set train.accumulation=2 --out run");
    let stderr = ran.stderr.clone();
    let tokens = train_tokens(&sandbox, "data");
    let epochs = 2.0 * 256.0 / tokens;
    let expected =
        format!(" parameters on flex: 2 steps of 2 × 4 × 32 = 256 tokens, {epochs:.1} epochs of ");
    let line = stderr.lines().find(|line| line.contains(&expected));
    let line = line.unwrap_or_else(|| panic!("{expected}: {stderr}"));
    assert!(
        line.starts_with("training ") && line.ends_with(" MiB of memory"),
        "{line}"
    );
}

#[test]
fn fine_tuning_defaults_to_three_epochs_of_a_small_dataset() {
    let sandbox = Sandbox::with_char_model();
    let tokens = train_tokens(&sandbox, "data");
    let value = |printed: &str, key: &str| -> f64 {
        let line = printed.lines().find(|line| line.starts_with(key)).unwrap();
        line.trim_start_matches(key).parse().unwrap()
    };
    let printed = sandbox.ok("train --from run --data data --print-config");
    // The model's context is 8 tokens, and an epoch has at least eight updates.
    let accumulation = (tokens / 64.0).floor();
    assert_eq!(value(&printed, "accumulation = "), accumulation);
    let steps = (3.0 * tokens / (8.0 * accumulation)).ceil();
    assert_eq!(value(&printed, "steps = "), steps);
    let line = "train --from run --data data --accumulation 2 --steps 7 --print-config";
    let printed = sandbox.ok(line);
    assert_eq!(value(&printed, "accumulation = "), 2.0);
    assert_eq!(value(&printed, "steps = "), 7.0);
}

#[test]
fn prepare_suggests_fine_tuning_for_conversations_in_a_published_vocabulary() {
    let sandbox = Sandbox::new();
    let talk = r#"{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]}"#;
    sandbox.write("talks.jsonl", format!("{talk}\n").repeat(20));
    let line = "prepare talks.jsonl --out talks --tokenizer gpt2 --chat-template chatml";
    let output = sandbox.ok(line);
    assert!(
        output.ends_with(
            "Next: emberlm train --data talks --documents isolated --from MODEL --out runs/talks\n"
        ),
        "{output}"
    );
}

#[test]
fn prepare_suggests_a_small_model_for_a_small_text() {
    let sandbox = Sandbox::new();
    let lines = (0..3000).map(|i| format!("{i} and {} make {}\n", i + 1, 2 * i + 1));
    sandbox.write("text.txt", lines.collect::<String>());
    let output = sandbox.ok("prepare text.txt --out book --tokenizer gpt2");
    let next = "Next: emberlm train --data book --preset bpe-nano --out runs/book\n";
    assert!(output.ends_with(next), "{output}");
}
