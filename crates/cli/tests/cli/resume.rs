//! Resuming runs, and rejected resumptions.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::support::train::{TINY, trained};
use super::support::{CommandOutput, Sandbox};

fn refused(ran: CommandOutput) -> String {
    assert!(matches!(ran.code, Some(1 | 2)), "{ran}");
    assert_eq!(ran.stdout, "");
    ran.stderr
}

/// A run of 6 steps with checkpoints at 2, 4 and 6.
fn with_run() -> Sandbox {
    let sandbox = Sandbox::with_data();
    let line = "--data data --out run --steps 6 --set train.checkpoints.interval=2";
    trained(sandbox.train(line));
    sandbox
}

#[test]
fn extending_a_run_equals_a_longer_run() {
    let sandbox = Sandbox::with_data();
    // The decay is independent of the run's length, so a longer run has the same first steps.
    let line =
        "--data data --set train.schedule.decay_steps=50 --set train.schedule.warmup_steps=2";
    trained(sandbox.train(&format!("{line} --out long --steps 12")));
    trained(sandbox.train(&format!("{line} --out run --steps 6")));
    trained(sandbox.words("train --resume run --steps 12 --renderer plain"));
    assert_eq!(sandbox.losses("long"), sandbox.losses("run"));
    assert_eq!(sandbox.weights("long", 12), sandbox.weights("run", 12));
    let config = fs::read_to_string(sandbox.path("run/config.toml")).unwrap();
    assert!(config.contains("\nsteps = 12\n"), "{config}");
    // Nothing is left to do.
    let ran = sandbox.words("train --resume run --renderer plain");
    assert!(
        ran.stderr.contains("has finished all of its 12 steps"),
        "{ran}"
    );
    trained(ran);
}

#[test]
fn a_run_without_a_checkpoint_restarts() {
    let sandbox = with_run();
    fs::remove_dir_all(sandbox.path("run/checkpoints")).unwrap();
    let losses = sandbox.losses("run");
    // Discarding the log requires `--restart`.
    let message = refused(sandbox.words("train --resume run --renderer plain"));
    assert!(message.contains("run has no checkpoint yet"), "{message}");
    assert!(
        message.contains("hint: restart the run: emberlm train --resume run --restart"),
        "{message}"
    );
    assert_eq!(sandbox.losses("run"), losses);
    let ran = sandbox.words("train --resume run --restart --renderer plain");
    assert!(ran.stderr.contains("run has no checkpoint yet"), "{ran}");
    trained(ran);
    assert_eq!(sandbox.losses("run"), losses);
}

#[test]
fn incompatible_changes_are_rejected() {
    let sandbox = with_run();
    let line = "train --resume run --renderer plain";
    for (change, expected) in [
        (
            "--set train.schedule.learning_rate=0.5",
            "train.schedule.learning_rate was 0.005 and now is 0.5",
        ),
        (
            "--set model.dropout=0.5",
            "model.dropout was 0.0 and now is 0.5",
        ),
        ("--set train.seed=9", "train.seed was 1 and now is 9"),
        (
            "--set train.micro_batch=1 --set train.optimizer.beta1=0.5",
            "train.micro_batch was 4 and now is 1; train.optimizer.beta1 was 0.9 and now is 0.5",
        ),
    ] {
        let message = refused(sandbox.words(&format!("{line} {change}")));
        assert!(message.contains(expected), "{message}");
        assert!(message.contains("hint: "), "{message}");
    }
    // Settings that only affect output and storage may change.
    let may = "--steps 7 --eval-interval 3 --keep-last 2 --keep-best --set train.log_interval=2 \
        --set train.checkpoints.interval=3";
    trained(sandbox.words(&format!("{line} {may}")));
}

