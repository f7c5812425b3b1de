//! Tests of the pool. This test program is its own worker.

#![allow(clippy::unwrap_used, missing_docs)]

use std::process::exit;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use emberlm_sandbox::{Handlers, Sandbox, SandboxError, SandboxOptions, WorkerCommand};

const WORKER: &str = "EMBERLM_SANDBOX_TEST_WORKER";
/// A generous limit for busy machines: no job that ends by itself takes this long.
const AMPLE: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(500);

/// The worker's main function, as a test that does nothing outside a worker process.
#[test]
fn worker() {
    if std::env::var_os(WORKER).is_none() {
        return;
    }
    Handlers::new()
        .on("echo", |text: String| text)
        .on("process", |()| std::process::id())
        .on("eat", |bytes: usize| {
            vec![1_u8; bytes]
                .iter()
                .map(|it| usize::from(*it))
                .sum::<usize>()
        })
        .on("leave", |bytes: usize| vec![1_u8; bytes].leak().len())
        .on("recurse", |depth: u64| recurse(depth))
        .on("spin", spin)
        .on("sleep", |milliseconds| {
            thread::sleep(Duration::from_millis(milliseconds))
        })
        .on("garbage", |()| {
            print!("{}", "garbage".repeat(1000));
            sleep_until_killed()
        })
        .on("exit", exit_with)
        .on("panic", panic_always)
        .on("write", |path: String| std::fs::write(path, "text").is_ok())
        .on("long", |bytes: usize| "x".repeat(bytes))
        .serve();
}

fn spin(_: ()) {
    loop {
        std::hint::spin_loop();
    }
}

fn exit_with(code: i32) {
    exit(code)
}

fn panic_always(_: ()) {
    panic!("a job's panic")
}

fn sleep_until_killed() {
    thread::sleep(AMPLE);
}

fn recurse(depth: u64) -> u64 {
    let here = std::hint::black_box([depth; 64]);
    if depth == 0 {
        here[1]
    } else {
        recurse(depth - 1) + here[2]
    }
}

fn options() -> SandboxOptions {
    let test = ["--exact", "worker", "--nocapture", "--test-threads=1"];
    let mut options = SandboxOptions::new(WorkerCommand::this_program(test).env(WORKER, "1"));
    options.memory = 64 << 20;
    options.stack = 1 << 20;
    options.time = AMPLE;
    options.workers = 1;
    options
}

fn sandbox() -> Sandbox {
    Sandbox::new(options())
}

fn hasty_sandbox() -> Sandbox {
    Sandbox::new(SandboxOptions {
        time: SHORT,
        ..options()
    })
}

#[track_caller]
fn assert_works(sandbox: &Sandbox) {
    let echo: String = sandbox.run("echo", "tëxt").unwrap();
    assert_eq!(echo, "tëxt");
}

#[test]
fn one_worker_runs_many_jobs() {
    let sandbox = sandbox();
    let first: u32 = sandbox.run("process", &()).unwrap();
    for _ in 0..5 {
        assert_works(&sandbox);
    }
    let long = "x".repeat(1 << 20);
    assert_eq!(sandbox.run::<String>("echo", &long).unwrap(), long);
    assert_eq!(sandbox.run::<u32>("process", &()).unwrap(), first);
    assert_ne!(first, std::process::id());
}

#[test]
#[cfg(target_os = "linux")]
fn memory_is_limited() {
    let sandbox = sandbox();
    assert_eq!(sandbox.run::<usize>("eat", &(32 << 20)).unwrap(), 32 << 20);
    let result = sandbox.run::<usize>("eat", &(128 << 20));
    assert!(
        matches!(result, Err(SandboxError::Crashed { .. })),
        "{result:?}"
    );
    assert_works(&sandbox);
}

#[test]
fn stack_is_limited() {
    let sandbox = sandbox();
    assert_eq!(sandbox.run::<u64>("recurse", &1).unwrap(), 1);
    let result = sandbox.run::<u64>("recurse", &100_000);
    assert!(
        matches!(result, Err(SandboxError::Crashed { .. })),
        "{result:?}"
    );
    assert_works(&sandbox);
}

#[test]
fn time_is_limited() {
    let sandbox = hasty_sandbox();
    for _ in 0..2 {
        let result = sandbox.run::<()>("spin", &());
        assert!(
            matches!(result, Err(SandboxError::TimedOut { limit: SHORT })),
            "{result:?}"
        );
    }
    assert_works(&Sandbox::new(options()));
}

#[test]
fn the_pool_recovers_from_garbage_exits_and_panics() {
    let sandbox = sandbox();
    let result = sandbox.run::<()>("garbage", &());
    assert!(
        matches!(result, Err(SandboxError::Protocol(_))),
        "{result:?}"
    );
    for code in [0, 7] {
        let result = sandbox.run::<()>("exit", &code);
        assert!(
            matches!(result, Err(SandboxError::Crashed { .. })),
            "{result:?}"
        );
    }
    let result = sandbox.run::<()>("panic", &());
    assert!(
        matches!(result, Err(SandboxError::Crashed { .. })),
        "{result:?}"
    );
    assert_works(&sandbox);
}

