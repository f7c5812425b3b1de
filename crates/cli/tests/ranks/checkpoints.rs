//! Checkpoints that all ranks write.

use std::fs;
use std::time::Instant;

use crate::support::Sandbox;
use crate::support::train::TINY;

const LINE: &str = "--accumulation 2 --set train.micro_batch=1 --set train.schedule.decay_steps=50";
const RESUME: &str = "train --resume run --steps 8 --renderer plain";

/// A limit on the file size stands for the full disk: the log still fits, and a checkpoint does not.
const FULL_DISK: &str = "trap '' XFSZ; ulimit -f 40";

/// A run `run` of two ranks with a checkpoint at step 4, and a run `whole` of one process with one at step 8.
fn begun() -> Sandbox {
    let sandbox = Sandbox::with_data();
    sandbox.trains(&format!("--data data {LINE} --steps 8 --out whole"));
    sandbox.trains_on(2, &format!("--data data {LINE} --steps 4 --out run"));
    sandbox
}

/// Asserts that step 4 is the only checkpoint, and that two ranks resume from it to the bit.
#[track_caller]
fn assert_resumed_exactly(sandbox: &Sandbox) {
    let folder = sandbox.path("run/checkpoints");
    let names = fs::read_dir(folder).unwrap().flatten();
    let names = names.map(|entry| entry.file_name().into_string().unwrap());
    let visible: Vec<String> = names.filter(|name| !name.starts_with('.')).collect();
    assert_eq!(visible, ["step-00000004"]);
    sandbox.launches(&[(2, RESUME)]);
    assert!(sandbox.checkpoint("whole", 8) == sandbox.checkpoint("run", 8));
}

/// Rank 0 tries again, as a single process does.
#[test]
fn a_full_disk_of_rank_0_keeps_the_last_checkpoint_and_the_run_is_resumed_exactly() {
    let sandbox = begun();
    let ran = sandbox.launched_from_shell([(FULL_DISK, RESUME), ("true", RESUME)]);
    assert!(ran.code.is_some_and(|code| code != 0), "{ran}");
    let expected = "error: the run ended at step 8 without a checkpoint";
    ran.says(expected);
    ran.says("File too large");
    assert_resumed_exactly(&sandbox);
}

#[test]
fn a_full_disk_of_another_rank_ends_the_job_with_its_name_and_keeps_the_last_checkpoint() {
    let sandbox = begun();
    let started = Instant::now();
    let ran = sandbox.launched_from_shell([("true", RESUME), (FULL_DISK, RESUME)]);
    let seconds = started.elapsed().as_secs_f64();
    assert!(seconds < 60.0, "{seconds} s");
    assert!(ran.code.is_some_and(|code| code != 0), "{ran}");
    let host = fs::read_to_string("/etc/hostname").unwrap_or_default();
    let expected = format!("error: rank 1 of 2 on {}", host.trim());
    ran.says(&expected);
    ran.says("File too large");
    assert_resumed_exactly(&sandbox);
}

/// Ranks with other working directories stand for machines without a shared file system: rank 1 does not see the run.
#[test]
fn a_run_that_only_rank_0_sees_has_the_checkpoints_of_one_process() {
    let sandbox = Sandbox::with_data();
    let line =
        format!("train {TINY} {LINE} --set train.checkpoints.interval=3 --steps 8 --out run");
    let settings = "--set train.checkpoints.interval=3 --steps 8 --out whole";
    sandbox.trains(&format!("--data data {LINE} {settings}"));
    fs::create_dir(sandbox.path("other")).unwrap();
    let (first, second) = (
        format!("{line} --data data"),
        format!("{line} --data ../data"),
    );
    sandbox
        .launched_from_shell([("true", &first), ("cd other", &second)])
        .exits(0);
    for step in [3, 6, 8] {
        assert!(sandbox.checkpoint("whole", step) == sandbox.checkpoint("run", step));
    }
    assert!(!sandbox.path("other/run").exists());
}
