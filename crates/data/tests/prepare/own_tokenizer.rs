//! Datasets with a tokenizer file: prepared with the file, and opened without it.

use std::fs;
use std::path::{Path, PathBuf};

use crate::prepare::common::{Workspace, options, run, tokens};
use emberlm_data::{Dataset, Split, TOKENIZER_FILE, Tokenizer};
use emberlm_tokenizer::{TokenizerChoice, TokenizerKind};

/// A copy of one of the tokenizer crate's fixtures, with this `tokenizer_config.json`.
fn given(workspace: &Workspace, name: &str, config: &str) -> PathBuf {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tokenizer/tests/fixtures/files");
    let folder = workspace.path("given");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("tokenizer_config.json"), config).unwrap();
    let file = folder.join(TOKENIZER_FILE);
    fs::copy(fixtures.join(format!("{name}.json")), &file).unwrap();
    file
}

#[test]
fn dataset_does_not_need_the_original_tokenizer_file() {
    for (name, config) in [
        ("byte_level", "{}"),
        ("llama", r#"{"eos_token": "<s>"}"#),
        ("wordpiece", "{}"),
    ] {
        let workspace = Workspace::new();
        let texts = [
            "One document of the License.",
            "  Another, </s> <|endoftext|> [SEP]\n",
        ];
        let inputs = [workspace.file("a", texts[0]), workspace.file("b", texts[1])];
        let file = given(&workspace, name, config);
        let tokenizer = Tokenizer::from_file(&file).unwrap();
        let choice = TokenizerChoice::File(file);
        let manifest = workspace.manifest(&inputs, &options(choice, 0.0));
        assert_eq!(manifest.tokenizer, tokenizer.spec());
        fs::remove_dir_all(workspace.path("given")).unwrap();

        let dataset = workspace.dataset();
        dataset.verify().unwrap();
        assert_eq!(dataset.tokenizer().spec(), tokenizer.spec());
        let mut expected = Vec::new();
        for text in texts {
            expected.extend(tokenizer.end_of_text());
            expected.extend(tokenizer.encode(text).unwrap());
        }
        assert_eq!(tokens(&dataset, Split::Train), expected, "{name}");
    }
}

#[test]
fn tokenizer_file_produces_the_same_shards_as_the_built_in_tokenizer() {
    let workspace = Workspace::new();
    let line = |i: usize| format!("Line {i} of prose, it's\t{i}'s turn.\n\n  {i}/{i} 日本語{i}\n");
    let input = [workspace.file("long.txt", (0..30_000).map(line).collect::<String>())];
    let gpt2 = Tokenizer::builtin(TokenizerKind::Gpt2).unwrap();
    let file = workspace.path("gpt2.json");
    fs::write(&file, gpt2.to_tokenizer_json()).unwrap();
    let own = run(
        &input,
        &workspace.path("own"),
        &options(TokenizerKind::Gpt2, 0.1),
    )
    .unwrap();
    for threads in [1, 4] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
        let choice = TokenizerChoice::File(file.clone());
        let out = workspace.path(&format!("out{threads}"));
        let work = || run(&input, &out, &options(choice, 0.1));
        let manifest = pool.build().unwrap().install(work).unwrap();
        assert_eq!(manifest.splits, own.splits);
    }
}

#[test]
fn long_text_without_cuts_is_encoded_as_a_whole() {
    let workspace = Workspace::new();
    let text = "The License of the Work.  Another line,\n".repeat(15_000);
    let input = [workspace.file("long.txt", &text)];
    let file = given(&workspace, "llama", "{}");
    let tokenizer = Tokenizer::from_file(&file).unwrap();
    workspace.manifest(&input, &options(TokenizerChoice::File(file), 0.0));
    let dataset = workspace.dataset();
    let mut expected = vec![2];
    expected.extend(tokenizer.encode(&text).unwrap());
    assert!(tokens(&dataset, Split::Train) == expected);
}

#[test]
fn replacing_a_dataset_removes_its_tokenizer_file() {
    let workspace = Workspace::new();
    let input = [workspace.file("a.txt", "some text of the License")];
    let own = TokenizerChoice::File(given(&workspace, "llama", "{}"));
    let forced = |choice: TokenizerChoice| {
        let options = emberlm_data::PrepareOptions {
            force: true,
            ..options(choice, 0.0)
        };
        run(&input, &workspace.out(), &options)
    };
    let file = workspace.out().join(TOKENIZER_FILE);
    forced(own.clone()).unwrap();
    assert!(file.exists());
    forced(own).unwrap();
    forced(TokenizerKind::Byte.into()).unwrap();
    assert!(!file.exists());
    // Next to a dataset with a built-in tokenizer, a tokenizer file is foreign.
    fs::write(&file, "{}").unwrap();
    let message = forced(TokenizerKind::Byte.into()).unwrap_err().to_string();
    assert!(message.ends_with("it holds `tokenizer.json`"), "{message}");
}

#[test]
fn invalid_tokenizer_is_reported_before_anything_is_written() {
    let workspace = Workspace::new();
    let input = [workspace.file("a.txt", "text")];
    let file = workspace.file("broken.json", "{\"model\": ");
    let choice = TokenizerChoice::File(file);
    let message = workspace.refusal(&input, &options(choice, 0.0));
    assert!(
        message.contains("broken.json: not a usable tokenizer.json: it is not JSON"),
        "{message}"
    );
    assert_eq!(workspace.left(), [""; 0]);
}

#[test]
fn missing_tokenizer_file_error_names_the_file() {
    let workspace = Workspace::new();
    let input = [workspace.file("a.txt", "some text")];
    let choice = TokenizerChoice::File(given(&workspace, "llama", "{}"));
    workspace.manifest(&input, &options(choice, 0.0));
    let error_message = || Dataset::open(workspace.out()).err().unwrap().to_string();
    let file = workspace.out().join(TOKENIZER_FILE);
    let mut json = fs::read(&file).unwrap();
    json.push(b' ');
    fs::write(&file, json).unwrap();
    let message = error_message();
    assert!(
        message.contains("dataset.json: tokenizer `tokenizer.json`: `hash` is"),
        "{message}"
    );
    fs::remove_file(&file).unwrap();
    let message = error_message();
    assert!(message.contains("out/tokenizer.json: "), "{message}");
    assert!(!message.contains("dataset.json"), "{message}");
}
