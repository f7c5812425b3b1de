//! Runs the commands of the README, the tour and the page about transformers in order, each page in its own folder.

use serde_json::json;

use super::support::model::write_encoder;
use super::support::{AssertText, Sandbox};

/// Options appended to every `train` to keep the test fast.
const SHORT: &str = " --renderer plain --steps 2 --set train.evaluation.sample_tokens=5";

/// The text of a file, by its path in the repository.
fn page(path: &str) -> String {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../");
    std::fs::read_to_string(format!("{root}{path}")).unwrap()
}

fn readme() -> String {
    page("README.md")
}

/// The lines of a page's `sh` blocks that run the binary.
fn commands(page: &str) -> Vec<String> {
    let blocks = page.split("```sh\n").skip(1);
    let lines = blocks.flat_map(|block| block.split("```").next().unwrap_or_default().lines());
    let ours = lines.filter_map(|line| {
        let by_cargo = line.strip_prefix("cargo run --release -- ");
        by_cargo.or_else(|| line.strip_prefix("emberlm "))
    });
    ours.map(str::to_owned).collect()
}

/// The page's TOML file with the given line.
fn toml_with<'a>(page: &'a str, line: &str) -> &'a str {
    let blocks = page.split("```toml\n").skip(1);
    let mut files = blocks.filter_map(|block| block.split("```").next());
    files.find(|file| file.contains(line)).unwrap()
}

/// The page's sweep file, shortened to keep the test fast.
fn sweep(page: &str) -> String {
    let text = toml_with(page, "[grid]")
        .replace("4096", "100")
        .replace("[5e-4, 2e-3, 8e-3]", "[5e-4]");
    text.assert_has("\"train.steps\" = 300\n");
    let short = "\"train.steps\" = 2\n\"train.evaluation.sample_tokens\" = 0\n";
    text.replace("\"train.steps\" = 300\n", short)
}

/// Splits a command line into words. Words in double quotes may contain spaces.
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
    // A quoted word at the end of a line leaves an empty word.
    words.retain(|word| !word.is_empty());
    words
}

/// Runs every command of a page in one folder with the files that the page needs. Returns the folder.
fn run_commands(page: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    if page.contains("rates.toml") {
        sandbox.write("rates.toml", sweep(page));
    }
    if page.contains("patches.toml") {
        sandbox.write("patches.toml", toml_with(page, "[[patch]]"));
    }
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
    sandbox.write("questions.txt", "w1 w2 w3\nw4 w5\n");
    write_encoder(&sandbox.path("encoder"));
    let commands = commands(page);
    assert!(commands.len() >= 10, "{commands:?}");
    for command in &commands {
        if command.starts_with("watch") || command.starts_with("serve") {
            assert_eq!(sandbox.serve(command).get("/").status, 200, "{command}");
            continue;
        }
        // Downloads are tested in the crate `emberlm-hub`, without the Internet.
        if command.starts_with("pull") {
            continue;
        }
        let trains = command.starts_with("train");
        let mut line = command.clone();
        if trains {
            line += SHORT;
        }
        // With `--from`, the weights determine the number of layers.
        if trains && !command.contains("--from") {
            line += " --set model.n_layers=1";
        }
        let ran = sandbox.run(words(&line));
        assert_eq!(ran.code, Some(0), "{line}\n{ran}");
    }
    sandbox
}

#[test]
fn every_command_works_as_written() {
    run_commands(&readme());
}

#[test]
fn every_command_of_the_tour_works_as_written() {
    run_commands(&page("docs/guides/tour.md"));
}

#[test]
fn every_command_of_the_kinds_of_transformers_works_as_written() {
    let page = page("docs/explanations/transformer-kinds.md");
    let sandbox = run_commands(&page);
    // Each picture on the page has a command that draws it.
    let shown = page.split("(../images/kinds-").skip(1);
    let shown: Vec<&str> = shown.map(|rest| rest.split(')').next().unwrap()).collect();
    assert_eq!(shown.len(), 5);
    for picture in shown {
        assert!(sandbox.path(picture).exists(), "{picture}");
    }
}

#[test]
fn every_command_is_in_the_tour() {
    let tour = commands(&page("docs/guides/tour.md"));
    for name in command_names() {
        let used = tour.iter().any(|line| words(line)[0] == name);
        assert!(used, "{name} is not in docs/guides/tour.md");
    }
}

/// The commands that `emberlm --help` lists.
fn command_names() -> Vec<String> {
    let help = Sandbox::new().ok("--help");
    let listed = help.split("Commands:").nth(1).unwrap();
    let names = listed
        .lines()
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_whitespace().next())
        .filter(|&name| name != "help");
    names.map(str::to_owned).collect()
}

#[test]
fn every_command_is_listed() {
    let readme = readme();
    for name in command_names() {
        let row = format!("| `emberlm {name}` |");
        assert!(readme.contains(&row), "{name} is not in the README");
    }
}

#[test]
fn every_preset_is_listed() {
    let readme = readme();
    for preset in emberlm_model::families::presets() {
        let name = format!("`{}`", preset.name);
        readme.assert_has(&name);
    }
}
