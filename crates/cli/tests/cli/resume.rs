//! Resuming runs, and rejected resumptions.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[cfg(unix)]
use rustix::process::Signal;

#[cfg(unix)]
use super::signals::send;
use super::support::train::TINY;
use super::support::{AssertText, Sandbox, wait_until};

/// A run of 6 steps with checkpoints at 2, 4 and 6.
fn with_run() -> Sandbox {
    let sandbox = Sandbox::with_data();
    let line = "--data data --out run --steps 6 --set train.checkpoints.interval=2";
    sandbox.trains(line);
    sandbox
}

#[test]
fn extending_a_run_equals_a_longer_run() {
    let sandbox = Sandbox::with_data();
    // The decay is independent of the run's length, so a longer run has the same first steps.
    let line =
        "--data data --set train.schedule.decay_steps=50 --set train.schedule.warmup_steps=2";
    sandbox.trains(&format!("{line} --out long --steps 12"));
    sandbox.trains(&format!("{line} --out run --steps 6"));
    sandbox.succeeds("train --resume run --steps 12 --renderer plain");
    assert_eq!(sandbox.losses("long"), sandbox.losses("run"));
    assert_eq!(sandbox.weights("long", 12), sandbox.weights("run", 12));
    let config = sandbox.text("run/config.toml");
    config.assert_has("\nsteps = 12\n");
    // Nothing is left to do.
    let ran = sandbox.succeeds("train --resume run --renderer plain");
    ran.says("has finished all of its 12 steps");
}

#[test]
fn a_run_without_a_checkpoint_restarts() {
    let sandbox = with_run();
    fs::remove_dir_all(sandbox.path("run/checkpoints")).unwrap();
    let losses = sandbox.losses("run");
    // Discarding the log requires `--restart`.
    let message = sandbox.refusal("train --resume run --renderer plain");
    message.assert_has("run has no checkpoint yet");
    message.assert_has("hint: restart the run: emberlm train --resume run --restart");
    assert_eq!(sandbox.losses("run"), losses);
    let ran = sandbox.succeeds("train --resume run --restart --renderer plain");
    ran.says("run has no checkpoint yet");
    assert_eq!(sandbox.losses("run"), losses);
}

#[test]
fn incompatible_changes_are_rejected() {
    let sandbox = with_run();
    sandbox.check_messages("resume_changes");
    // Settings that only affect output and storage may change.
    let may = "--steps 7 --eval-interval 3 --keep-last 2 --keep-best --set train.log_interval=2 \
        --set train.checkpoints.interval=3";
    sandbox.succeeds(&format!("train --resume run --renderer plain {may}"));
}

#[test]
fn a_different_dataset_is_rejected() {
    let sandbox = with_run();
    sandbox.write("text.txt", "0 and 1 make 1\n".repeat(100));
    sandbox.ok("prepare text.txt --out other --tokenizer byte");
    let line = "train --resume run --renderer plain --steps 9";
    let message = sandbox.refusal(&format!("{line} --data other"));
    message.assert_has("other: it has another tokenizer");
    // The same alphabet with fewer characters of text.
    let text: String = (0..300)
        .map(|i| format!("{i} and {} make {}\n", i + 1, 2 * i + 1))
        .collect();
    sandbox.write("text.txt", text);
    sandbox.ok("prepare text.txt --out data --tokenizer char --force");
    let message = sandbox.refusal(line);
    message.assert_has("data: its train split had ");
}

#[test]
fn a_moved_dataset_is_accepted() {
    let sandbox = with_run();
    fs::rename(sandbox.path("data"), sandbox.path("moved")).unwrap();
    assert!(
        sandbox
            .refusal("train --resume run --steps 7 --renderer plain")
            .contains("data")
    );
    sandbox.succeeds("train --resume run --steps 7 --data moved --renderer plain");
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
    let ran = sandbox.succeeds("train --resume run --renderer plain");
    ran.says("step-00000006 is not a complete checkpoint: optimizer.safetensors");
    ran.says("Resuming run after step 4");
    assert_eq!(sandbox.losses("run"), losses);
    assert_eq!(sandbox.weights("run", 6), weights);
    // Damaged weights exclude the checkpoint from `generate`, too.
    let file = sandbox.path("run/checkpoints/step-00000006/model.safetensors");
    fs::write(&file, b"nothing").unwrap();
    let ran = sandbox.succeeds("generate run --max-new-tokens 3");
    ran.says("warning: ");
}

#[test]
fn all_checkpoints_damaged() {
    let sandbox = with_run();
    for step in [2, 4, 6] {
        let folder = sandbox.path(format!("run/checkpoints/step-{step:08}"));
        fs::remove_file(folder.join("manifest.json")).unwrap();
    }
    let message = sandbox.refusal("train --resume run --renderer plain");
    message.assert_has("step-00000006 is not a complete checkpoint");
}

#[cfg(target_os = "linux")]
#[test]
fn a_directory_that_cannot_be_written_to() {
    let sandbox = Sandbox::with_data();
    let message = sandbox
        .train("--data data --out /proc/run --steps 1")
        .refusal();
    message.assert_has("/proc/run");
}

