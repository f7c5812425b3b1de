//! Mistaken paths, names and numbers: each message states the value and a fix.

use super::support::Sandbox;

/// Asserts that a command fails with a message and a hint.
#[track_caller]
fn refused(sandbox: &Sandbox, line: &str, code: i32, error: &str, hint: &str) {
    let ran = sandbox.words(line);
    let expected = format!("error: {error}\nhint: {hint}\n");
    assert_eq!(
        (ran.code, ran.stderr.as_str()),
        (Some(code), expected.as_str()),
        "{line}"
    );
}

#[test]
fn paths_that_are_not_datasets_are_rejected() {
    let sandbox = Sandbox::with_char_model();
    sandbox.write("tokens/train.bin", [0; 8]);
    sandbox.write("weights.safetensors", [0; 8]);
    sandbox.write("a folder/notes.txt", "x");
    let prepare = "make a dataset first: emberlm prepare FILE… --out DATASET --tokenizer gpt2";
    for command in ["train --out new", "eval run", "fit --preset pocket-tales"] {
        let refused = |path: &str, error: &str, hint: &str| {
            let line = format!("{command} --data {path}");
            refused(&sandbox, &line, 1, &format!("{path} {error}"), hint);
        };
        refused(
            "text.txt",
            "is a text file, not a dataset's folder",
            "make a dataset of it first: emberlm prepare text.txt --out DATASET --tokenizer gpt2",
        );
        refused(
            "data/dataset.json",
            "is a file of a dataset, not the dataset's folder",
            "give the folder: data",
        );
        refused(
            "tokens/train.bin",
            "is a file of token ids, not a dataset's folder",
            "make a dataset of the token files in its folder: emberlm data adopt tokens --tokenizer NAME",
        );
        refused(
            "weights.safetensors",
            "is a file, not a dataset's folder",
            prepare,
        );
        refused("nowhere", "does not exist", prepare);
        refused(
            "run/checkpoints/step-00000001",
            "is the directory of a model, not a dataset",
            prepare,
        );
        refused(
            "tokens",
            "is not a dataset: it has no dataset.json",
            "make a dataset of the texts in it: emberlm prepare tokens --out DATASET --tokenizer gpt2",
        );
        assert!(!sandbox.path("new").exists());
    }
}

#[test]
fn paths_that_are_not_models_are_rejected() {
    let sandbox = Sandbox::with_char_model();
    sandbox.write("m.gguf", "GGUF");
    sandbox.write("quantized/m-Q4_K.gguf", "GGUF");
    refused(
        &sandbox,
        "generate m.gguf",
        1,
        "m.gguf is not a complete GGUF file: it ends within its header, after 4 bytes",
        "copy the file again, with all its parts",
    );
    refused(
        &sandbox,
        "generate quantized",
        1,
        "quantized is a directory of GGUF files",
        "give one of its files: quantized/m-Q4_K.gguf",
    );
    refused(
        &sandbox,
        "generate run/checkpoints/step-00000001/model.safetensors",
        1,
        "run/checkpoints/step-00000001/model.safetensors is a file, not a model's directory",
        "give its folder: run/checkpoints/step-00000001",
    );
}

#[test]
fn paths_that_are_not_tokenizers_are_rejected() {
    let sandbox = Sandbox::new();
    sandbox.write("text.txt", "text");
    let refused = |path: &str, reason: &str| {
        let line = format!("prepare text.txt --out d --tokenizer {path}");
        let ran = sandbox.words(&line);
        let expected =
            format!("error: invalid value '{path}' for '--tokenizer <NAME|PATH>': {reason}\n");
        assert!(
            ran.code == Some(2) && ran.stderr.starts_with(&expected),
            "{ran}"
        );
    };
    refused("./nope.json", "no such file or folder");
    refused("hub/nope", "no such file or folder");
    refused("tokenizer.json", "no such file or folder");
}

