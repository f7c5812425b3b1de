//! Jobs that are refused before their first step.

use crate::launch::Launcher;
use crate::support::train::TINY;
use crate::support::{CommandOutput, Sandbox};

/// The standard error of a job that was refused without training.
#[track_caller]
fn refused(sandbox: &Sandbox, ran: &CommandOutput) -> String {
    assert!(ran.code.is_some_and(|code| code != 0), "{ran}");
    assert_eq!(ran.stdout, "");
    assert!(!sandbox.path("run/events.jsonl").exists(), "{ran}");
    ran.stderr.clone()
}

#[test]
fn ranks_that_train_different_runs_are_refused() {
    let sandbox = Sandbox::with_data();
    sandbox.write(
        "other.txt",
        "0 and 1 make 1 + 2, as 3 and 5 make 8\n".repeat(200),
    );
    sandbox.succeeds("prepare other.txt --out other --tokenizer byte");
    let line = format!("train {TINY} --accumulation 2 --out run");
    for (change, expected) in [
        ("--data data --seed 2", "train.seed is 2, and 1 on rank 0"),
        (
            "--data data --steps 3",
            "train.steps is 3, and 1000 on rank 0",
        ),
        (
            "--data data --learning-rate 0.5",
            "train.schedule.learning_rate is 0.5",
        ),
        (
            "--data other",
            "its dataset has other tokens than that of rank 0",
        ),
    ] {
        let (first, second) = (format!("{line} --data data"), format!("{line} {change}"));
        let ran = sandbox.launched(&[(1, &first), (1, &second)]);
        let message = refused(&sandbox, &ran);
        let expected =
            format!("error: rank 1 of 2 does not train the same run as rank 0: {expected}");
        assert!(message.contains(&expected), "{ran}");
        assert_eq!(message.matches("error: ").count(), 1, "{ran}");
    }
}

#[test]
fn a_step_must_have_micro_batches_for_all_ranks() {
    let sandbox = Sandbox::with_data();
    let ran = sandbox.ranks(2, "--data data --accumulation 3 --out run");
    let message = refused(&sandbox, &ran);
    assert!(
        message.contains("train.accumulation = 3: must be a multiple of the number of ranks, 2"),
        "{ran}"
    );
}

#[test]
fn device_memory_needs_nccl_or_mpi() {
    if Launcher::chosen() == Launcher::Mpirun {
        return;
    }
    let sandbox = Sandbox::with_data();
    let line = "--data data --accumulation 2 --set train.exchange=device --out run";
    let ran = sandbox.ranks(2, line);
    let expected = "error: train.exchange = device: must be host for ranks over TCP without NCCL";
    assert!(refused(&sandbox, &ran).contains(expected), "{ran}");
}

#[cfg(feature = "ndarray")]
#[test]
fn a_backend_without_addresses_does_not_exchange_device_memory() {
    if !Launcher::is_mpirun("device memory of a backend without addresses") {
        return;
    }
    let sandbox = Sandbox::with_data();
    let line =
        "--data data --accumulation 2 --steps 2 --backend ndarray --set train.exchange=device";
    let ran = sandbox.ranks(2, &format!("{line} --out run"));
    let expected =
        "error: train.exchange = device: must be host on ndarray, whose memory has no addresses";
    assert!(refused(&sandbox, &ran).contains(expected), "{ran}");
    // A single process exchanges nothing.
    sandbox.trains(&format!("{line} --out single"));
}

#[test]
fn the_error_of_another_rank_names_it() {
    let sandbox = Sandbox::with_data();
    let line = format!("train {TINY} --accumulation 2 --steps 2 --out run");
    let (first, second) = (format!("{line} --data data"), format!("{line} --data none"));
    let ran = sandbox.launched(&[(1, &first), (1, &second)]);
    let message = refused(&sandbox, &ran);
    let host = std::fs::read_to_string("/etc/hostname").unwrap_or_default();
    let expected = format!("error: rank 1 of 2 on {}", host.trim());
    assert!(message.contains(&expected), "{ran}");
    assert!(message.contains("none"), "{ran}");
}
