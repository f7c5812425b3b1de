//! `prepare` on invalid input, and modified datasets: a clear error, and no partial output.

use std::fs;
use std::path::{Path, PathBuf};

use crate::prepare::common::{Workspace, options, run, tokens};
use emberlm_data::{DataError, Dataset, Phase, PrepareOptions, Progress, Split, prepare};
use emberlm_tokenizer::TokenizerKind::{Byte, Gpt2};

#[test]
fn invalid_utf8_error_states_path_and_offset() {
    let workspace = Workspace::new();
    workspace.file("a.txt", "good");
    let mut bytes = vec![b'x'; 300_000];
    bytes.extend(b"\xC3\x28");
    workspace.file("b.txt", bytes);
    let error = run(
        &[workspace.path("in")],
        &workspace.out(),
        &options(Gpt2, 0.1),
    )
    .unwrap_err();
    let message = error.to_string();
    let expected = "b.txt is not UTF-8 text: the first wrong byte is at offset 300000";
    assert!(message.ends_with(expected), "{message}");
    assert_eq!(workspace.left(), [""; 0]);
}

#[test]
fn invalid_inputs_are_rejected_and_leave_no_files() {
    let workspace = Workspace::new();
    let empty = workspace.file("empty.txt", "");
    let short = [workspace.file("short.txt", "ab")];
    let error_message = |inputs: &[PathBuf], val_fraction| {
        let error = run(inputs, &workspace.out(), &options(Byte, val_fraction)).unwrap_err();
        assert_eq!(workspace.left(), [""; 0]);
        error.to_string()
    };
    assert!(error_message(&[], 0.1).starts_with("no input"));
    assert!(error_message(&[workspace.path("nowhere")], 0.1).ends_with("nowhere"));
    assert!(error_message(&[empty], 0.1).ends_with("empty.txt is empty"));
    assert_eq!(
        error_message(&short, 0.6),
        "the train split would be empty: `val_fraction` 0.6 of 2 characters"
    );
    assert!(error_message(&short, 1e-30).starts_with("the val split would be empty"));
    for fraction in [-0.1, 1.0, f64::NAN, f64::INFINITY] {
        assert!(error_message(&short, fraction).starts_with("`val_fraction` is "));
    }
}

#[test]
fn shard_size_out_of_range_is_rejected() {
    let workspace = Workspace::new();
    let input = [workspace.file("a", "abc")];
    for shard_tokens in [0, 1 << 31] {
        let options = PrepareOptions {
            shard_tokens,
            ..options(Byte, 0.1)
        };
        let message = workspace.refusal(&input, &options);
        let expected = format!("`shard_tokens` is {shard_tokens}: ");
        assert!(message.starts_with(&expected), "{message}");
    }
}

#[test]
fn file_changed_between_the_passes_is_rejected() {
    let workspace = Workspace::new();
    let input = [workspace.file("a", "before")];
    let change = |step| {
        if matches!(
            step,
            Progress::Start {
                phase: Phase::Tokenize,
                ..
            }
        ) {
            fs::write(&input[0], "afterwards").unwrap();
        }
    };
    let error = prepare(&input, &workspace.out(), &options(Byte, 0.0), &change).unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("a changed while it was being read")
    );
    assert_eq!(workspace.left(), [""; 0]);
}

#[test]
fn output_is_only_replaced_with_force() {
    let workspace = Workspace::new();
    let (old, new) = (
        [workspace.file("a", "old text")],
        [workspace.file("b", "new")],
    );
    let train_tokens = || tokens(&workspace.dataset(), Split::Train).len();
    let mut options = options(Byte, 0.0);
    workspace.manifest(&old, &options);
    let error = run(&new, &workspace.out(), &options).unwrap_err();
    assert!(matches!(error, DataError::OutputExists { path } if path == workspace.out()));
    assert_eq!(train_tokens(), 9);

    options.force = true;
    workspace.manifest(&new, &options);
    assert_eq!(train_tokens(), 4);
    assert_eq!(workspace.left(), ["out"]);
}

