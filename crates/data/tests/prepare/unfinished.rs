//! Datasets that were interrupted at any moment and resumed have the same bytes as without interruption.

use std::collections::BTreeMap;
use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use crate::prepare::common::{Workspace, options};
use crate::prepare::ranks::on_ranks;
use emberlm_data::{DataError, PrepareOptions, Progress, SplitRule, prepare};
use emberlm_tokenizer::TokenizerKind;

/// Environment variable: the folder of the child process.
const FOLDER: &str = "EMBERLM_TEST_FOLDER";
const CASE: &str = "EMBERLM_TEST_CASE";
const THREADS: &str = "EMBERLM_TEST_THREADS";
/// Environment variable: the number of steps before the child process aborts. Steps are the same moments on every
/// machine.
const STEPS: &str = "EMBERLM_TEST_STEPS";

/// Environment variable: the number of ranks of the child process.
const RANKS: &str = "EMBERLM_TEST_RANKS";

/// The names of the test cases.
pub const CASES: [&str; 6] = [
    "position",
    "hash-dedup",
    "position-dedup",
    "file",
    "char",
    "records",
];

/// The inputs and options of a test case.
pub fn case(name: &str, folder: &Path) -> (Vec<PathBuf>, PrepareOptions) {
    let base = PrepareOptions {
        shard_tokens: 60_000,
        // Save the progress after every wave. Waves are limited to the same size.
        journal_bytes: 24_000,
        resume: true,
        ..options(TokenizerKind::Byte, 0.2)
    };
    let (inputs, val) = (vec![folder.join("in")], vec![folder.join("val")]);
    let options = match name {
        "position" => base,
        "char" => PrepareOptions {
            tokenizer: TokenizerKind::Char.into(),
            ..base
        },
        "records" => {
            let inputs = vec![folder.join("records.jsonl")];
            return (
                inputs,
                PrepareOptions {
                    dedup: true,
                    ..base
                },
            );
        }
        "hash-dedup" => PrepareOptions {
            split: Some(SplitRule::Hash),
            dedup: true,
            ..base
        },
        "position-dedup" => PrepareOptions {
            dedup: true,
            ..base
        },
        _ => PrepareOptions { val, ..base },
    };
    (inputs, options)
}

/// Several hundred small documents with duplicates, and two documents of several blocks.
pub fn corpus() -> Workspace {
    let workspace = Workspace::new();
    let text = |i: usize| format!("Document {i}, größer als eins.\n").repeat(20 + i * 37 % 90);
    for i in 0..300 {
        let same = if i % 7 == 3 { i / 2 } else { i };
        workspace.file(&format!("{i:03}.txt"), text(same));
    }
    for (name, i) in [("100-long.txt", 1), ("zz-long.txt", 2)] {
        workspace.file(name, text(i).repeat(350));
    }
    let line = |i: usize| serde_json::json!({ "text": text(i % 1000) }).to_string() + "\n";
    let lines: String = (0..1200).map(line).collect();
    fs::write(workspace.path("records.jsonl"), lines).unwrap();
    fs::create_dir(workspace.path("val")).unwrap();
    for i in 0..50 {
        fs::write(workspace.path(&format!("val/{i}.txt")), text(i * 3)).unwrap();
    }
    workspace
}

/// The child process of the tests below. Does nothing when run as a normal test.
#[test]
fn child_process() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else {
        return;
    };
    let number = |name| std::env::var(name).unwrap().parse::<usize>().unwrap();
    let (inputs, mut options) = case(&std::env::var(CASE).unwrap(), &folder);
    options.threads = NonZero::new(number(THREADS));
    let left = AtomicUsize::new(number(STEPS));
    let abort = |_| {
        if left.fetch_sub(1, Ordering::SeqCst) == 0 {
            std::process::abort();
        }
    };
    let out = folder.join("out");
    match number(RANKS) {
        1 => drop(prepare(&inputs, &out, &options, &abort).unwrap()),
        ranks => on_ranks(ranks, &inputs, &out, &options, &abort)
            .into_iter()
            .for_each(|result| drop(result.unwrap())),
    }
}

