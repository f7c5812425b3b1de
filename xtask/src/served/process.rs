//! The server as a process.

use std::{
    ffi::OsStr,
    fs,
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use super::http;
use crate::{error::Error, workspace};

/// The time without a response after which the server counts as stuck.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// The interval between polls.
const PAUSE: Duration = Duration::from_millis(50);

/// A running server. It is killed when dropped.
#[derive(Debug)]
pub struct Server {
    child: Child,
    command: String,
    /// The address on which it listens.
    pub address: SocketAddr,
    /// The name of the model.
    pub model: String,
}

impl Server {
    /// Starts `emberlm serve MODEL` with options, and waits until it has printed its address.
    pub fn start<S: AsRef<OsStr>>(
        binary: &Path,
        model: &Path,
        options: impl IntoIterator<Item = S>,
    ) -> Result<Self, Error> {
        Self::spawn(Command::new(binary), model, options)
    }

    /// As [`Server::start`], with a memory limit per process in bytes (on Linux).
    pub fn start_within<S: AsRef<OsStr>>(
        limit: u64,
        binary: &Path,
        model: &Path,
        options: impl IntoIterator<Item = S>,
    ) -> Result<Self, Error> {
        if !cfg!(target_os = "linux") {
            return Self::start(binary, model, options);
        }
        let mut command = Command::new("prlimit");
        command.arg(format!("--data={limit}")).arg("--").arg(binary);
        Self::spawn(command, model, options)
    }

    fn spawn<S: AsRef<OsStr>>(
        mut command: Command,
        model: &Path,
        options: impl IntoIterator<Item = S>,
    ) -> Result<Self, Error> {
        command
            .arg("serve")
            .arg(model)
            .args(["--port", "0", "--log", "none"]);
        command.args(options);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let shown = workspace::shown(&command);
        let mut child = command.spawn().map_err(Error::start(&command))?;
        let mut said = String::new();
        let stdout = child.stdout.take();
        let read = stdout.map(|stdout| BufReader::new(stdout).read_line(&mut said));
        let said_where = said.trim().strip_prefix("http://");
        let address = said_where.and_then(|address| address.parse().ok());
        let (Some(Ok(_)), Some(address)) = (read, address) else {
            // The process may have exited already.
            let _ = child.kill();
            let _ = child.wait();
            return Err(Error::Unnamed {
                command: shown,
                what: "address",
            });
        };
        let mut server = Self {
            child,
            command: shown,
            address,
            model: String::new(),
        };
        let models = server.json("/v1/models")?;
        let name = models["data"][0]["id"].as_str();
        server.model = name
            .ok_or_else(|| server.wrong("/v1/models", &models.to_string()))?
            .to_owned();
        Ok(server)
    }

    /// The body of the response to a GET request.
    pub fn get(&self, path: &str) -> Result<String, Error> {
        match http::exchange(self.address, "GET", path, b"") {
            Ok((200, text)) => Ok(text),
            Ok((status, text)) => Err(self.wrong(path, &format!("{status} {text}"))),
            Err(error) => Err(self.wrong(path, &error.to_string())),
        }
    }

    /// The body of the response to a GET request, as JSON.
    pub fn json(&self, path: &str) -> Result<Value, Error> {
        let text = self.get(path)?;
        serde_json::from_str(&text).map_err(|_| self.wrong(path, &text))
    }

    /// Waits until no request is running or waiting and `slots` slots are free. Returns the time it took, or
    /// the reason if the condition is not met within the limit.
    pub fn quiet(&self, slots: usize, within: Duration) -> Result<Result<Duration, String>, Error> {
        let start = Instant::now();
        loop {
            let metrics = self.get("/metrics")?;
            let found = ["running_sequences", "waiting_requests", "free_slots"]
                .map(|name| sum(&metrics, &format!("emberlm_{name}")));
            if found == [Some(0.0), Some(0.0), Some(slots as f64)] {
                return Ok(Ok(start.elapsed()));
            }
            if start.elapsed() > within {
                return Ok(Err(format!(
                    "after {within:?} without a client there were {found:?} running, waiting and free, of {slots} slots"
                )));
            }
            thread::sleep(PAUSE);
        }
    }

    /// Resident memory in bytes, if the operating system reports it (Linux).
    pub fn resident(&self) -> Option<u64> {
        resident(self.child.id())
    }

    /// The peak of the resident memory since the last call, including child processes.
    pub fn peak_of_all(&self) -> Option<u64> {
        let children = children(self.child.id()).into_iter().filter_map(peak);
        Some(peak(self.child.id())? + children.sum::<u64>())
    }

    /// The number of open files and connections, if the operating system reports it (Linux).
    pub fn open_files(&self) -> Option<usize> {
        Some(fs::read_dir(self.proc("fd")).ok()?.count())
    }

    fn proc(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{name}", self.child.id()))
    }

    /// Stops the server. Fails if it does not exit with success.
    pub fn stop(mut self) -> Result<(), Error> {
        let mut kill = Command::new("kill");
        workspace::success(kill.args(["-TERM", &self.child.id().to_string()]))?;
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            let ended = self.child.try_wait().map_err(|source| Error::Start {
                command: self.command.clone(),
                source,
            })?;
            match ended {
                Some(status) if status.success() => return Ok(()),
                Some(status) => {
                    return Err(Error::Failed {
                        command: self.command.clone(),
                        status,
                    });
                }
                None => thread::sleep(PAUSE),
            }
        }
        Err(self.wrong("SIGTERM", "nothing: it keeps running"))
    }

    fn wrong(&self, what: &str, found: &str) -> Error {
        Error::Answer {
            command: self.command.clone(),
            what: what.to_owned(),
            found: found.to_owned(),
        }
    }
}