#[test]
fn invalid_json_is_reported_with_line_and_column() {
    let sandbox = Sandbox::new();
    let hint = "a line is one JSON object (`jq -c '.[]' FILE.json > FILE.jsonl` makes lines of an array); \
        --on-error skip leaves broken lines out";
    sandbox.write("a.jsonl", "{\"text\": \"a\"}\n{\"text\": \"b\"\n");
    refused(
        &sandbox,
        "prepare a.jsonl --out d --tokenizer byte",
        1,
        "a.jsonl: line 2, column 12: invalid JSON: EOF while parsing an object; a record is one line",
        hint,
    );
    let valid = "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\"}]}";
    sandbox.write("chat.jsonl", format!("{valid}\n{{\"messages\": [}}\n"));
    refused(
        &sandbox,
        "prepare chat.jsonl --chat-template chatml --out d --tokenizer byte",
        1,
        "chat.jsonl: line 2, column 15: invalid JSON: expected value",
        hint,
    );
    sandbox.write("array.json", "[\n{\"text\": \"a\"}\n]\n");
    refused(
        &sandbox,
        "prepare array.json --out d --tokenizer byte",
        1,
        "array.json: line 1, column 1: invalid JSON: EOF while parsing a list; a record is one line",
        hint,
    );
    refused(
        &sandbox,
        "prepare a.jsonl --field body --out d --tokenizer byte",
        1,
        "a.jsonl: line 1: no field `body`: it has `text`",
        "select the text field with --field NAME, or skip broken records with --on-error skip",
    );
    sandbox.write("chat.jsonl", "{\"messages\": []}\n");
    refused(
        &sandbox,
        "prepare chat.jsonl --chat-template chatml --out d --tokenizer byte",
        1,
        "chat.jsonl: line 1: `messages` must have at least one message",
        "a record has `messages`, `conversations` (ShareGPT), `prompt` and `completion`, or `instruction` and `output` (docs/guides/prepare-data.md); --on-error skip leaves broken records out",
    );
    assert!(!sandbox.path("d").exists());
}

#[test]
fn missing_runs_are_reported() {
    let sandbox = Sandbox::new();
    let made = "`emberlm train --out RUN` makes a run, in the folder runs by default; `emberlm runs DIR` lists them";
    refused(
        &sandbox,
        "plot nope --out p.svg",
        1,
        "no run or folder nope",
        made,
    );
    refused(&sandbox, "watch", 1, "no run or folder runs", made);
    sandbox.write("runs/talks/config.toml", "");
    sandbox.write("runs/sweep/lr-0.1/config.toml", "");
    sandbox.write("text.txt", "");
    for command in ["plot --out p.svg", "watch", "runs"] {
        for (given, meant) in [
            ("talk", "runs/talks"),
            ("runs/talsk", "runs/talks"),
            ("runs/lr-0.2", "runs/sweep/lr-0.1"),
        ] {
            let hint = format!("did you mean {meant}?");
            let error = format!("no run or folder {given}");
            refused(&sandbox, &format!("{command} {given}"), 1, &error, &hint);
        }
        refused(
            &sandbox,
            &format!("{command} text.txt"),
            1,
            "text.txt is a file, not a folder of runs",
            "a run is a folder that `emberlm train` created; `emberlm runs DIR` lists runs",
        );
    }
    sandbox.write("empty/text.txt", "");
    refused(
        &sandbox,
        "plot empty --out p.svg",
        1,
        "empty is not a run and does not contain one",
        "a run is a folder that `emberlm train` created; `emberlm runs DIR` lists runs",
    );
}

#[test]
fn values_that_are_not_numbers_are_rejected() {
    let sandbox = Sandbox::new();
    for (line, error) in [
        (
            "train --data d --steps many",
            "invalid value 'many' for '--steps <N>': must be a whole number, 0 or more",
        ),
        (
            "generate m --max-new-tokens 1.5",
            "invalid value '1.5' for '--max-new-tokens <N>': must be a whole number, 0 or more",
        ),
        (
            "new --preset pocket-tales --out m --seed 99999999999999999999",
            "invalid value '99999999999999999999' for '--seed <N>': the number is too large",
        ),
        (
            "serve m --port http",
            "invalid value 'http' for '--port <PORT>': must be a whole number, 0 or more",
        ),
    ] {
        let ran = sandbox.words(line);
        assert_eq!(
            (ran.code, ran.stderr.as_str()),
            (Some(2), format!("error: {error}\n").as_str()),
            "{line}"
        );
    }
}

