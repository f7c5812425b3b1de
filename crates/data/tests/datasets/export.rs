use std::fs;
use std::path::Path;

use emberlm_data::ExportFormat::{self, LlmC, NanoGpt, Npy};
use emberlm_data::{Dataset, ExportOptions, Exported, Split, export};
use emberlm_tokenizer::TokenizerKind::{Byte, Cl100k};

use super::common::{edit_file, fixture, ids, llmc, names, prepared, write_mask};

fn run(dataset: &Dataset, format: ExportFormat, folder: &Path) -> Result<Vec<Exported>, String> {
    let options = ExportOptions {
        shard_tokens: 100,
        ..ExportOptions::new(format, Path::new("data/tiny"))
    };
    export(dataset, &options, folder, &|_| {}).map_err(|error| error.to_string())
}

/// Compares the exported files with those written by Python for the same ids.
fn same(folder: &Path, files: &[&str]) {
    assert_eq!(names(folder), files);
    for file in files {
        let [written, expected] =
            [folder, &fixture("exported")].map(|at| fs::read(at.join(file)).unwrap());
        assert!(written == expected, "{file}");
    }
}

#[test]
fn nano_gpt_export_matches_numpy_bytes() {
    let ((_source, dataset), out) = (llmc(), tempfile::tempdir().unwrap());
    run(&dataset, NanoGpt, out.path()).unwrap();
    same(out.path(), &["train.bin", "val.bin"]);
}

#[test]
fn npy_export_matches_numpy_bytes() {
    let ((_source, dataset), out) = (llmc(), tempfile::tempdir().unwrap());
    run(&dataset, Npy, out.path()).unwrap();
    same(out.path(), &["train.npy", "val.npy"]);
}

#[test]
fn llm_c_export_matches_reference_bytes() {
    let ((_source, dataset), out) = (llmc(), tempfile::tempdir().unwrap());
    let written = run(&dataset, LlmC, out.path()).unwrap();
    let files = [
        "tiny_train_000000.bin",
        "tiny_train_000001.bin",
        "tiny_train_000002.bin",
        "tiny_val_000000.bin",
    ];
    same(out.path(), &files);
    let listed: Vec<_> = written
        .iter()
        .map(|w| (w.file.as_str(), w.tokens))
        .collect();
    let tokens = [100, 100, 88, 45];
    assert_eq!(listed, files.into_iter().zip(tokens).collect::<Vec<_>>());
}

#[test]
fn llm_c_export_of_a_prepared_dataset_renames_its_shards() {
    let (_source, dataset) = prepared(&["one text", "another text"], Byte, 0.2);
    let out = tempfile::tempdir().unwrap();
    run(&dataset, LlmC, out.path()).unwrap();
    for split in Split::ALL {
        let bytes = |folder: &Path, file: &str| fs::read(folder.join(file)).unwrap();
        assert_eq!(
            bytes(out.path(), &format!("tiny_{split}_000000.bin")),
            bytes(dataset.folder(), &format!("{split}_00000.bin"))
        );
    }
}

#[test]
fn large_vocabulary_needs_four_bytes() {
    let (_source, dataset) = prepared(&["a text 🔥"], Cl100k, 0.0);
    let out = tempfile::tempdir().unwrap();
    let message = run(&dataset, NanoGpt, out.path()).unwrap_err();
    assert!(
        message.ends_with(
            "cannot be written as nanogpt: 16 bits cannot represent the 100277 ids of cl100k"
        ),
        "{message}"
    );
    assert_eq!(names(out.path()), [""; 0]);
    run(&dataset, Npy, out.path()).unwrap();
    // A split without tokens has no file.
    assert_eq!(names(out.path()), ["train.npy"]);
    let written = fs::read(out.path().join("train.npy")).unwrap();
    let ids = ids(&dataset, Split::Train);
    let array: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
    let head = written.strip_suffix(array.as_slice()).unwrap();
    // The file written by NumPy has three ids. The headers are padded with spaces.
    let without_blanks = |head: &[u8]| String::from_utf8_lossy(head).replace(' ', "");
    let head = without_blanks(head).replace(&format!("({},)", ids.len()), "(3,)");
    let numpy = fs::read(fixture("exported/wide.npy")).unwrap();
    assert_eq!(head, without_blanks(&numpy[..numpy.len() - 12]));
}

#[test]
fn masks_are_exported_if_supported() {
    let (_source, dataset) = prepared(&["ab"], Byte, 0.0);
    let folder = dataset.folder().to_owned();
    write_mask(&folder, &[0, 1, 1], 2);
    let dataset = Dataset::open(&folder).unwrap();
    let out = tempfile::tempdir().unwrap();
    for format in [NanoGpt, LlmC] {
        let message = run(&dataset, format, out.path()).unwrap_err();
        assert!(
            message.ends_with("it has no masks, and the dataset has"),
            "{message}"
        );
    }
    run(&dataset, Npy, out.path()).unwrap();
    assert_eq!(names(out.path()), ["train.npy", "train_mask.npy"]);
    let written = fs::read(out.path().join("train_mask.npy")).unwrap();
    assert_eq!(written, fs::read(fixture("exported/mask.npy")).unwrap());
    fs::write(folder.join("train_00000.mask"), [1, 1, 1]).unwrap();
    let again = tempfile::tempdir().unwrap();
    assert!(
        run(&dataset, Npy, again.path())
            .unwrap_err()
            .contains("train_00000.mask")
    );
}

#[test]
fn damaged_dataset_is_not_exported() {
    let (source, dataset) = llmc();
    let path = source.path().join("tiny_train_000001.bin");
    edit_file(&path, |bytes| bytes[1030] ^= 1);
    let out = tempfile::tempdir().unwrap();
    let message = run(&dataset, NanoGpt, out.path()).unwrap_err();
    assert!(message.contains("tiny_train_000001.bin is not a usable shard: its BLAKE3 is "));
}

#[test]
fn options_out_of_range_are_rejected() {
    let ((_source, dataset), out) = (llmc(), tempfile::tempdir().unwrap());
    for (name, shard_tokens, expected) in [
        (
            "a",
            0,
            "`shard_tokens` is 0: must be between 1 and 2147483647",
        ),
        (
            "a/b",
            1,
            "`name` is a/b: must be a valid prefix of a file name",
        ),
        ("", 1, "`name` is : must be a valid prefix of a file name"),
    ] {
        let options = ExportOptions {
            format: LlmC,
            name: name.to_owned(),
            shard_tokens,
        };
        let error = export(&dataset, &options, out.path(), &|_| {}).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
    assert_eq!(names(out.path()), [""; 0]);
}

#[test]
fn export_recognizes_only_its_own_file_names() {
    for (format, own, other) in [
        (
            NanoGpt,
            vec!["train.bin", "val.bin"],
            vec!["train_00000.bin", "meta.pkl"],
        ),
        (
            Npy,
            vec!["val.npy", "train_mask.npy"],
            vec!["x.npy", "train.bin"],
        ),
        (
            LlmC,
            vec!["a_b_train_000012.bin", "x_val_000000.bin"],
            vec![
                "x_test_000000.bin",
                "x_val_0.bin",
                "train_000000.bin",
                "x_val_00000a.bin",
            ],
        ),
    ] {
        assert!(own.iter().all(|name| format.writes(name)), "{own:?}");
        assert!(!other.iter().any(|name| format.writes(name)), "{other:?}");
    }
}
