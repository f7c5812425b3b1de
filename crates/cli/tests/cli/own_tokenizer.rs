//! A `tokenizer.json` given to `prepare` is stored with the dataset and with checkpoints trained on it.

use std::fs;

use emberlm_data::Dataset;
use emberlm_tokenizer::{Tokenizer, TokenizerKind};
use emberlm_trainer::checkpoint::Checkpoint;

use super::support::Sandbox;

/// A text, and a folder `hub` in Hugging Face's layout with the byte tokenizer as a file.
fn with_hub() -> Sandbox {
    let sandbox = Sandbox::new();
    let byte = Tokenizer::builtin(TokenizerKind::Byte).unwrap();
    sandbox.write("hub/tokenizer.json", byte.to_tokenizer_json());
    sandbox.write(
        "hub/tokenizer_config.json",
        byte.to_tokenizer_config_json(Some(64)),
    );
    sandbox.write("text.txt", "to be or not to be\n".repeat(20));
    sandbox
}

#[test]
fn a_tokenizer_is_selected_by_file_or_folder() {
    let sandbox = with_hub();
    sandbox.check_messages("prepare_with_file");
    sandbox.ok("prepare text.txt --out file --tokenizer ./hub/tokenizer.json");
    sandbox.ok("prepare text.txt --out named --tokenizer byte");
    let manifest = |name| {
        Dataset::open(sandbox.path(name))
            .unwrap()
            .manifest()
            .clone()
    };
    let (folder, file) = (manifest("folder"), manifest("file"));
    assert_eq!(folder.tokenizer, file.tokenizer);
    assert_eq!(folder.splits, file.splits);
    assert_eq!(folder.splits, manifest("named").splits);
}

#[test]
fn invalid_tokenizers_are_rejected_with_the_choices() {
    let sandbox = with_hub();
    sandbox.write("empty/readme.txt", "nothing");
    sandbox.check_messages("own_tokenizer");
}

#[test]
fn checkpoints_contain_the_tokenizer_file() {
    let sandbox = with_hub();
    sandbox.ok("prepare text.txt --out data --tokenizer hub");
    let spec = Dataset::open(sandbox.path("data"))
        .unwrap()
        .tokenizer()
        .spec();
    let tiny = "--set model.d_model=8 --set model.n_layers=1 --set model.heads=2 --set model.kv_heads=2 \
        --set model.seq_len=8 --set train.micro_batch=2 --set train.evaluation.sample_tokens=4 --renderer plain";
    sandbox.succeeds(&format!("train --data data --out run --steps 2 {tiny}"));
    for gone in ["data", "hub"] {
        fs::remove_dir_all(sandbox.path(gone)).unwrap();
    }
    let checkpoint = Checkpoint::newest(&sandbox.path("run"), |_| ())
        .unwrap()
        .unwrap();
    let tokenizer = checkpoint.tokenizer().unwrap().unwrap();
    assert_eq!(tokenizer.spec(), spec);
    assert_eq!(tokenizer.encode("to be").unwrap(), [116, 111, 32, 98, 101]);

    // The tokenizer file is covered by the checkpoint's hashes.
    let file = checkpoint.path.join("tokenizer.json");
    let json = fs::read_to_string(&file).unwrap();
    fs::write(&file, json.replace("1.0", "2.0")).unwrap();
    let message = Checkpoint::open(&checkpoint.path).unwrap_err().to_string();
    assert!(
        message.ends_with("tokenizer.json is not the file that was written"),
        "{message}"
    );
    fs::remove_file(&file).unwrap();
    assert!(Checkpoint::open(&checkpoint.path).is_err());
}
