//! Mistaken paths and names: each message states the value and a fix.

use super::support::Sandbox;

#[test]
fn paths_that_are_not_datasets_are_rejected() {
    let sandbox = Sandbox::with_char_model();
    sandbox.write("tokens/train.bin", [0; 8]);
    sandbox.write("weights.safetensors", [0; 8]);
    sandbox.write("a folder/notes.txt", "x");
    sandbox.check_messages("datasets");
}

#[test]
fn invalid_files_are_reported_with_line_and_column() {
    let sandbox = Sandbox::with_char_model();
    sandbox.write("a.jsonl", "{\"text\": \"a\"}\n{\"text\": \"b\"\n");
    let valid = "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\"}]}";
    sandbox.write("chat.jsonl", format!("{valid}\n{{\"messages\": [}}\n"));
    sandbox.write("array.json", "[\n{\"text\": \"a\"}\n]\n");
    sandbox.write("silent.jsonl", "{\"messages\": []}\n");
    sandbox.write("broken.toml", "# settings\n[train\n");
    sandbox.check_messages("invalid_files");
}

#[test]
fn missing_runs_are_reported() {
    let sandbox = Sandbox::new();
    sandbox.write("runs/talks/config.toml", "");
    sandbox.write("runs/sweep/lr-0.1/config.toml", "");
    sandbox.write("text.txt", "");
    sandbox.write("empty/text.txt", "");
    sandbox.check_messages("missing_runs");
}

#[test]
fn folders_named_like_files_are_rejected() {
    let sandbox = Sandbox::with_char_model();
    sandbox.write("sweep.toml", "preset = \"char-nano\"\n");
    sandbox.check_messages("named_like_files");
    // A version number does not count as a file extension.
    sandbox.ok("export run --out model-v1.2");
}