/// The resident memory of a process in bytes.
fn resident(process: u32) -> Option<u64> {
    memory(process, "VmRSS:")
}

/// The peak of the resident memory of a process since the last call, in bytes.
fn peak(process: u32) -> Option<u64> {
    let peak = memory(process, "VmHWM:");
    // Where the peak cannot be reset, it is that since the start of the process.
    let _ = fs::write(format!("/proc/{process}/clear_refs"), "5");
    peak
}

/// A value of the status of a process in bytes.
pub fn memory(process: u32, name: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

/// The running child processes of a process.
fn children(process: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{process}/task"))
        .into_iter()
        .flatten()
        .flatten();
    let lists =
        threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let lists: Vec<String> = lists.collect();
    let numbers = lists.iter().flat_map(|list| list.split_whitespace());
    numbers.filter_map(|number| number.parse().ok()).collect()
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The sum of a metric in Prometheus' text format over all labels, if it exists.
fn sum(metrics: &str, name: &str) -> Option<f64> {
    let values = metrics.lines().filter_map(|line| {
        let value = line.strip_prefix(name)?;
        let (_, value) = value
            .starts_with([' ', '{'])
            .then(|| value.rsplit_once(' '))??;
        value.parse::<f64>().ok()
    });
    values.reduce(|sum, value| sum + value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_summed_over_their_labels() {
        let text = "# TYPE a counter\na{x=\"1 2\"} 3\na{x=\"b\"} 4\nab 0.5\nbroken\n";
        let found = ["a", "ab", "b", "broken"].map(|name| sum(text, name));
        assert_eq!(found, [Some(7.0), Some(0.5), None, None]);
    }

    #[test]
    fn a_program_that_serves_nothing_is_named() {
        let error = Server::start(Path::new("echo"), Path::new("model"), ["--slots", "1"]);
        let error = error.unwrap_err().to_string();
        assert_eq!(
            error,
            "`echo serve model --port 0 --log none --slots 1` named no address"
        );
    }
}