#[test]
fn a_different_dataset_is_rejected() {
    let sandbox = with_run();
    sandbox.write("text.txt", "0 and 1 make 1\n".repeat(100));
    sandbox
        .words("prepare text.txt --out other --tokenizer byte")
        .ok();
    let line = "train --resume run --renderer plain --steps 9";
    let message = refused(sandbox.words(&format!("{line} --data other")));
    assert!(
        message.contains("other: it has another tokenizer"),
        "{message}"
    );
    // The same alphabet with fewer characters of text.
    let text: String = (0..300)
        .map(|i| format!("{i} and {} make {}\n", i + 1, 2 * i + 1))
        .collect();
    sandbox.write("text.txt", text);
    sandbox
        .words("prepare text.txt --out data --tokenizer char --force")
        .ok();
    let message = refused(sandbox.words(line));
    assert!(message.contains("data: its train split had "), "{message}");
}

#[test]
fn a_moved_dataset_is_accepted() {
    let sandbox = with_run();
    fs::rename(sandbox.path("data"), sandbox.path("moved")).unwrap();
    assert!(
        refused(sandbox.words("train --resume run --steps 7 --renderer plain")).contains("data")
    );
    trained(sandbox.words("train --resume run --steps 7 --data moved --renderer plain"));
}

#[test]
fn a_damaged_checkpoint_is_skipped_with_a_warning() {
    let sandbox = with_run();
    let (losses, weights) = (sandbox.losses("run"), sandbox.weights("run", 6));
    // Flips a bit of an optimizer moment, which only resuming reads.
    let file = sandbox.path("run/checkpoints/step-00000006/optimizer.safetensors");
    let mut bytes = fs::read(&file).unwrap();
    let last = bytes.len() - 3;
    bytes[last] ^= 4;
    fs::write(&file, bytes).unwrap();
    let ran = sandbox.words("train --resume run --renderer plain");
    assert!(
        ran.stderr
            .contains("step-00000006 is not a complete checkpoint: optimizer.safetensors"),
        "{ran}"
    );
    assert!(ran.stderr.contains("Resuming run after step 4"), "{ran}");
    trained(ran);
    assert_eq!(sandbox.losses("run"), losses);
    assert_eq!(sandbox.weights("run", 6), weights);
    // Damaged weights exclude the checkpoint from `generate`, too.
    let file = sandbox.path("run/checkpoints/step-00000006/model.safetensors");
    fs::write(&file, b"nothing").unwrap();
    let ran = sandbox.words("generate run --max-new-tokens 3");
    assert!(ran.stderr.contains("warning: "), "{ran}");
    trained(ran);
}

#[test]
fn all_checkpoints_damaged() {
    let sandbox = with_run();
    for step in [2, 4, 6] {
        let folder = sandbox.path(format!("run/checkpoints/step-{step:08}"));
        fs::remove_file(folder.join("manifest.json")).unwrap();
    }
    let message = refused(sandbox.words("train --resume run --renderer plain"));
    assert!(
        message.contains("step-00000006 is not a complete checkpoint"),
        "{message}"
    );
}