#[test]
fn failed_replacement_keeps_the_old_dataset() {
    let workspace = Workspace::new();
    let (good, bad) = (
        [workspace.file("a", "good")],
        [workspace.file("b", b"bad\xFF")],
    );
    let mut options = options(Byte, 0.0);
    let manifest = workspace.manifest(&good, &options);
    options.force = true;
    run(&bad, &workspace.out(), &options).unwrap_err();
    assert_eq!(workspace.dataset().manifest(), &manifest);
    assert_eq!(workspace.left(), ["out"]);
}

#[test]
fn force_only_replaces_datasets() {
    let workspace = Workspace::new();
    let input = [workspace.file("a", "text")];
    let options = PrepareOptions {
        force: true,
        ..options(Byte, 0.0)
    };
    let error_message = |out: &Path| {
        let message = run(&input, out, &options).unwrap_err().to_string();
        assert!(message.contains("not an emberlm dataset"), "{message}");
        message
    };

    error_message(&workspace.file("precious", "text"));
    error_message(&workspace.path("in"));
    // A dataset to which the user has added a file.
    workspace.manifest(&input, &options);
    fs::write(workspace.out().join("notes.txt"), "mine").unwrap();
    assert!(error_message(&workspace.out()).contains("it holds `notes.txt`"));
    assert!(workspace.out().join("notes.txt").exists());
    // Another program's dataset.json.
    fs::create_dir(workspace.path("other")).unwrap();
    fs::write(workspace.path("other/dataset.json"), "{\"version\": 2}").unwrap();
    error_message(&workspace.path("other"));
    // An empty folder can be replaced without loss.
    fs::create_dir(workspace.path("empty")).unwrap();
    run(&input, &workspace.path("empty"), &options).unwrap();
}

#[test]
fn output_without_a_name_is_rejected() {
    let workspace = Workspace::new();
    let input = [workspace.file("a", "text")];
    let out = workspace.path("nowhere/..");
    let message = run(&input, &out, &options(Byte, 0.0))
        .unwrap_err()
        .to_string();
    assert!(message.contains("must end in a folder name"), "{message}");
}

#[test]
fn parent_folders_of_the_output_are_created() {
    let workspace = Workspace::new();
    let input = [workspace.file("a", "text")];
    let out = workspace.path("x/y/out");
    run(&input, &out, &options(Byte, 0.0)).unwrap();
    Dataset::open(&out).unwrap();
    // A file cannot contain a folder.
    let error = run(&input, &input[0].join("out"), &options(Byte, 0.0)).unwrap_err();
    assert!(matches!(error, DataError::Io { .. }), "{error}");
}

#[test]
fn modified_dataset_is_rejected() {
    let workspace = Workspace::new();
    let input = [workspace.file("a", "some text")];
    workspace.manifest(&input, &options(Byte, 0.0));
    let dataset = workspace.dataset();
    let shard = workspace.out().join("train_00000.bin");
    let split = || dataset.split(Split::Train).err().unwrap().to_string();
    let mut bytes = fs::read(&shard).unwrap();

    bytes[1024 + 2] ^= 1;
    fs::write(&shard, &bytes).unwrap();
    let message = dataset.verify().unwrap_err().to_string();
    assert!(message.contains("its BLAKE3 is "), "{message}");

    bytes.truncate(bytes.len() - 2);
    fs::write(&shard, &bytes).unwrap();
    assert!(split().contains("1042 bytes, but the 10 tokens of its header need 1044"));
    bytes[8] -= 1;
    fs::write(&shard, &bytes).unwrap();
    assert!(split().contains("9 tokens, but the manifest says 10"));
    fs::remove_file(&shard).unwrap();
    assert!(split().starts_with("cannot read "));
}
