//! Runs the examples as a user would.

#![allow(clippy::unwrap_used)]

mod models;

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use emberlm::Model;
use models::write_model;

fn run(program: &str, args: &[&str]) -> io::Result<Output> {
    Command::new(program).args(args).output()
}

#[test]
fn a_custom_training_loop_lowers_the_loss() {
    let output = run(env!("CARGO_BIN_EXE_train-loop"), &["25"]).unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let losses: Vec<f64> = text
        .lines()
        .map(|line| line.rsplit(' ').next().unwrap().parse().unwrap())
        .collect();
    assert_eq!(losses.len(), 25);
    // The initial loss of an untrained model with 54 characters is slightly above ln 54 = 3.99.
    assert!((3.8..4.6).contains(&losses[0]), "{}", losses[0]);
    assert!(losses[24] < 2.9, "{}", losses[24]);
}

#[test]
fn the_library_guide_matches_the_compiled_program() {
    let program = include_str!("../readme.rs");
    let (_, code) = program.split_once("use emberlm").unwrap();
    let guide = include_str!("../../docs/guides/library.md");
    assert!(
        guide.contains(&format!("```rust\nuse emberlm{code}```\n")),
        "examples/readme.rs differs from docs/guides/library.md"
    );
}

#[test]
fn the_readme_excerpt_matches_the_program() {
    let program: Vec<&str> = include_str!("../readme.rs")
        .lines()
        .map(str::trim)
        .collect();
    let readme = include_str!("../../README.md");
    let (_, after) = readme.split_once("```rust\n").unwrap();
    let (excerpt, _) = after.split_once("```").unwrap();
    for line in excerpt.lines() {
        assert!(
            program.contains(&line.trim()),
            "{line:?} is not in examples/readme.rs"
        );
    }
}

#[test]
fn the_library_guide_names_an_existing_crate_and_its_features() {
    let guide = include_str!("../../docs/guides/library.md");
    let (_, after) = guide
        .split_once("[dependencies]\nemberlm = { path = \"../emberlm/")
        .unwrap();
    let (folder, after) = after.split_once('"').unwrap();
    let (_, after) = after.split_once("features = [").unwrap();
    let (features, _) = after.split_once(']').unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let manifest = std::fs::read_to_string(root.join(folder).join("Cargo.toml")).unwrap();
    assert!(manifest.contains("\nname = \"emberlm\"\n"), "{manifest}");
    for feature in features.split(", ") {
        let feature = feature.trim_matches('"');
        assert!(manifest.contains(&format!("\n{feature} = [")), "{feature}");
    }
}

/// The guide shows the end of the output. The loss differs between CPUs.
#[test]
fn the_program_of_the_library_guide_prints_what_the_guide_shows() {
    let folder = tempfile::tempdir().unwrap();
    let mut program = Command::new(env!("CARGO_BIN_EXE_readme"));
    let output = program.current_dir(folder.path()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8(output.stdout).unwrap();
    let guide = include_str!("../../docs/guides/library.md");
    let (_, after) = guide.split_once("```text\n").unwrap();
    let (shown, _) = after.split_once("```").unwrap();
    let last = |text: &str| text.lines().last().unwrap().to_owned();
    assert_eq!(last(&printed), last(shown));
    assert!(
        printed.contains("\nstep 60/60  validation loss 0.1"),
        "{printed}"
    );
}

#[test]
fn a_run_is_loaded_and_text_is_streamed() {
    let folder = tempfile::tempdir().unwrap();
    write_model(&folder.path().join("checkpoints/step-00000001"));
    let path = folder.path().to_str().unwrap();
    let output = run(env!("CARGO_BIN_EXE_generate"), &[path, "abc"]).unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    // 200 tokens of one character each, and a line break.
    assert_eq!(text.chars().count(), 201, "{text:?}");
}

#[test]
fn custom_tokens_are_trained_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let output = run(env!("CARGO_BIN_EXE_train"), &[path.to_str().unwrap(), "6"]).unwrap();
    assert!(output.status.success(), "{output:?}");
    let model = Model::open(&path).unwrap();
    assert_eq!(model.about().unwrap(), "a checkpoint after 6 steps");
    assert_eq!(model.config().seq_len(), 64);
    assert!(path.join("config.toml").exists());
}

#[test]
fn a_model_is_served_in_process() {
    let folder = tempfile::tempdir().unwrap();
    write_model(folder.path());
    let mut server = Command::new(env!("CARGO_BIN_EXE_serve"))
        .arg(folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut stdout = BufReader::new(server.stdout.take().unwrap());
    stdout.read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("http://").unwrap();

    let body = r#"{"model": "example", "prompt": "abc", "max_tokens": 5}"#;
    let length = body.len();
    let request = format!(
        "POST /v1/completions HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert!(answer.contains(r#""completion_tokens":5"#), "{answer}");

    // The end of standard input stops the server.
    drop(server.stdin.take());
    assert!(server.wait().unwrap().success());
}

/// The figure of docs/explanations/training-step.md: six panels with lines on white.
#[test]
fn schedules_are_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("schedules.png");
    let output = run(env!("CARGO_BIN_EXE_schedules"), &[path.to_str().unwrap()]).unwrap();
    assert!(output.status.success(), "{output:?}");
    let file = BufReader::new(std::fs::File::open(path).unwrap());
    let mut reader = png::Decoder::new(file).read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut pixels).unwrap();
    let (width, height) = (info.width as usize, info.height as usize);
    // The colours of the five schedules, each in a separate panel.
    let colours = [
        [0, 0, 0],
        [0, 114, 178],
        [0, 158, 115],
        [213, 94, 0],
        [204, 121, 167],
    ];
    for (panel, colour) in colours.iter().enumerate() {
        let (left, top) = (panel % 3 * width / 3, panel / 3 * height / 2);
        let drawn = (top..top + height / 2)
            .flat_map(|y| (left..left + width / 3).map(move |x| 3 * (y * width + x)))
            .filter(|&at| pixels[at..at + 3] == *colour);
        assert!(drawn.count() > 200, "panel {panel}");
    }
}

#[test]
fn generating_needs_a_model() {
    let output = run(env!("CARGO_BIN_EXE_generate"), &[]).unwrap();
    assert!(!output.status.success());
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("usage: generate MODEL"), "{text}");
}