/// Starts a run without an end and waits for its first step.
fn endless(sandbox: &Sandbox, line: &str) -> std::process::Child {
    let line = format!("train {TINY} --data data --out run --steps 1000000 {line}");
    let mut command = sandbox.command(line.split_whitespace());
    let command = command.stdout(Stdio::null()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    wait_until("the run's events", || {
        let events = fs::read_to_string(sandbox.path("run/events.jsonl")).unwrap_or_default();
        events.contains("\"event\":\"step\"")
    });
    child
}

#[cfg(unix)]
#[test]
fn two_trainers_of_one_run() {
    let sandbox = Sandbox::with_data();
    let mut child = endless(&sandbox, "");
    let message = sandbox.refusal("train --resume run --renderer plain");
    let expected = format!("run is being trained by process {}", child.id());
    message.assert_has(&expected);
    let message = sandbox.train("--data data --out run --steps 1").refusal();
    message.assert_has("run already holds a run");
    child.kill().unwrap();
    child.wait().unwrap();
    // The lock is released with its process.
    sandbox.succeeds("train --resume run --restart --renderer plain --steps 1");
}

#[cfg(unix)]
#[test]
fn sigterm_ends_a_run_with_a_checkpoint() {
    let sandbox = Sandbox::with_data();
    let mut child = endless(&sandbox, "");
    send(&child, Signal::TERM);
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
    wait_until("a failure", || is_logged("checkpoint_failed"));
    assert!(!is_logged("checkpoint"));
    // Only the file being written remains of a failed checkpoint.
    let pid = Pid::from_raw(child.id() as i32).unwrap();
    let limit = Rlimit {
        current: None,
        maximum: None,
    };
    prlimit(Some(pid), Resource::Fsize, limit).unwrap();
    wait_until("a checkpoint", || is_logged("checkpoint"));
    send(&child, Signal::INT);
    assert!(child.wait().unwrap().success());
    let steps = sandbox.events("run", "step");
    // The first failure and every fifth one are reported.
    let expected = std::iter::once(1).chain((1..).map(|n| 5 * n));
    let numbers = steps.iter().map(|e| e["step"].as_u64().unwrap());
    assert!(
        numbers.eq(expected.take(steps.len())),
        "lines are missing: {steps:?}"
    );
    sandbox.succeeds("generate run --max-new-tokens 3");
}

#[test]
fn the_newest_and_the_best_checkpoints_are_kept() {
    let sandbox = Sandbox::with_data();
    let line = "--data data --steps 24 --eval-interval 3 --set train.checkpoints.interval=4 \
        --set train.schedule.learning_rate=3e-2 --set train.schedule.warmup_steps=2";
    sandbox.trains(&format!("{line} --keep-last 2 --keep-best --out run"));
    let best = sandbox
        .events("run", "evaluation")
        .iter()
        .map(|e| (e["loss"].as_f64().unwrap(), e["step"].as_u64().unwrap()))
        .min_by(|a, b| a.0.total_cmp(&b.0))
        .unwrap();
    let kept = sandbox.steps("run");
    assert!(
        kept.contains(&24) && kept.contains(&best.1),
        "{kept:?}, best {best:?}"
    );
    assert!(kept.len() <= 3, "{kept:?}");
    sandbox.trains(&format!("{line} --keep-last 1 --out last"));
    assert_eq!(sandbox.steps("last").len(), 1);
}

#[test]
fn a_run_that_diverges_names_its_last_good_checkpoint() {
    let sandbox = Sandbox::with_data();
    sandbox.trains("--data data --out start --steps 2");
    // The learning rate exceeds f32's range, so the first update makes the weights unusable.
    let line = "--data data --out run --steps 60 --set train.schedule.learning_rate=1e38 \
        --set train.schedule.warmup_steps=0 --set train.checkpoints.interval=1 --set train.skip.limit=4";
    let ran = sandbox.train(line).exits(1);
    ran.says("4 steps in a row were skipped");
    ran.says("the last good checkpoint is run/checkpoints/step-");
    ran.says("hint: ");
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
    sandbox.trains(&format!("{line} --tensorboard"));
    let files = || sandbox.names_in("run/tensorboard").len();
    assert_eq!(files(), 1);
    sandbox.succeeds("train --resume run --steps 5 --tensorboard --renderer plain");
    assert_eq!(files(), 2);
    sandbox.trains("--data data --out plain --steps 1");
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
    let mut child = sandbox.background(&line);
    wait_until("the run's events", || {
        let events = fs::read_to_string(sandbox.path("run/events.jsonl")).unwrap_or_default();
        events.contains("\"event\":\"begun\"")
    });
    // Wait until the micro-batch is being computed.
    std::thread::sleep(Duration::from_millis(300));
    send(&child, Signal::INT);
    std::thread::sleep(Duration::from_millis(100));
    assert!(
        child.try_wait().unwrap().is_none(),
        "the first one waits for the step"
    );
    let asked = Instant::now();
    send(&child, Signal::INT);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(asked.elapsed() < Duration::from_secs(1));
    assert!(sandbox.events("run", "ended").is_empty());
}

#[cfg(feature = "ndarray")]
#[test]
fn a_backend_change_is_reported() {
    let sandbox = with_run();
    let ran = sandbox.succeeds("train --resume run --steps 7 --backend ndarray --renderer plain");
    let expected = "warning: the run was computed on flex and continues on ndarray";
    ran.says(expected);
}