#[test]
fn folders_that_are_not_runs_are_rejected() {
    let sandbox = Sandbox::new();
    sandbox.write("text.txt", "text");
    for (path, expected) in [
        ("nowhere", "nowhere holds no run"),
        ("text.txt", "text.txt holds no run"),
    ] {
        let message = refused(sandbox.words(&format!("train --resume {path}")));
        assert!(message.contains(expected), "{message}");
    }
    let message = refused(sandbox.words("train --resume run --preset char-nano"));
    assert!(message.contains("--preset"), "{message}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_directory_that_cannot_be_written_to() {
    let sandbox = Sandbox::with_data();
    let message = refused(sandbox.train("--data data --out /proc/run --steps 1"));
    assert!(message.contains("/proc/run"), "{message}");
}

/// Starts a run without an end and waits for its first step.
fn endless(sandbox: &Sandbox, line: &str) -> std::process::Child {
    let line = format!("train {TINY} --data data --out run --steps 1000000 {line}");
    let mut command = sandbox.command(line.split_whitespace());
    let command = command.stdout(Stdio::null()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    wait_for(|| {
        let events = fs::read_to_string(sandbox.path("run/events.jsonl")).unwrap_or_default();
        events.contains("\"event\":\"step\"")
    });
    child
}

#[track_caller]
fn wait_for(condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(
            started.elapsed() < Duration::from_secs(60),
            "it does not come"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[cfg(unix)]
fn signal(child: &std::process::Child, name: &str) {
    let number = child.id().to_string();
    let status = Command::new("kill").args([name, &number]).status();
    assert!(status.unwrap().success());
}

#[cfg(unix)]
#[test]
fn two_trainers_of_one_run() {
    let sandbox = Sandbox::with_data();
    let mut child = endless(&sandbox, "");
    let message = refused(sandbox.words("train --resume run --renderer plain"));
    let expected = format!("run is being trained by process {}", child.id());
    assert!(message.contains(&expected), "{message}");
    let message = refused(sandbox.train("--data data --out run --steps 1"));
    assert!(message.contains("run already holds a run"), "{message}");
    child.kill().unwrap();
    child.wait().unwrap();
    // The lock is released with its process.
    trained(sandbox.words("train --resume run --restart --renderer plain --steps 1"));
}

#[cfg(unix)]
#[test]
fn sigterm_ends_a_run_with_a_checkpoint() {
    let sandbox = Sandbox::with_data();
    let mut child = endless(&sandbox, "");
    signal(&child, "-TERM");
    assert!(child.wait().unwrap().success());
    let ended = sandbox.events("run", "ended");
    assert_eq!(ended[0]["how"], "interrupted");
    let step = ended[0]["step"].as_u64().unwrap() as usize;
    assert!(!sandbox.weights("run", step).is_empty());
}

/// Simulates a full disk by a limit on the file size that the log does not reach for a while, then lifts the
/// limit.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_does_not_end_a_run() {
    use rustix::process::{Pid, Resource, Rlimit, prlimit};

    let sandbox = Sandbox::with_data();
    let line = format!(
        "{} train {TINY} --data data --out run --steps 1000000 --set train.checkpoints.interval=5 \
         --set train.log_interval=5",
        env!("CARGO_BIN_EXE_emberlm")
    );
    let mut child = Command::new("sh")
        // SIGXFSZ would end the process. The program leaves ignored signals ignored.
        .args(["-c", &format!("trap '' XFSZ; ulimit -S -f 64; exec {line}")])
        .current_dir(sandbox.path(""))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let is_logged = |kind: &str| {
        let text = fs::read_to_string(sandbox.path("run/events.jsonl")).unwrap_or_default();
        text.contains(&format!("\"event\":\"{kind}\""))
    };
    wait_for(|| is_logged("checkpoint_failed"));
    assert!(!is_logged("checkpoint"));
    // Only the file being written remains of a failed checkpoint.
    let pid = Pid::from_raw(child.id() as i32).unwrap();
    let limit = Rlimit {
        current: None,
        maximum: None,
    };
    prlimit(Some(pid), Resource::Fsize, limit).unwrap();
    wait_for(|| is_logged("checkpoint"));
    signal(&child, "-INT");
    assert!(child.wait().unwrap().success());
    let steps = sandbox.events("run", "step");
    // The first failure and every fifth one are reported.
    let expected = std::iter::once(1).chain((1..).map(|n| 5 * n));
    let numbers = steps.iter().map(|e| e["step"].as_u64().unwrap());
    assert!(
        numbers.eq(expected.take(steps.len())),
        "lines are missing: {steps:?}"
    );
    trained(sandbox.words("generate run --max-new-tokens 3"));
}

#[test]
fn the_newest_and_the_best_checkpoints_are_kept() {
    let sandbox = Sandbox::with_data();
    let line = "--data data --steps 24 --eval-interval 3 --set train.checkpoints.interval=4 \
        --set train.schedule.learning_rate=3e-2 --set train.schedule.warmup_steps=2";
    trained(sandbox.train(&format!("{line} --keep-last 2 --keep-best --out run")));
    let best = sandbox
        .events("run", "evaluation")
        .iter()
        .map(|e| (e["loss"].as_f64().unwrap(), e["step"].as_u64().unwrap()))
        .min_by(|a, b| a.0.total_cmp(&b.0))
        .unwrap();
    let kept: Vec<u64> = {
        let entries = fs::read_dir(sandbox.path("run/checkpoints")).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut steps: Vec<u64> = names
            .map(|name| name.strip_prefix("step-").unwrap().parse().unwrap())
            .collect();
        steps.sort();
        steps
    };
    assert!(
        kept.contains(&24) && kept.contains(&best.1),
        "{kept:?}, best {best:?}"
    );
    assert!(kept.len() <= 3, "{kept:?}");
    trained(sandbox.train(&format!("{line} --keep-last 1 --out last")));
    let count = fs::read_dir(sandbox.path("last/checkpoints"))
        .unwrap()
        .count();
    assert_eq!(count, 1);
}

#[test]
fn a_run_that_diverges_names_its_last_good_checkpoint() {
    let sandbox = Sandbox::with_data();
    trained(sandbox.train("--data data --out start --steps 2"));
    // The learning rate exceeds f32's range, so the first update makes the weights unusable.
    let line = "--data data --out run --steps 60 --set train.schedule.learning_rate=1e38 \
        --set train.schedule.warmup_steps=0 --set train.checkpoints.interval=1 --set train.skip.limit=4";
    let ran = sandbox.train(line);
    assert_eq!(ran.code, Some(1), "{ran}");
    assert!(
        ran.stderr.contains("4 steps in a row were skipped"),
        "{ran}"
    );
    assert!(
        ran.stderr
            .contains("the last good checkpoint is run/checkpoints/step-"),
        "{ran}"
    );
    assert!(ran.stderr.contains("hint: "), "{ran}");
    let skipped = sandbox.events("run", "skipped");
    assert_eq!(skipped.len(), 4);
    assert!(
        skipped[0]["reason"].as_str().unwrap().contains("is"),
        "{:?}",
        skipped[0]
    );
    assert_eq!(sandbox.events("run", "ended")[0]["how"], "failed");
}

#[test]
fn files_for_tensorboard() {
    let sandbox = Sandbox::with_data();
    let line = "--data data --out run --steps 4 --set train.checkpoints.interval=2";
    trained(sandbox.train(&format!("{line} --tensorboard")));
    let files = || {
        fs::read_dir(sandbox.path("run/tensorboard"))
            .unwrap()
            .count()
    };
    assert_eq!(files(), 1);
    trained(sandbox.words("train --resume run --steps 5 --tensorboard --renderer plain"));
    assert_eq!(files(), 2);
    trained(sandbox.train("--data data --out plain --steps 1"));
    assert!(!sandbox.path("plain/tensorboard").exists());
}

#[cfg(unix)]
#[test]
fn a_second_ctrl_c_stops_at_once() {
    let sandbox = Sandbox::with_data();
    // A step that takes seconds of arithmetic on any machine, in 2 GB.
    let line = format!(
        "train {TINY} --data data --out run --steps 1000 --set train.micro_batch=400 \
         --set model.d_model=1024 --set model.n_layers=1 --set model.feed_forward.width=4096"
    );
    let mut command = sandbox.command(line.split_whitespace());
    let command = command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    wait_for(|| {
        let events = fs::read_to_string(sandbox.path("run/events.jsonl")).unwrap_or_default();
        events.contains("\"event\":\"begun\"")
    });
    // Wait until the micro-batch is being computed.
    std::thread::sleep(Duration::from_millis(300));
    signal(&child, "-INT");
    std::thread::sleep(Duration::from_millis(100));
    assert!(
        child.try_wait().unwrap().is_none(),
        "the first one waits for the step"
    );
    let asked = Instant::now();
    signal(&child, "-INT");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(asked.elapsed() < Duration::from_secs(1));
    assert!(sandbox.events("run", "ended").is_empty());
}

#[cfg(feature = "ndarray")]
#[test]
fn a_backend_change_is_reported() {
    let sandbox = with_run();
    let ran = sandbox.words("train --resume run --steps 7 --backend ndarray --renderer plain");
    let expected = "warning: the run was computed on flex and continues on ndarray";
    assert!(ran.stderr.contains(expected), "{ran}");
    trained(ran);
}
