use std::fs;

use emberlm_data::{AdoptOptions, DataError, Dataset, PrepareOptions, ShardLayout, Split, prepare};
use emberlm_tokenizer::TokenizerKind::{Byte, Char, Gpt2};
use emberlm_tokenizer::{Tokenizer, TokenizerChoice};

use super::common::{adopt, copy, expected, fixture, ids, names, options};

/// Adopts a copy of a fixture and compares it with the values recorded by Python.
fn agrees(name: &str, options: &AdoptOptions, layout: ShardLayout, shards: [usize; 2]) {
    let folder = copy(name);
    let before = names(folder.path());
    let adopted = adopt(folder.path(), options).unwrap();
    assert_eq!(adopted.warnings, [""; 0]);
    let dataset = Dataset::open(folder.path()).unwrap();
    assert_eq!(dataset.manifest(), &adopted.manifest);
    for ((split, count), (recorded_split, expected)) in
        Split::ALL.into_iter().zip(shards).zip(expected(name))
    {
        assert_eq!(recorded_split, split.name());
        let manifest = dataset.manifest().split(split);
        assert_eq!(ids(&dataset, split), expected.ids, "{name}");
        assert_eq!(
            (manifest.documents, manifest.bytes),
            (expected.documents, expected.bytes),
            "{name} {split}"
        );
        assert_eq!(manifest.shards.len(), count);
        assert!(manifest.shards.iter().all(|shard| shard.layout == layout));
    }
    dataset.verify().unwrap();
    // Nothing was copied or changed.
    let mut after = before.clone();
    after.push("dataset.json".to_owned());
    after.sort();
    assert_eq!(names(folder.path()), after);
    for name_of in before {
        let file = |folder: std::path::PathBuf| fs::read(folder.join(&name_of)).unwrap();
        assert_eq!(file(folder.path().to_owned()), file(fixture(name)));
    }
}

fn chars() -> AdoptOptions {
    AdoptOptions {
        alphabet: Some(fixture("nanogpt_char/input.txt")),
        ..options(Char)
    }
}

#[test]
fn nano_gpt_character_files_are_adopted() {
    agrees("nanogpt_char", &chars(), ShardLayout::Headerless, [1, 1]);
    let text = fs::read_to_string(fixture("nanogpt_char/input.txt")).unwrap();
    let folder = copy("nanogpt_char");
    adopt(folder.path(), &chars()).unwrap();
    let dataset = Dataset::open(folder.path()).unwrap();
    let decoded =
        Split::ALL.map(|split| dataset.tokenizer().decode(&ids(&dataset, split)).unwrap());
    assert_eq!(decoded.concat(), text);
}

#[test]
fn nano_gpt_byte_pair_files_are_adopted() {
    agrees(
        "nanogpt_bpe",
        &options(Gpt2),
        ShardLayout::Headerless,
        [1, 1],
    );
}

#[test]
fn llm_c_files_of_both_widths_are_adopted() {
    agrees("llmc", &options(Byte), ShardLayout::LlmC, [2, 1]);
    agrees("llmc_wide", &options(Byte), ShardLayout::LlmC, [2, 1]);
}

#[test]
fn patterns_select_the_files() {
    let folder = copy("llmc");
    let chosen = AdoptOptions {
        train: Some("*_000001.bin".to_owned()),
        val: Some("tiny_train_000000.bin".to_owned()),
        ..options(Byte)
    };
    let manifest = adopt(folder.path(), &chosen).unwrap().manifest;
    let files: Vec<_> = manifest.files().collect();
    assert_eq!(files, ["tiny_train_000001.bin", "tiny_train_000000.bin"]);
}

#[test]
#[cfg(unix)]
fn linked_dataset_leaves_the_token_folder_unchanged() {
    let (folder, out) = (copy("llmc"), tempfile::tempdir().unwrap());
    let linked = AdoptOptions {
        out: Some(out.path().join("düne set")),
        ..options(Byte)
    };
    let adopted = adopt(folder.path(), &linked).unwrap();
    assert_eq!(names(folder.path()), names(&fixture("llmc")));
    let dataset = Dataset::open(out.path().join("düne set")).unwrap();
    dataset.verify().unwrap();
    assert_eq!(ids(&dataset, Split::Train), expected("llmc")["train"].ids);
    let link = adopted.folder.join("tiny_val_000000.bin");
    assert!(fs::symlink_metadata(link).unwrap().is_symlink());
    // Replacing the dataset removes the links, not their targets.
    let error = adopt(folder.path(), &linked).unwrap_err();
    assert!(matches!(error, DataError::OutputExists { .. }), "{error}");
    let again = AdoptOptions {
        force: true,
        ..linked
    };
    adopt(folder.path(), &again).unwrap();
    assert_eq!(names(folder.path()), names(&fixture("llmc")));
}

#[test]
fn tokenizer_file_is_written_but_never_replaced() {
    let (folder, elsewhere) = (copy("llmc"), tempfile::tempdir().unwrap());
    let json = Tokenizer::builtin(Byte).unwrap().to_tokenizer_json();
    let file = elsewhere.path().join("tokenizer.json");
    fs::write(&file, &json).unwrap();
    let own = AdoptOptions {
        force: true,
        ..options(TokenizerChoice::File(file))
    };
    let theirs = folder.path().join("tokenizer.json");
    fs::write(&theirs, "{}").unwrap();
    let message = adopt(folder.path(), &own).unwrap_err().to_string();
    assert!(message.ends_with("tokenizer.json is a different tokenizer than the named one"));
    fs::remove_file(&theirs).unwrap();
    for _ in 0..2 {
        adopt(folder.path(), &own).unwrap();
        assert_eq!(fs::read(&theirs).unwrap(), json);
    }
    Dataset::open(folder.path()).unwrap().verify().unwrap();
}

