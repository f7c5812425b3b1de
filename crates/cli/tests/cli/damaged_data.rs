//! Datasets that are damaged on disk: every reader rejects the damaged block.

use std::fs;
use std::path::Path;

use super::support::train::trained;
use super::support::{CommandOutput, Sandbox};

fn flip(sandbox: &Sandbox, file: &str, at: usize) {
    let path = sandbox.path(file);
    let mut bytes = fs::read(&path).unwrap();
    bytes[at] ^= 1;
    fs::write(path, bytes).unwrap();
}

/// Returns the error of a command that must have failed because bytes `first` to `last` of `file` are
/// damaged.
#[track_caller]
fn refused(ran: CommandOutput, file: &str, first: u64, last: u64) -> String {
    assert_eq!(ran.code, Some(1), "{ran}");
    let expected =
        format!("error: {file} is damaged: bytes {first} to {last} are not what was written");
    assert!(ran.stderr.contains(&expected), "{ran}");
    assert!(
        ran.stderr
            .contains("\nhint: `emberlm data verify` lists all"),
        "{ran}"
    );
    ran.stderr
}

fn length(sandbox: &Sandbox, file: impl AsRef<Path>) -> u64 {
    fs::metadata(sandbox.path(file)).unwrap().len()
}

/// The names of a run's checkpoints.
fn checkpoints(sandbox: &Sandbox, run: &str) -> Vec<String> {
    let Ok(entries) = fs::read_dir(sandbox.path(run).join("checkpoints")) else {
        return Vec::new();
    };
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name();
    let mut names: Vec<String> = entries.map(|e| name(e).into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn damaged_shards_end_training_resuming_and_evaluation() {
    let sandbox = Sandbox::with_data();
    trained(sandbox.train("--data data --out run --steps 4"));
    let good = fs::read(sandbox.path("data/train_00000.bin")).unwrap();
    flip(&sandbox, "data/train_00000.bin", 2001);
    let last = length(&sandbox, "data/train_00000.bin") - 1;
    let file = "data/train_00000.bin";
    refused(
        sandbox.train("--data data --out fresh --steps 4"),
        file,
        0,
        last,
    );
    assert_eq!(checkpoints(&sandbox, "fresh"), [""; 0]);
    let resume = "train --resume run --steps 8 --renderer plain";
    refused(sandbox.words(resume), file, 0, last);
    assert_eq!(checkpoints(&sandbox, "run"), ["step-00000004"]);
    refused(
        sandbox.words("eval run --data data --split train"),
        file,
        0,
        last,
    );

    // The validation split is only read by the first evaluation.
    fs::write(sandbox.path(file), good).unwrap();
    flip(&sandbox, "data/val_00000.bin", 1500);
    let (file, last) = (
        "data/val_00000.bin",
        length(&sandbox, "data/val_00000.bin") - 1,
    );
    refused(
        sandbox.train("--data data --out val --steps 4"),
        file,
        0,
        last,
    );
    refused(sandbox.words(resume), file, 0, last);
    refused(sandbox.words("eval run --data data"), file, 0, last);
    flip(&sandbox, file, 1500);
    trained(sandbox.words("train --resume run --steps 9 --renderer plain"));
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
    assert_eq!(sandbox.words(line).code, Some(0));
    trained(sandbox.train("--data data --out run --steps 2"));
    flip(&sandbox, "data/train_00000.mask", 100);
    let (file, last) = (
        "data/train_00000.mask",
        length(&sandbox, "data/train_00000.mask") - 1,
    );
    refused(
        sandbox.train("--data data --out fresh --steps 2"),
        file,
        0,
        last,
    );
    refused(
        sandbox.words("train --resume run --steps 4 --renderer plain"),
        file,
        0,
        last,
    );
    refused(
        sandbox.words("eval run --data data --split train"),
        file,
        0,
        last,
    );
}

/// A dataset with a training shard of several blocks, as written by a version without block hashes.
fn without_block_hashes() -> Sandbox {
    let sandbox = Sandbox::new();
    let text: String = (0..90_000).map(|i| format!("{i} apples\n")).collect();
    sandbox.write("text.txt", text);
    sandbox
        .words("prepare text.txt --out data --tokenizer char")
        .ok();
    fs::remove_file(sandbox.path("data/dataset.blocks.json")).unwrap();
    sandbox
}

#[test]
fn datasets_without_block_hashes_are_verified_during_training() {
    let sandbox = without_block_hashes();
    let bytes = length(&sandbox, "data/train_00000.bin");
    let ran = sandbox.train("--data data --out run --steps 2");
    let begun =
        format!("verifying 1 files of {bytes} bytes without block hashes in the background");
    let ended = format!("verified 1 files of {bytes} bytes: all are whole");
    assert!(
        ran.stderr.contains(&begun) && ran.stderr.contains(&ended),
        "{ran}"
    );
    trained(ran);

    // A different valid token id, which only the hash reveals.
    let damaged = "data/train_00000.bin";
    let mut content = fs::read(sandbox.path(damaged)).unwrap();
    let id = &mut content[bytes as usize - 2];
    *id = u8::from(*id == 0);
    fs::write(sandbox.path(damaged), content).unwrap();
    let message = refused(
        sandbox.train("--data data --out fresh --steps 2"),
        damaged,
        0,
        bytes - 1,
    );
    assert!(
        message.contains("; checkpoints after step 0 may have been trained on damaged data"),
        "{message}"
    );
    assert!(!message.contains(&ended), "{message}");
    assert_eq!(checkpoints(&sandbox, "fresh"), [""; 0]);
    let resumed = sandbox.words("train --resume run --steps 4 --renderer plain");
    let message = refused(resumed, damaged, 0, bytes - 1);
    assert!(
        message.contains("; checkpoints after step 2 may"),
        "{message}"
    );
    assert_eq!(checkpoints(&sandbox, "run"), ["step-00000002"]);
    refused(
        sandbox.words("eval run --data data --split train"),
        damaged,
        0,
        bytes - 1,
    );
}
