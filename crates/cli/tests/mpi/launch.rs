//! Starts ranks with `mpirun`.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use crate::support::train::TINY;
use crate::support::{CommandOutput, Sandbox};

impl Sandbox {
    /// `mpirun` with the command lines of several ranks each: `(ranks, line)`.
    pub fn launcher(&self, lines: &[(usize, &str)]) -> Command {
        let lines: Vec<_> = lines
            .iter()
            .map(|&(ranks, line)| (ranks, None, line))
            .collect();
        self.launcher_of(&lines)
    }

    /// `mpirun` with two ranks, which execute the words of a shell before their command line: `(words, line)`.
    pub fn launched_from_shell(&self, lines: [(&str, &str); 2]) -> CommandOutput {
        let lines = lines.map(|(words, line)| (1, Some(words), line));
        output(&mut self.launcher_of(&lines))
    }

    fn launcher_of(&self, lines: &[(usize, Option<&str>, &str)]) -> Command {
        let binary = self.command([""; 0]);
        let mut command = Command::new("mpirun");
        command.current_dir(self.path(""));
        command.args([
            "--allow-run-as-root",
            "--oversubscribe",
            "--bind-to",
            "none",
        ]);
        for (number, (ranks, shell, line)) in lines.iter().enumerate() {
            if number > 0 {
                command.arg(":");
            }
            command.args(["-n", &ranks.to_string()]);
            if let Some(words) = shell {
                let words = format!("{words}; exec \"$@\"");
                command.args(["sh", "-c", &words, "sh"]);
            }
            command
                .arg(binary.get_program())
                .args(line.split_whitespace());
        }
        for (name, value) in binary.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        // Ranks share the cores of the machine. Results do not depend on the number of threads.
        command.env("RAYON_NUM_THREADS", "1");
        command.stdin(Stdio::null());
        command
    }

    pub fn launched(&self, lines: &[(usize, &str)]) -> CommandOutput {
        output(&mut self.launcher(lines))
    }

    /// As [`Self::launched`], for a job that must succeed.
    #[track_caller]
    pub fn launches(&self, lines: &[(usize, &str)]) -> CommandOutput {
        self.launched(lines).exits(0)
    }

    /// Trains a small model on `ranks` ranks.
    pub fn ranks(&self, ranks: usize, line: &str) -> CommandOutput {
        self.launched(&[(ranks, &format!("train {TINY} {line}"))])
    }

    /// As [`Self::ranks`], for a run that must succeed.
    #[track_caller]
    pub fn trains_on(&self, ranks: usize, line: &str) -> CommandOutput {
        self.ranks(ranks, line).exits(0)
    }
}

fn output(command: &mut Command) -> CommandOutput {
    let output = command.output().expect("mpirun");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    CommandOutput {
        code: output.status.code(),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    }
}

/// The process ID of a rank that `launcher` started.
pub fn process_of_rank(launcher: u32, rank: usize) -> i32 {
    find_rank(launcher, rank).expect("the rank's process")
}

/// As [`process_of_rank`], if the rank is running.
pub fn find_rank(launcher: u32, rank: usize) -> Option<i32> {
    let variable = format!("OMPI_COMM_WORLD_RANK={rank}");
    let is_rank = |process: &Path| {
        let status = fs::read_to_string(process.join("status")).unwrap_or_default();
        let parent = format!("PPid:\t{launcher}\n");
        let environment = fs::read(process.join("environ")).unwrap_or_default();
        let mut variables = environment.split(|&byte| byte == 0);
        status.contains(&parent) && variables.any(|it| it == variable.as_bytes())
    };
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let mut processes = processes.map(|entry| entry.path());
    let found = processes.find(|process| is_rank(process))?;
    found.file_name().and_then(OsStr::to_str)?.parse().ok()
}

#[track_caller]
pub fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(
            started.elapsed() < Duration::from_secs(120),
            "no {what} after two minutes"
        );
        thread::sleep(Duration::from_millis(5));
    }
}
