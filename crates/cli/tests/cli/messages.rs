//! All messages for mistaken command lines in one file, `tests/messages.txt`, for review from a user's
//! perspective.
//!
//! `UPDATE_MESSAGES=1 cargo test --test cli messages` rewrites the file after a change. Review the diff.

use super::support::Sandbox;

/// Common mistakes, one per kind.
const MISTAKES: &[&str] = &[
    "",
    "trian",
    "train --step 3",
    "train --steps three",
    "train --preset gpt5",
    "train --data nowhere",
    "train --data text.txt",
    "train --data data --set train.micro_batch=0",
    "train --data data --set train.micro_bacth=8",
    "train --data data --set train.steps",
    "train --data data --set train.optimizer.kind=adam",
    "train --data data --set model.heads=3",
    "train --data data --batch-size 0",
    "train --resume data",
    "train --config nowhere.toml",
    "train --config broken.toml",
    "prepare text.txt --out data --tokenizer byte",
    "prepare nowhere.txt --out new --tokenizer byte",
    "prepare text.txt --out new --tokenizer gtp2",
    "prepare broken.jsonl --out new --tokenizer byte",
    "prepare text.txt --out new --tokenizer byte --val-fraction 2",
    "data inspect nowhere",
    "data verify text.txt",
    "tokenizer train text.txt --out t.json --vocab-size 1",
    "generate",
    "generate nowhere",
    "generate text.txt",
    "generate data",
    "generate m.gguf",
    "generate run --prompt x --tokens 1,2",
    "generate run --tokens 1,x",
    "generate run --tokens 99999",
    "generate run --prompt λ",
    "generate run --temperature -1",
    "generate run --top-p 2",
    "generate run --json-schema broken.jsonl",
    "generate run --backend vulcan",
    "generate run --logprobs 2",
    "generate run --cache q4",
    "generate run --cache q8",
    "chat run",
    "serve run --port 99999",
    "serve nowhere",
    "eval run --data nowhere",
    "eval run",
    "logits run --tokens 1 --out no/such/folder/x.safetensors",
    "attention run --prompt ab --out picture.jpg",
    "info gpt5",
    "new --preset gpt2-smal --out m",
    "export run --out data",
    "export run --out m --dtype f8",
    "plot nowhere",
    "plot run --y los",
    "runs nowhere",
    "sweep nowhere.toml",
    "fit --preset pocket-tales --memory much",
    "completions powersh",
];

#[test]
fn messages_of_mistakes() {
    let sandbox = Sandbox::with_char_model();
    sandbox.write("m.gguf", "GGUF");
    sandbox.write("broken.toml", "[train\nsteps = 3\n");
    sandbox.write("broken.jsonl", "{\"text\": \"a\"}\n{\"text\": 1}\n");
    let mut found = String::new();
    for line in MISTAKES {
        let ran = sandbox.words(line);
        let code = ran.code.unwrap();
        assert_ne!(code, 0, "{line}");
        let root = sandbox.path("").display().to_string();
        let stderr = ran.stderr.replace(&root, "SANDBOX/");
        found.push_str(&format!("$ emberlm {line}\n{stderr}[exit {code}]\n\n"));
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/messages.txt");
    if std::env::var_os("UPDATE_MESSAGES").is_some() {
        std::fs::write(path, &found).unwrap();
    }
    let expected = std::fs::read_to_string(path).unwrap_or_default();
    for (found, expected) in found.split("\n\n").zip(expected.split("\n\n")) {
        assert_eq!(found, expected, "see the head of messages.rs");
    }
    assert_eq!(found.len(), expected.len());
}
