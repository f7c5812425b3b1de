//! `mpirun … emberlm prepare` gives the bytes of one process.

use std::fs;

use crate::support::Sandbox;

/// A sandbox with a folder of texts and a file of conversations.
fn with_inputs() -> Sandbox {
    let sandbox = Sandbox::new();
    for name in 0..30 {
        let lines = (0..400 + name).map(|i| format!("{i} und {name}: größer als {}\n", i * name));
        sandbox.write(&format!("docs/{name:02}.txt"), lines.collect::<String>());
    }
    let talks = (0..3000).map(|i| {
        format!(
            "{{\"messages\": [{{\"role\": \"user\", \"content\": \"{i} and {i}?\"}}, \
            {{\"role\": \"assistant\", \"content\": \"{}\"}}]}}\n",
            2 * i
        )
    });
    sandbox.write("talks.jsonl", talks.collect::<String>());
    sandbox
}

/// The files of a dataset. The manifest has the command line, without which it is compared.
fn files(sandbox: &Sandbox, dataset: &str) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(sandbox.path(dataset))
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| {
            let name = entry.file_name().into_string().unwrap();
            let mut bytes = fs::read(entry.path()).unwrap();
            if name == "dataset.json" {
                let mut manifest: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
                let command = manifest.as_object_mut().unwrap().remove("command");
                assert!(command.is_some());
                bytes = serde_json::to_vec(&manifest).unwrap();
            }
            (name, bytes)
        })
        .collect();
    files.sort();
    files
}

#[test]
fn ranks_prepare_the_dataset_of_one_process() {
    let sandbox = with_inputs();
    for (name, ranks, line) in [
        ("gpt2", 2, "docs --tokenizer gpt2"),
        ("char", 3, "docs --tokenizer char --split-by hash --dedup"),
        (
            "chat",
            3,
            "talks.jsonl --tokenizer byte --chat-template chatml",
        ),
    ] {
        let of = |out: &str| format!("prepare {line} --out {name}-{out} --shard-tokens 20000");
        let one = sandbox.ok(&of("one"));
        let ran = sandbox.launched(&[(ranks, &of("ranks"))]);
        assert_eq!(ran.code, Some(0), "{ran}");
        // Only rank 0 prints.
        assert_eq!(ran.stdout, one.replace("-one", "-ranks"));
        let [one, ranks] = ["one", "ranks"].map(|out| files(&sandbox, &format!("{name}-{out}")));
        assert!(one.len() > 4);
        assert!(one == ranks, "{name}");
    }
}

#[test]
fn bad_input_leaves_nothing_behind_and_names_the_file_once() {
    let sandbox = with_inputs();
    let names = sandbox.names();
    sandbox.write("docs/15.txt", b"no \xff UTF-8");
    for (lines, expected) in [
        (
            &[(2, "prepare docs --out data --tokenizer gpt2")][..],
            "error: docs/15.txt",
        ),
        (
            &[(2, "prepare - --out data --tokenizer gpt2")],
            "error: standard input cannot be divided among ranks",
        ),
        (
            &[
                (1, "prepare talks.jsonl --out data --tokenizer byte"),
                (1, "prepare talks.jsonl --out data --tokenizer gpt2"),
            ],
            "error: rank 1 does not prepare the same dataset as rank 0: `tokenizer` is gpt2",
        ),
        (
            &[
                (1, "prepare talks.jsonl --out data --tokenizer byte"),
                (1, "prepare missing.txt --out data --tokenizer byte"),
            ],
            "error: rank 1 of 2 on ",
        ),
    ] {
        let ran = sandbox.launched(lines);
        assert!(ran.code.is_some_and(|code| code != 0), "{ran}");
        assert_eq!(ran.stdout, "", "{ran}");
        assert_eq!(ran.stderr.matches("error: ").count(), 1, "{ran}");
        ran.says(expected);
        assert!(!sandbox.path("data").exists());
    }
    // Files that a killed rank 0 left behind are replaced.
    sandbox.ok("prepare talks.jsonl --out data --tokenizer byte --chat-template chatml");
    let found = sandbox.names();
    assert_eq!(found.len(), names.len() + 1, "{found:?}");
}

#[test]
fn an_error_of_one_rank_is_printed_with_its_name_and_cleans_up() {
    let sandbox = with_inputs();
    let mut talks = sandbox.text("talks.jsonl");
    // Several rounds of waves of 4 MiB. The last wave is another rank's.
    talks = talks.repeat(30);
    talks.push_str("{\"messages\": [{\"role\": \"nobody\", \"content\": \"x\"}]}\n");
    sandbox.write("long.jsonl", talks);
    let line = "prepare long.jsonl --tokenizer byte --chat-template chatml --out";
    let one = sandbox.words(&format!("{line} one"));
    let mut names = sandbox.names();
    let ran = sandbox.launched(&[(2, &format!("{line} data"))]);
    assert_ne!(ran.code, Some(0), "{ran}");
    let message = |text: &str| {
        text.lines()
            .find(|line| line.contains("error: "))
            .unwrap()
            .to_owned()
    };
    let (expected, found) = (message(&one.stderr), message(&ran.stderr));
    let reason = expected.strip_prefix("error: ").unwrap();
    assert!(found.ends_with(reason), "{found}\n{expected}");
    // A preparation that takes longer than the interval of its journal can be resumed, which a hint says.
    if ran.stderr.contains("continue with --resume") {
        names.push(".data.partial".to_owned());
        names.sort();
    }
    assert_eq!(sandbox.names(), names, "{ran}");
}