#[test]
fn unknown_jobs_and_invalid_requests_are_errors() {
    let sandbox = sandbox();
    let result = sandbox.run::<()>("nothing", &());
    assert!(
        matches!(result, Err(SandboxError::Protocol(_))),
        "{result:?}"
    );
    let result = sandbox.run::<String>("echo", &1);
    assert!(
        matches!(result, Err(SandboxError::Protocol(_))),
        "{result:?}"
    );
    assert_works(&sandbox);
}

#[test]
#[cfg(unix)]
fn workers_write_no_files() {
    let path = std::env::temp_dir().join(format!("emberlm-sandbox-{}", std::process::id()));
    let sandbox = sandbox();
    // The kernel kills a process that exceeds its file size limit.
    let written = sandbox.run::<bool>("write", &path);
    assert!(!matches!(written, Ok(true)), "{written:?}");
    assert_eq!(std::fs::read_to_string(&path).unwrap_or_default(), "");
    let _ = std::fs::remove_file(&path);
}

#[test]
fn responses_are_limited() {
    let sandbox = Sandbox::new(SandboxOptions {
        response: 1000,
        ..options()
    });
    let result = sandbox.run::<String>("long", &1000);
    assert!(
        matches!(result, Err(SandboxError::TooLarge { limit: 1000 })),
        "{result:?}"
    );
    assert_eq!(sandbox.run::<String>("long", &900).unwrap().len(), 900);
}

#[test]
#[cfg(target_os = "linux")]
fn leaked_memory_does_not_reduce_the_limit_of_the_next_job() {
    let sandbox = sandbox();
    for _ in 0..6 {
        sandbox.run::<usize>("leave", &(20 << 20)).unwrap();
    }
}

#[test]
fn a_full_queue_rejects_jobs_immediately() {
    let sandbox = Sandbox::new(SandboxOptions {
        queue: 2,
        ..options()
    });
    let (sender, results) = channel();
    for milliseconds in [300, 0, 0, 0] {
        let sender = sender.clone();
        sandbox.submit(
            "sleep",
            &milliseconds,
            move |result: Result<(), SandboxError>| {
                sender.send(result).unwrap();
            },
        );
    }
    drop(sender);
    let results: Vec<_> = results.into_iter().collect();
    assert!(matches!(results[0], Err(SandboxError::Busy)), "{results:?}");
    assert_eq!(
        results.iter().filter(|it| it.is_ok()).count(),
        3,
        "{results:?}"
    );
}

#[test]
fn workers_run_jobs_concurrently() {
    let sandbox = Sandbox::new(SandboxOptions {
        workers: 2,
        ..options()
    });
    let (sender, results) = channel();
    sandbox.submit("sleep", &60_000, move |result: Result<(), SandboxError>| {
        let _ = sender.send(result);
    });
    assert_works(&sandbox);
    // Dropping the pool kills the sleeping worker.
    drop(sandbox);
    assert!(results.recv_timeout(AMPLE / 2).unwrap().is_err());
}

#[test]
fn idle_workers_end() {
    let sandbox = Sandbox::new(SandboxOptions {
        idle: Duration::from_millis(50),
        ..options()
    });
    let first: u32 = sandbox.run("process", &()).unwrap();
    let began = Instant::now();
    while sandbox.run::<u32>("process", &()).unwrap() == first {
        assert!(began.elapsed() < AMPLE);
        thread::sleep(Duration::from_millis(200));
    }
}

#[test]
#[cfg(target_os = "linux")]
fn workers_die_with_the_pool() {
    let sandbox = sandbox();
    let worker: u32 = sandbox.run("process", &()).unwrap();
    let folder = format!("/proc/{worker}");
    assert!(std::path::Path::new(&folder).exists());
    drop(sandbox);
    assert!(!std::path::Path::new(&folder).exists());
}

#[test]
#[cfg(target_os = "linux")]
fn a_killed_idle_worker_is_replaced() {
    let sandbox = sandbox();
    let worker: u32 = sandbox.run("process", &()).unwrap();
    let worker = rustix::process::Pid::from_raw(worker as i32).unwrap();
    rustix::process::kill_process(worker, rustix::process::Signal::KILL).unwrap();
    thread::sleep(Duration::from_millis(200));
    assert_works(&sandbox);
}

#[test]
fn a_program_that_is_not_a_worker_is_an_error() {
    let command = WorkerCommand::this_program(["--list"]);
    let result = Sandbox::new(SandboxOptions::new(command)).run::<()>("echo", "");
    assert!(
        matches!(result, Err(SandboxError::Unavailable(_))),
        "{result:?}"
    );
    let command = WorkerCommand::new("/nonexistent/program", [""; 0]);
    let result = Sandbox::new(SandboxOptions::new(command)).run::<()>("echo", "");
    assert!(
        matches!(result, Err(SandboxError::Unavailable(_))),
        "{result:?}"
    );
}