/// Starts a process that prepares the case with `ranks` threads as ranks, and aborts after some steps.
pub fn start(
    workspace: &Workspace,
    case: &str,
    ranks: usize,
    threads: usize,
    steps: usize,
) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "prepare::unfinished::child_process"])
        .env(FOLDER, workspace.path(""))
        .env(CASE, case)
        .env(RANKS, ranks.to_string())
        .env(THREADS, threads.to_string())
        .env(STEPS, steps.to_string());
    let command = command.stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap()
}

fn read_files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    let read = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().unwrap();
        (name, fs::read(entry.path()).unwrap())
    };
    entries.map(read).collect()
}

/// The files of the case without interruption.
pub fn uninterrupted(workspace: &Workspace, name: &str) -> BTreeMap<String, Vec<u8>> {
    let (inputs, options) = case(name, &workspace.path(""));
    let out = workspace.path("uninterrupted");
    prepare(&inputs, &out, &options, &|_| {}).unwrap();
    let files = read_files(&out);
    assert!(files.len() > 20, "{:?}", files.keys());
    fs::remove_dir_all(out).unwrap();
    files
}

pub fn check(workspace: &Workspace, expected: &BTreeMap<String, Vec<u8>>) {
    let found = read_files(&workspace.out());
    assert_eq!(
        found.keys().collect::<Vec<_>>(),
        expected.keys().collect::<Vec<_>>()
    );
    for (name, bytes) in &found {
        assert!(*bytes == expected[name], "{name} differs");
    }
    let mut left = workspace.left();
    left.sort();
    assert_eq!(left, ["out", "records.jsonl", "val"]);
}

/// The modification time of the first shard, once the second one was begun.
fn first_shard(workspace: &Workspace) -> Option<SystemTime> {
    let data = workspace.path(".out.partial/data");
    let noted = workspace.path(".out.partial/progress.json").exists();
    let full = noted && data.join("train_00002.bin").exists();
    full.then(|| modified(&data.join("train_00000.bin")))
}

fn modified(path: &Path) -> SystemTime {
    fs::metadata(path).unwrap().modified().unwrap()
}

#[test]
fn repeated_aborts_do_not_change_the_bytes() {
    for name in CASES {
        let workspace = corpus();
        let expected = uninterrupted(&workspace, name);
        let (mut kills, mut first) = (0, None);
        loop {
            let mut child = start(&workspace, name, 1, 1 + kills % 2, 10 + 7 * kills);
            if child.wait().unwrap().success() {
                break;
            }
            kills += 1;
            first = first.or_else(|| first_shard(&workspace));
            assert!(kills < 100, "{name} does not come to its end");
        }
        assert!(kills >= 3, "{name}: {kills} kills");
        check(&workspace, &expected);
        // The dataset was resumed, not restarted.
        let shard = workspace.out().join("train_00000.bin");
        assert_eq!(first, Some(modified(&shard)), "{name}");
    }
}

#[test]
fn kills_do_not_change_the_bytes() {
    let workspace = corpus();
    let expected = uninterrupted(&workspace, "hash-dedup");
    for step in [3, 11, 29] {
        let mut delay = Duration::from_millis(step);
        loop {
            let mut child = start(&workspace, "hash-dedup", 1, 2, usize::MAX);
            let started = Instant::now();
            while started.elapsed() < delay && child.try_wait().unwrap().is_none() {
                thread::sleep(Duration::from_micros(300));
            }
            // SIGKILL on Unix.
            let _ = child.kill();
            if child.wait().unwrap().success() {
                break;
            }
            delay += Duration::from_millis(step);
        }
        check(&workspace, &expected);
        fs::remove_dir_all(workspace.out()).unwrap();
    }
}

/// A corpus with an unfinished dataset.
fn unfinished() -> (Workspace, Vec<PathBuf>, PrepareOptions) {
    let workspace = corpus();
    let status = start(&workspace, "position", 1, 1, 20).wait().unwrap();
    assert!(!status.success());
    assert!(workspace.path(".out.partial/progress.json").exists());
    let (inputs, options) = case("position", &workspace.path(""));
    (workspace, inputs, options)
}

