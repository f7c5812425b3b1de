use std::fs;

use emberlm_data::{Dataset, verify};
use emberlm_tokenizer::TokenizerKind::{Byte, Char, Gpt2};
use serde_json::json;

use super::common::{edit_file, edit_manifest, llmc, prepared, write_mask};

/// All problems of the dataset, except different hashes.
fn problems(dataset: &Dataset) -> Vec<String> {
    let found = verify(dataset, &|_| {}).unwrap();
    assert_eq!(found.is_whole(), found.problems().is_empty());
    let hash = |problem: &String| !problem.contains("BLAKE3");
    found.problems().into_iter().filter(hash).collect()
}

fn hashes(dataset: &Dataset) -> usize {
    let found = verify(dataset, &|_| {}).unwrap().problems();
    found
        .iter()
        .filter(|problem| problem.contains("its BLAKE3 is"))
        .count()
}

#[test]
fn prepared_dataset_verifies() {
    for kind in [Byte, Char, Gpt2] {
        let (_source, dataset) = prepared(&["one text\n", "naïve 東京 🔥", "three"], kind, 0.3);
        assert_eq!(problems(&dataset), [""; 0], "{kind}");
        dataset.verify().unwrap();
    }
}

#[test]
fn all_problems_are_reported() {
    let (source, dataset) = llmc();
    let path = |name: &str| source.path().join(name);
    // The first token, an end-of-text token, becomes 511, and the next one 365.
    edit_file(&path("tiny_train_000000.bin"), |bytes| {
        bytes[1024] = 255;
        bytes[1027] = 1;
    });
    edit_file(&path("tiny_train_000001.bin"), |bytes| bytes.truncate(1100));
    fs::remove_file(path("tiny_val_000000.bin")).unwrap();
    fs::write(path("notes.txt"), "mine").unwrap();
    assert_eq!(
        problems(&dataset),
        [
            "tiny_train_000000.bin: 4 end-of-text tokens, but the manifest says 5",
            "tiny_train_000000.bin: token 511 at position 0 is outside the vocabulary of 257, and 1 more",
            "tiny_train_000001.bin: 1100 bytes, but the 138 tokens of its header need 1300",
            "tiny_val_000000.bin: No such file or directory (os error 2)",
        ]
    );
    assert_eq!(hashes(&dataset), 1);
    let found = verify(&dataset, &|_| {}).unwrap();
    assert_eq!(found.files.len(), 3);
    assert_eq!(found.foreign, ["notes.txt"]);
    let message = dataset.verify().unwrap_err().to_string();
    assert!(
        message.contains(" is damaged: tiny_train_000000.bin: "),
        "{message}"
    );
    assert!(message.contains("; tiny_val_000000.bin: "), "{message}");
}

#[test]
fn verification_reads_every_byte() {
    let (_source, dataset) = prepared(&["ab", "c"], Byte, 0.3);
    let path = dataset.folder().join("train_00000.bin");
    let good = fs::read(&path).unwrap();
    // All bytes with a meaning, and some without one.
    for at in (0..16)
        .chain((16..1024).step_by(97))
        .chain(1024..good.len())
    {
        let mut bytes = good.clone();
        bytes[at] ^= 0x10;
        fs::write(&path, bytes).unwrap();
        let found = verify(&dataset, &|_| {}).unwrap();
        assert!(!found.is_whole(), "byte {at}");
    }
}

#[test]
fn manifest_counts_are_verified() {
    let (_source, dataset) = prepared(&["abc", "défg"], Byte, 0.0);
    let folder = dataset.folder();
    let problem_after = |edit: &dyn Fn(&mut serde_json::Value)| {
        let before = fs::read(folder.join("dataset.json")).unwrap();
        edit_manifest(folder, |m| edit(&mut m["splits"]["train"]));
        let found = problems(&Dataset::open(folder).unwrap());
        fs::write(folder.join("dataset.json"), before).unwrap();
        found
    };
    assert_eq!(
        problem_after(&|train| train["bytes"] = json!(9)),
        ["split `train`: its tokens are 8 bytes of text, but the manifest says 9"]
    );
    let documents = problem_after(&|train| {
        train["documents"] = json!(3);
        train["shards"][0]["documents"] = json!(3);
    });
    assert_eq!(
        documents,
        ["train_00000.bin: 2 end-of-text tokens, but the manifest says 3"]
    );
    let tokens = problem_after(&|train| {
        train["tokens"] = json!(11);
        train["shards"][0]["tokens"] = json!(11);
    });
    assert_eq!(
        tokens,
        ["train_00000.bin: 10 tokens, but the manifest says 11"]
    );
}

#[test]
fn masks_are_verified() {
    let (_source, dataset) = prepared(&["abc"], Byte, 0.0);
    let folder = dataset.folder();
    let path = folder.join("train_00000.mask");
    let check = |bytes: &[u8], learnt: u64| {
        write_mask(folder, bytes, learnt);
        problems(&Dataset::open(folder).unwrap())
    };
    assert_eq!(check(&[0, 1, 1, 0], 2), [""; 0]);
    assert_eq!(
        check(&[0, 1, 1, 0], 3),
        ["train_00000.mask: 2 tokens with a loss, but the manifest says 3"]
    );
    assert_eq!(
        check(&[0, 1, 7, 2], 1),
        ["train_00000.mask: byte 7 at 2: only 0 and 1 are allowed"]
    );
    assert_eq!(
        check(&[1, 1, 0], 2),
        ["train_00000.mask: 3 bytes, but its shard has 4 tokens"]
    );
    check(&[0, 1, 1, 0], 2);
    fs::write(&path, [1, 0, 1, 0]).unwrap();
    assert_eq!(hashes(&Dataset::open(folder).unwrap()), 1);
    fs::remove_file(&path).unwrap();
    assert_eq!(
        problems(&Dataset::open(folder).unwrap()),
        ["train_00000.mask: No such file or directory (os error 2)"]
    );
}
