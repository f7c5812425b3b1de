//! Runs the README's commands, in their order, in one folder.

use serde_json::json;

use super::support::Sandbox;

/// What is put after a `train` of the README, so that a test takes seconds.
const SHORT: &str = " --renderer plain --steps 2 --set train.evaluation.sample_tokens=5";

fn readme() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md");
    std::fs::read_to_string(path).unwrap()
}

/// The lines of the README's `sh` blocks that call the binary.
fn commands(readme: &str) -> Vec<String> {
    let blocks = readme.split("```sh\n").skip(1);
    let lines = blocks.flat_map(|block| block.split("```").next().unwrap_or_default().lines());
    let ours = lines.filter_map(|line| {
        let by_cargo = line.strip_prefix("cargo run --release -- ");
        by_cargo.or_else(|| line.strip_prefix("emberlm "))
    });
    ours.map(str::to_owned).collect()
}

/// The README's sweep, so short that a test takes seconds.
fn sweep(readme: &str) -> String {
    let block = readme.split("```toml\n").nth(1).unwrap();
    let text = block
        .split("```")
        .next()
        .unwrap()
        .replace("4096", "100")
        .replace("[5e-4, 2e-3, 8e-3]", "[5e-4]");
    assert!(text.contains("\"train.steps\" = 300\n"), "{text}");
    let short = "\"train.steps\" = 2\n\"train.evaluation.sample_tokens\" = 0\n";
    text.replace("\"train.steps\" = 300\n", short)
}

/// A command line's words, some of them in quotes.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for (i, part) in line.split('"').enumerate() {
        let quoted = i % 2 == 1;
        let mut pieces = if quoted {
            vec![part]
        } else {
            part.split(' ').collect()
        }
        .into_iter();
        let last = words.last_mut().unwrap();
        last.push_str(pieces.next().unwrap_or_default());
        words.extend(pieces.map(str::to_owned));
    }
    // A quoted word at the end of a line leaves nothing after it.
    words.retain(|word| !word.is_empty());
    words
}

#[test]
fn every_command_works_as_written() {
    let sandbox = Sandbox::new();
    sandbox.write("rates.toml", sweep(&readme()));
    sandbox.write(
        "book.txt",
        "The words of a book. The end of it.\n".repeat(200),
    );
    let talk = |i: usize| {
        let question = json!({ "role": "user", "content": format!("What comes after {i}?") });
        let answer = json!({ "role": "assistant", "content": format!("{}.", i + 1) });
        json!({ "messages": [question, answer] }).to_string() + "\n"
    };
    sandbox.write("talks.jsonl", (0..60).map(talk).collect::<String>());
    sandbox.write("notes.txt", "A few notes beside the book.\n".repeat(100));
    let commands = commands(&readme());
    assert!(commands.len() >= 10, "{commands:?}");
    for command in &commands {
        if command.starts_with("watch") || command.starts_with("serve") {
            assert_eq!(sandbox.serve(command).get("/").status, 200, "{command}");
            continue;
        }
        let trains = command.starts_with("train");
        let mut line = command.clone();
        if trains {
            line += SHORT;
        }
        // Weights have their layers.
        if trains && !command.contains("--from") {
            line += " --set model.n_layers=1";
        }
        let ran = sandbox.run(words(&line));
        assert_eq!(ran.code, Some(0), "{line}\n{ran}");
    }
}

#[test]
fn every_command_is_listed() {
    let readme = readme();
    let help = Sandbox::new().words("--help").ok();
    let listed = help.split("Commands:").nth(1).unwrap();
    let names = listed
        .lines()
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_whitespace().next())
        .filter(|&name| name != "help");
    for name in names {
        let row = format!("| `emberlm {name}` |");
        assert!(readme.contains(&row), "{name} is not in the README");
    }
}

#[test]
fn every_preset_is_listed() {
    let readme = readme();
    for preset in emberlm_model::families::presets() {
        let name = format!("`{}`", preset.name);
        assert!(readme.contains(&name), "{name} is not in the README");
    }
}
