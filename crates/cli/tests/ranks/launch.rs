//! Starts ranks by a shell that sets the variables of `torchrun`, or with `mpirun`.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use crate::support::train::TINY;
use crate::support::{CommandOutput, Sandbox};

/// The program that starts the ranks of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launcher {
    /// A shell that sets the variables of `torchrun`: the ranks find each other over TCP.
    Shell,
    /// `mpirun`, for a binary with the feature `mpi`.
    Mpirun,
}

impl Launcher {
    /// `cargo xtask test --mpi` sets this variable to `mpirun`, in the build whose other tests use the shell.
    pub fn chosen() -> Self {
        match std::env::var("EMBERLM_TEST_LAUNCHER") {
            Ok(name) if name == "mpirun" && cfg!(feature = "mpi") => Self::Mpirun,
            Ok(name) => panic!("EMBERLM_TEST_LAUNCHER={name} needs `mpirun` and the feature mpi"),
            Err(_) => Self::Shell,
        }
    }

    /// Returns false, and says so, if a test is one of MPI and the launcher is not.
    pub fn is_mpirun(what: &str) -> bool {
        let is = Self::chosen() == Self::Mpirun;
        if !is {
            println!("not run without mpirun: {what} (cargo xtask test --mpi)");
        }
        is
    }

    /// The variable with the rank of a process.
    pub fn rank(self) -> &'static str {
        match self {
            Self::Shell => "RANK",
            Self::Mpirun => "OMPI_COMM_WORLD_RANK",
        }
    }

    fn started(self, program: &OsStr, lines: &[(usize, Option<&str>, &str)]) -> Command {
        match self {
            Self::Shell => started_by_shell(program, lines),
            Self::Mpirun => started_by_mpirun(program, lines),
        }
    }
}

impl Sandbox {
    /// The launcher with the command lines of several ranks each: `(ranks, line)`.
    pub fn launcher(&self, lines: &[(usize, &str)]) -> Command {
        let lines: Vec<_> = lines
            .iter()
            .map(|&(ranks, line)| (ranks, None, line))
            .collect();
        self.launcher_of(&lines)
    }

    /// Two ranks, which execute the words of a shell before their command line: `(words, line)`.
    pub fn launched_from_shell(&self, lines: [(&str, &str); 2]) -> CommandOutput {
        let lines = lines.map(|(words, line)| (1, Some(words), line));
        output(&mut self.launcher_of(&lines))
    }

    fn launcher_of(&self, lines: &[(usize, Option<&str>, &str)]) -> Command {
        let binary = self.command([""; 0]);
        let mut command = Launcher::chosen().started(binary.get_program(), lines);
        command.current_dir(self.path(""));
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

/// The words that a shell executes before it becomes the program.
fn before(words: &str) -> [String; 4] {
    let words = format!("{words}; exec \"$@\"");
    ["sh", "-c", &words, "sh"].map(str::to_owned)
}

fn started_by_mpirun(program: &OsStr, lines: &[(usize, Option<&str>, &str)]) -> Command {
    let mut command = Command::new("mpirun");
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
        command.args(shell.iter().flat_map(|words| before(words)));
        command.arg(program).args(line.split_whitespace());
    }
    command
}

/// As `mpirun` does, the shell passes SIGUSR1 on, and fails if one of the ranks does.
fn started_by_shell(program: &OsStr, lines: &[(usize, Option<&str>, &str)]) -> Command {
    const SCRIPT: &str = "
        trap 'kill -USR1 $pids' USR1
        status=0 pids=
        while [ $# -gt 0 ]; do
            RANK=$1 sh -c \"$2\" &
            pids=\"$pids $!\"
            shift 2
        done
        for pid in $pids; do
            wait $pid; code=$?
            # The wait ends early with the signal.
            while kill -0 $pid 2>/dev/null; do wait $pid; code=$?; done
            [ $code = 0 ] || status=$code
        done
        exit $status";
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let port = listener.local_addr().expect("a port").port();
    let size: usize = lines.iter().map(|(ranks, ..)| ranks).sum();
    let mut command = Command::new("sh");
    command.args(["-c", SCRIPT, "sh"]);
    command.env("MASTER_ADDR", "127.0.0.1");
    command.env("MASTER_PORT", port.to_string());
    command.env("WORLD_SIZE", size.to_string());
    let of_ranks = lines.iter().flat_map(|(ranks, shell, line)| {
        let words = shell.iter().flat_map(|words| before(words));
        let program = program.to_string_lossy().into_owned();
        let all = words
            .chain([program])
            .chain(line.split_whitespace().map(str::to_owned));
        let quoted = all.map(|word| format!("'{}'", word.replace('\'', "'\\''")));
        let line = format!("exec {}", quoted.collect::<Vec<_>>().join(" "));
        std::iter::repeat_n(line, *ranks)
    });
    for (rank, line) in of_ranks.enumerate() {
        command.args([rank.to_string(), line]);
    }
    command
}

fn output(command: &mut Command) -> CommandOutput {
    let output = command.output().expect("the launcher");
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
    let variable = format!("{}={rank}", Launcher::chosen().rank());
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
