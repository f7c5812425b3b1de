//! A user's command that computes the reward of a completion. It runs without a shell, and is bounded in time and output.

use std::io::{self, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use emberlm_system::text::escaped;
use serde_json::json;

use super::{Answer, Reward};
use crate::config::CommandConfig;

/// The most bytes that are read from the command's output.
const MOST_BYTES: u64 = 4096;
/// Time between two checks for the command's end.
const POLL: Duration = Duration::from_millis(2);

/// The number that the command prints for a completion.
impl Reward for CommandConfig {
    fn is_slow(&self) -> bool {
        true
    }

    fn of(&self, answer: Answer<'_>) -> Result<f64, String> {
        let Answer { record, completion } = answer;
        let input = json!({
            "prompt": record.prompt(),
            "completion": completion,
            "record": record.fields,
        });
        let timeout = Duration::try_from_secs_f64(self.timeout).unwrap_or(Duration::MAX);
        // A command may read lines.
        run(&self.command, format!("{input}\n").into_bytes(), timeout)
    }
}

/// Runs `command`, a program and its arguments, with `input` on stdin. Returns the number that it prints.
///
/// # Errors
/// The reason: the command cannot be started, takes longer than `timeout`, fails, or prints anything but a finite number.
fn run(command: &[String], input: Vec<u8>, timeout: Duration) -> Result<f64, String> {
    let Some((program, arguments)) = command.split_first() else {
        return Err("the command is empty".to_owned());
    };
    let mut process = Command::new(program);
    process
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // A group, so that the command's own children are stopped with it.
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut process, 0);
    let name = escaped(program).into_owned();
    let child = process
        .spawn()
        .map_err(|error| format!("`{name}` cannot be started: {error}"))?;
    let mut running = Running {
        child,
        is_reaped: false,
    };
    let deadline = Instant::now() + timeout;
    let seconds = timeout.as_secs_f64();
    let late = || format!("`{name}` did not end within {seconds} s");

    if let Some(mut stdin) = running.child.stdin.take() {
        // A command that does not read its input ends with an error here, which is of no importance.
        thread::spawn(move || stdin.write_all(&input));
    }
    let output = running.child.stdout.take().map(head);
    let errors = running.child.stderr.take().map(head);
    let failed = |error: io::Error| format!("`{name}`: {error}");
    let succeeded = loop {
        match running.outcome().map_err(failed)? {
            Some(succeeded) => break succeeded,
            None if Instant::now() < deadline => thread::sleep(POLL),
            None => return Err(late()),
        }
    };
    let received = |from: Option<Receiver<Vec<u8>>>| -> Option<Vec<u8>> {
        let left = deadline.saturating_duration_since(Instant::now());
        from?.recv_timeout(left.max(POLL)).ok()
    };
    // A child of the command may hold the output open.
    let output = match succeeded {
        true => received(output).ok_or_else(late)?,
        false => Vec::new(),
    };
    let status = running.end().map_err(failed)?;
    if !succeeded {
        let errors = received(errors).unwrap_or_default();
        let errors = String::from_utf8_lossy(&errors);
        let last = errors.lines().rev().find(|line| !line.trim().is_empty());
        let reason = last.map_or_else(String::new, |line| format!(": {}", escaped(line.trim())));
        return Err(format!("`{name}` failed with {status}{reason}"));
    }
    let text = String::from_utf8_lossy(&output);
    match text.trim().parse::<f64>() {
        Ok(reward) if reward.is_finite() => Ok(reward),
        _ => {
            let start: String = text.trim().chars().take(40).collect();
            Err(format!(
                "`{name}` printed \"{}\", which is not a number",
                escaped(&start)
            ))
        }
    }
}

/// Reads the first bytes of an output on another thread. Closes it then, so that a command that keeps printing fails.
fn head(output: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // An unreadable output is an incomplete one.
        let _ = output.take(MOST_BYTES).read_to_end(&mut bytes);
        let _ = sender.send(bytes);
    });
    receiver
}

/// A process that leads a group, which ends with the value: also the processes that it has started and left behind.
struct Running {
    child: Child,
    /// True once another process may have the number of this one.
    is_reaped: bool,
}

impl Running {
    /// `None` while the process runs, then whether it has succeeded. It keeps its number, which is that of its group.
    #[cfg(unix)]
    fn outcome(&mut self) -> io::Result<Option<bool>> {
        use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

        let of_child = WaitId::Pid(Pid::from_child(&self.child));
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = waitid(of_child, options)?;
        Ok(status.map(|status| status.exit_status() == Some(0)))
    }

    #[cfg(not(unix))]
    fn outcome(&mut self) -> io::Result<Option<bool>> {
        let status = self.child.try_wait()?;
        Ok(status.map(|status| status.success()))
    }

    /// Stops the process and all others of its group.
    fn end(&mut self) -> io::Result<ExitStatus> {
        if !self.is_reaped {
            // A process that has ended cannot be stopped, which is what is wanted.
            #[cfg(unix)]
            let _ = rustix::process::kill_process_group(
                rustix::process::Pid::from_child(&self.child),
                rustix::process::Signal::KILL,
            );
            let _ = self.child.kill();
        }
        self.is_reaped = true;
        self.child.wait()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn shell(script: &str) -> Result<f64, String> {
        let command = ["sh", "-c", script].map(str::to_owned);
        run(
            &command,
            b"{\"completion\": \"4\"}".to_vec(),
            Duration::from_millis(700),
        )
    }

    #[test]
    fn the_printed_number_is_the_reward() {
        assert_eq!(shell("grep -c completion"), Ok(1.0));
        // Input that is not read is no failure.
        assert_eq!(shell("echo ' -2.5e-1 '"), Ok(-0.25));
    }

    /// The command prints the number of a process that it leaves behind.
    #[cfg(target_os = "linux")]
    #[test]
    fn processes_that_the_command_leaves_behind_are_stopped() {
        let runs = |process: u64| {
            let state = std::fs::read_to_string(format!("/proc/{process}/stat"));
            // A process that has ended may wait for its parent to notice.
            state.is_ok_and(|state| !state.contains(") Z "))
        };
        let silent = "sleep 60 >/dev/null 2>&1 & echo $!";
        let left = shell(silent).unwrap() as u64;
        let failed = shell(&format!("{silent} >&2; exit 3")).unwrap_err();
        let of_failed = failed.rsplit(' ').next().unwrap().parse().unwrap();
        let begun = Instant::now();
        while runs(left) || runs(of_failed) {
            assert!(begun.elapsed() < Duration::from_secs(30), "they still run");
            thread::sleep(POLL);
        }
    }

    #[test]
    fn a_command_that_hangs_fails_or_prints_nonsense_gives_a_reason() {
        for (script, reason) in [
            ("sleep 60", "`sh` did not end within 0.7 s"),
            ("sleep 60 & echo 1", "`sh` did not end within 0.7 s"),
            (
                "echo; echo no sense >&2; exit 3",
                "exit status: 3: no sense",
            ),
            ("echo four", "printed \"four\", which is not a number"),
            ("echo NaN", "printed \"NaN\""),
            ("true", "printed \"\""),
            ("yes", "`sh` failed"),
        ] {
            let begun = Instant::now();
            let error = shell(script).unwrap_err();
            assert!(error.contains(reason), "{script}: {error}");
            assert!(begun.elapsed() < Duration::from_secs(10));
        }
        let missing = run(
            &["/no/such/program".to_owned()],
            Vec::new(),
            Duration::from_secs(1),
        );
        assert!(missing.unwrap_err().contains("cannot be started"));
    }
}