#[test]
fn resume_error_names_the_old_and_new_value() {
    let (workspace, inputs, options) = unfinished();
    let error_message = |inputs: &[PathBuf], options: &PrepareOptions| {
        let error = prepare(inputs, &workspace.out(), options, &|_| {}).unwrap_err();
        assert!(matches!(error, DataError::CannotContinue { .. }), "{error}");
        error.to_string()
    };
    let mut other = options.clone();
    other.shard_tokens = 7;
    assert!(
        error_message(&inputs, &other).ends_with("out: `shard_tokens` was 60000 and now is 7"),
        "{}",
        error_message(&inputs, &other)
    );
    let mut other = options.clone();
    other.tokenizer = TokenizerKind::Char.into();
    let message = error_message(&inputs, &other);
    assert!(message.contains("`tokenizer` was byte "), "{message}");
    assert!(message.ends_with(" and now is char"), "{message}");
    let mut other = options.clone();
    other.dedup = true;
    assert!(error_message(&inputs, &other).ends_with("`dedup` was false and now is true"));
    let one = [workspace.path("in/000.txt")];
    assert!(error_message(&one, &options).ends_with("there were 302 inputs and now are 1"));
    let changed = workspace.file("150.txt", "changed");
    let message = error_message(&inputs, &options);
    let expected = format!("{} had ", changed.display());
    assert!(message.contains(&expected), "{message}");
    assert!(
        message.contains(" and now has 7 bytes written to at "),
        "{message}"
    );
}

#[test]
fn unfinished_dataset_is_reported_and_restarted_on_request() {
    let (workspace, inputs, options) = unfinished();
    let mut again = PrepareOptions {
        resume: false,
        ..options
    };
    let error = prepare(&inputs, &workspace.out(), &again, &|_| {}).unwrap_err();
    assert!(
        matches!(error, DataError::UnfinishedExists { .. }),
        "{error}"
    );
    assert!(workspace.path(".out.partial/progress.json").exists());
    // A restarted dataset may differ.
    again.force = true;
    again.shard_tokens = 90_000;
    workspace.prepared(&inputs, &again);
    let mut left = workspace.left();
    left.sort();
    assert_eq!(left, ["out", "records.jsonl", "val"]);
}

#[test]
fn error_keeps_the_progress_and_reports_it() {
    let workspace = corpus();
    let (inputs, options) = case("position", &workspace.path(""));
    let change = |progress| {
        if matches!(progress, Progress::Start { phase, .. } if phase == emberlm_data::Phase::Tokenize)
        {
            workspace.file("zz-long.txt", "shorter");
        }
    };
    let error = prepare(&inputs, &workspace.out(), &options, &change).unwrap_err();
    assert!(matches!(error, DataError::Kept { .. }), "{error}");
    assert!(
        error
            .to_string()
            .ends_with("zz-long.txt changed while it was being read")
    );
    assert!(workspace.path(".out.partial/progress.json").exists());
}

#[test]
fn second_writing_process_is_rejected() {
    let workspace = corpus();
    let (inputs, options) = case("position", &workspace.path(""));
    let second = |progress| {
        if matches!(progress, Progress::Start { .. }) {
            let error = prepare(&inputs, &workspace.out(), &options, &|_| {}).unwrap_err();
            assert!(matches!(error, DataError::OutputBusy { .. }), "{error}");
        }
    };
    prepare(&inputs, &workspace.out(), &options, &second).unwrap();
}

#[test]
fn kill_during_the_exchange_loses_neither_dataset() {
    let workspace = corpus();
    let (inputs, options) = case("position", &workspace.path(""));
    workspace.prepared(&inputs, &options);
    let expected = read_files(&workspace.out());

    // Killed after the new dataset was moved to its path: only the cleanup is left.
    fs::create_dir(workspace.path(".out.partial")).unwrap();
    fs::write(workspace.path(".out.partial/progress.json"), "{}").unwrap();
    let again = workspace.prepared(&inputs, &options);
    assert_eq!(again.manifest.command, options.command);
    check(&workspace, &expected);

    // Killed after the old dataset was moved away: it is restored, and not replaced without `force`.
    fs::create_dir_all(workspace.path(".out.partial/data")).unwrap();
    fs::rename(workspace.out(), workspace.path(".out.partial/replaced")).unwrap();
    let once = PrepareOptions {
        resume: false,
        ..options
    };
    let error = prepare(&inputs, &workspace.out(), &once, &|_| {}).unwrap_err();
    assert!(matches!(error, DataError::OutputExists { .. }), "{error}");
    check(&workspace, &expected);
}