#[test]
fn folders_named_like_files_are_rejected() {
    let sandbox = Sandbox::with_char_model();
    sandbox.write("sweep.toml", "preset = \"char-nano\"\n");
    let before = sandbox.names();
    for (line, what) in [
        ("export run", "a model"),
        ("new --preset pocket-tales --vocab-size 9", "a model"),
        ("prepare text.txt --tokenizer byte", "a dataset"),
        ("train --data data", "a run"),
        ("sweep sweep.toml", "a sweep"),
        ("data adopt data --tokenizer byte", "a dataset"),
        ("data export data --format npy", "an exported dataset"),
        ("tokenizer train text.txt --vocab-size 300", "a tokenizer"),
        ("tokenizer convert text.txt", "a tokenizer"),
        ("man", "a set of man pages"),
    ] {
        for extension in ["gguf", "safetensors", "BIN"] {
            // The file of another format of the command.
            if (line, extension) == ("export run", "gguf") {
                continue;
            }
            let ran = sandbox.words(&format!("{line} --out h2.{extension}"));
            let error = format!("error: invalid value 'h2.{extension}' for '--out <");
            let rule = format!(
                ">': {what} is written as a folder, not as a .{} file: name it h2\n",
                extension.to_lowercase()
            );
            assert_eq!(ran.code, Some(2), "{line}: {ran}");
            assert!(
                ran.stderr.starts_with(&error) && ran.stderr.contains(&rule),
                "{line}: {ran}"
            );
        }
    }
    assert_eq!(sandbox.names(), before);
    // A version number does not count as a file extension.
    sandbox.words("export run --out model-v1.2").ok();
}

#[test]
fn runs_cannot_be_written_into_datasets_or_models() {
    let sandbox = Sandbox::with_char_model();
    for (folder, what) in [
        ("data", "a dataset"),
        ("run/checkpoints/step-00000001", "a checkpoint"),
    ] {
        let error = format!("{folder} is the directory of {what} and cannot hold a run");
        let line = format!("train --data data --steps 1 --out {folder}");
        refused(&sandbox, &line, 1, &error, "choose another --out");
        assert!(!sandbox.path(folder).join("samples").exists());
    }
}

#[test]
fn invalid_toml_is_reported_with_line_and_column() {
    let sandbox = Sandbox::with_char_model();
    sandbox.write("broken.toml", "# settings\n[train\n");
    let reason = "line 2, column 7: unclosed table, expected `]`";
    for (line, expected) in [
        (
            "train --data data --config broken.toml",
            format!("error: broken.toml is not valid TOML: {reason}\n"),
        ),
        (
            "sweep broken.toml",
            format!("error: broken.toml: {reason}\nhint: "),
        ),
        (
            "serve --config broken.toml",
            format!("error: broken.toml: {reason}\nhint: "),
        ),
    ] {
        let ran = sandbox.words(line);
        assert!(ran.stderr.starts_with(&expected), "{line}: {ran}");
    }
}

#[test]
fn mistyped_tokenizers_suggest_the_nearest_name() {
    let sandbox = Sandbox::new();
    sandbox.write("text.txt", "text");
    let ran = sandbox.words("prepare text.txt --out d --tokenizer gtp2");
    let error = "unknown tokenizer `gtp2` (did you mean `gpt2`?): choose one of gpt2, ";
    assert!(ran.stderr.contains(error), "{ran}");
}

#[test]
fn words_of_other_programs_have_hints() {
    let sandbox = Sandbox::new();
    for (line, hint) in [
        (
            "generate m --n-predict 5",
            "hint: use `--max-new-tokens N`\n",
        ),
        ("generate m -p hello", "hint: use `--prompt TEXT`\n"),
        ("generate m --top_p 0.9", "hint: use `--top-p`\n"),
        (
            "train --device cpu",
            "hint: use `--backend flex`, which computes on the CPU; the device is a number in `emberlm devices`\n",
        ),
        (
            "runs rm x",
            "hint: emberlm deletes no runs: remove the run's folder yourself, such as runs/NAME\n",
        ),
    ] {
        let ran = sandbox.words(line);
        assert_eq!(ran.code, Some(2), "{line}");
        assert!(ran.stderr.ends_with(hint), "{line}: {}", ran.stderr);
        assert!(!ran.stderr.contains("similar"), "{line}: {}", ran.stderr);
    }
    let ran = sandbox.words("runs rm");
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.stderr.contains("emberlm deletes no runs"),
        "{}",
        ran.stderr
    );
    let ran = sandbox.words("quantize m");
    assert!(
        ran.stderr
            .contains("hint: `emberlm export MODEL --format gguf --type q8_0"),
        "{}",
        ran.stderr
    );
}