fn error_message(folder: &tempfile::TempDir, options: &AdoptOptions) -> String {
    let before = names(folder.path());
    let message = adopt(folder.path(), options).unwrap_err().to_string();
    assert_eq!(names(folder.path()), before);
    let path = format!("{}/", folder.path().display());
    message.replace(&path, "")
}

#[test]
fn files_of_another_tokenizer_are_rejected() {
    assert_eq!(
        error_message(&copy("nanogpt_bpe"), &options(Byte)),
        "train.bin: token 15496 at position 0 is not one of the 257 ids of byte, nor are 5 more"
    );
    assert_eq!(
        error_message(&copy("nanogpt_char"), &options(Char)),
        Tokenizer::builtin(Char).unwrap_err().to_string()
    );
    let folder = copy("llmc");
    let warnings = adopt(folder.path(), &options(Gpt2)).unwrap().warnings;
    assert_eq!(warnings.len(), 2);
    assert!(warnings[0].contains("no end-of-text token in the train split"));
}

#[test]
fn alphabet_of_another_text_causes_a_warning() {
    let folder = copy("nanogpt_char");
    let alphabet = folder.path().join("other.txt");
    fs::write(&alphabet, "abc").unwrap();
    let wrong = AdoptOptions {
        alphabet: Some(alphabet.clone()),
        ..options(Char)
    };
    assert!(error_message(&folder, &wrong).contains(" is not one of the 3 ids of char"));
    let mut more = fs::read(fixture("nanogpt_char/input.txt")).unwrap();
    more.extend("\u{10000}\n".bytes());
    fs::write(&alphabet, &more).unwrap();
    let warnings = adopt(folder.path(), &wrong).unwrap().warnings;
    assert!(warnings[0].starts_with("the alphabet has "), "{warnings:?}");
    fs::write(&alphabet, [b"ok\n".as_slice(), &[b'x', 0xFF]].concat()).unwrap();
    fs::remove_file(folder.path().join("dataset.json")).unwrap();
    assert!(error_message(&folder, &wrong).ends_with("the first wrong byte is at offset 4"));
    fs::write(&alphabet, "").unwrap();
    assert_eq!(error_message(&folder, &wrong), "other.txt is empty");
}

#[test]
fn damaged_file_error_names_the_file() {
    let folder = copy("llmc");
    let path = folder.path().join("tiny_train_000001.bin");
    let good = fs::read(&path).unwrap();
    let message = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        error_message(&folder, &options(Byte))
    };
    assert!(
        message(&good[..1200])
            .contains("tiny_train_000001.bin is not a usable shard: 1200 bytes, but")
    );
    assert!(message(&good[..1000]).contains("1000 bytes are less than its header's 1024"));
    assert!(message(&good[..11]).contains("11 bytes are less than"));
    assert!(message(&[]).contains("tiny_train_000001.bin is empty"));
    // The evaluation files of llm.c have a different magic number.
    let mut evaluation = good.clone();
    evaluation[..4].copy_from_slice(&20_240_522i32.to_le_bytes());
    assert!(message(&evaluation).contains("begins with 20240522, not with 20240520"));
    // Without the first byte the header is not recognized, but the length is odd.
    assert!(message(&good[1..]).contains("1299 bytes are not a whole number of 16-bit tokens"));
    assert!(message(&good[2..]).contains("is not one of the 257 ids of byte"));
}

#[test]
fn existing_manifest_is_only_replaced_with_force() {
    let folder = copy("llmc");
    let force = AdoptOptions {
        force: true,
        ..options(Byte)
    };
    adopt(folder.path(), &options(Byte)).unwrap();
    assert_eq!(
        error_message(&folder, &options(Byte)),
        "dataset.json already exists"
    );
    adopt(folder.path(), &force).unwrap();
    fs::write(folder.path().join("dataset.json"), "{\"of\": \"another\"}").unwrap();
    let message = error_message(&folder, &force);
    assert!(message.starts_with("dataset.json is not an emberlm dataset and is not replaced"));
}

#[test]
fn prepare_does_not_replace_adopted_files() {
    let folder = copy("llmc");
    adopt(folder.path(), &options(Byte)).unwrap();
    let text = tempfile::NamedTempFile::new().unwrap();
    fs::write(text.path(), "Some text to prepare.").unwrap();
    let over = PrepareOptions {
        tokenizer: Byte.into(),
        force: true,
        ..PrepareOptions::default()
    };
    let inputs = [text.path().to_owned()];
    let error = prepare(&inputs, folder.path(), &over, &|_| ()).unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("its shards existed before the dataset"),
        "{error}"
    );
}

#[test]
fn missing_folder_error_names_the_path() {
    let error = adopt("no/such".as_ref(), &options(Byte)).unwrap_err();
    assert!(error.to_string().starts_with("cannot read no/such: "));
}
