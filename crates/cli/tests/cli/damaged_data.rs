//! Datasets that are damaged on disk: every reader rejects the damaged block.

use std::fs;

use super::support::train::TINY;
use super::support::{AssertText, Sandbox};

fn flip(sandbox: &Sandbox, file: &str, at: usize) {
    let mut bytes = sandbox.bytes(file);
    bytes[at] ^= 1;
    sandbox.write(file, bytes);
}

/// Returns the error of a command that must fail beca#[track_caller]
fn refused(sandbox: &Sandbox, line: &str, file: &str) -> String {
    let ran = sandbox.words(line).exits(1);
    let last = sandbox.bytes(file).len() - 1;
    ran.says(&format!(
        "error: {file} is damaged: bytes 0 to {last} are not what was written"
    ));
    ran.says("\nhint: `emberlm data verify` lists all");
    ran.stderr
}

#[test]
fn damaged_shards_end_training_resuming_and_evaluation() {
    let sandbox = Sandbox::with_data();
    sandbox.trains("--data data --out run --steps 4");
    let good = sandbox.bytes("data/train_00000.bin");
    flip(&sandbox, "data/train_00000.bin", 2001);
    let resume = "train --resume run --steps 8 --renderer plain";
    let fresh = format!("train {TINY} --data data --out fresh --steps 4");
    let eval = "eval run --data data --split train";
    for line in [&fresh, resume, eval] {
        refused(&sandbox, line, "data/train_00000.bin");
    }
    assert_eq!(sandbox.steps("fresh"), [0; 0]);
    assert_eq!(sandbox.steps("run"), [4]);

    // The validation split is only read by the first evaluation.
    sandbox.write("data/train_00000.bin", good);
    flip(&sandbox, "data/val_00000.bin", 1500);
    let val = format!("train {TINY} --data data --out val --steps 4");
    for line in [&val, resume, "eval run --data data"] {
        refused(&sandbox, line, "data/val_00000.bin");
    }
    flip(&sandbox, "data/val_00000.bin", 1500);
    sandbox.succeeds("train --resume run --steps 9 --renderer plain");
}

#[test]
fn a_damaged_mask_ends_training() {
    let sandbox = Sandbox::new();
    let turns =
        r#"[{"role": "user", "content": "ping"}, {"role": "assistant", "content": "pong"}]"#;
    sandbox.write(
        "talks.jsonl",
        format!("{{\"messages\": {turns}}}\n").repeat(40),
    );
    let line =
        "prepare talks.jsonl --out data --tokenizer byte --chat-template chatml --val-fraction 0";
    sandbox.succeeds(line);
    sandbox.trains("--data data --out run --steps 2");
    flip(&sandbox, "data/train_00000.mask", 100);
    for line in [
        &format!("train {TINY} --data data --out fresh --steps 2"),
        "train --resume run --steps 4 --renderer plain",
        "eval run --data data --split train",
    ] {
        refused(&sandbox, line, "data/train_00000.mask");
    }
}

/// A dataset with a training shard of several blocks, as written by a version without block hashes.
fn without_block_hashes() -> Sandbox {
    let text: String = (0..90_000).map(|i| format!("{i} apples\n")).collect();
    let sandbox = Sandbox::with_text(text, "char");
    fs::remove_file(sandbox.path("data/dataset.blocks.json")).unwrap();
    sandbox
}

#[test]
fn datasets_without_block_hashes_are_verified_during_training() {
    let sandbox = without_block_hashes();
    let bytes = sandbox.bytes("data/train_00000.bin").len();
    let ran = sandbox.trains("--data data --out run --steps 2");
    let begun =
        format!("verifying 1 files of {bytes} bytes without block hashes in the background");
    let ended = format!("verified 1 files of {bytes} bytes: all are whole");
    ran.says(&begun);
    ran.says(&ended);

    // A different valid token id, which only the hash reveals.
    let damaged = "data/train_00000.bin";
    let mut content = sandbox.bytes(damaged);
    let id = &mut content[bytes - 2];
    *id = u8::from(*id == 0);
    sandbox.write(damaged, content);
    let line = format!("train {TINY} --data data --out fresh --steps 2");
    let message = refused(&sandbox, &line, damaged);
    message.assert_has("; checkpoints after step 0 may have been trained on damaged data");
    message.assert_lacks(&ended);
    assert_eq!(sandbox.steps("fresh"), [0; 0]);
    let line = "train --resume run --steps 4 --renderer plain";
    let message = refused(&sandbox, line, damaged);
    message.assert_has("; checkpoints after step 2 may");
    assert_eq!(sandbox.steps("run"), [2]);
    refused(&sandbox, "eval run --data data --split train", damaged);
}
