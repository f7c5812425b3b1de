//! Runs `emberlm serve` and sends raw HTTP requests.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{SMALL_PAGES, Sandbox};

/// A running server, killed on drop. If the test fails, its stderr is printed.
pub struct Server {
    child: Child,
    address: String,
    /// The file that captures stderr, unless the test redirects it.
    _stderr: Option<Stderr>,
}

/// A server's stderr in a temporary file.
struct Stderr(File);

impl Drop for Stderr {
    fn drop(&mut self) {
        if thread::panicking() {
            let mut bytes = Vec::new();
            let read = self
                .0
                .rewind()
                .and_then(|()| self.0.read_to_end(&mut bytes));
            let text = String::from_utf8_lossy(&bytes);
            eprintln!("--- stderr of the server ({read:?})\n{text}");
        }
    }
}

/// An HTTP response.
pub struct Answer {
    pub status: u16,
    pub headers: String,
    pub body: String,
}

impl Answer {
    pub fn new(text: &str) -> Self {
        let (headers, body) = text.split_once("\r\n\r\n").unwrap();
        let headers = headers.to_lowercase();
        let body = match headers.contains("transfer-encoding: chunked") {
            true => unchunked(body),
            false => body.to_owned(),
        };
        Self {
            status: headers.split(' ').nth(1).unwrap().parse().unwrap(),
            headers,
            body,
        }
    }

    /// Asserts the status.
    #[track_caller]
    pub fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", self.body);
        self
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    /// The events of a stream.
    pub fn events(&self) -> Vec<Value> {
        let data = self
            .body
            .lines()
            .filter_map(|line| line.strip_prefix("data: "));
        let data = data.take_while(|data| *data != "[DONE]");
        data.map(|data| serde_json::from_str(data).unwrap())
            .collect()
    }
}

/// The results of `ask` for all items, which it is called with at the same time.
pub fn together<T: Sync, R: Send>(items: &[T], ask: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let ask = &ask;
    thread::scope(|scope| {
        let asked = items.iter().map(|item| scope.spawn(move || ask(item)));
        let asked: Vec<_> = asked.collect();
        let results = asked.into_iter().map(|asked| asked.join().unwrap());
        results.collect()
    })
}

/// Decodes a chunked body.
fn unchunked(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((length, rest)) = body.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).unwrap();
        whole += &rest[..length];
        body = &rest[length + 2..];
    }
    whole
}

impl Sandbox {
    /// Starts a serving command on a free port, and waits until it prints its address.
    pub fn serve(&self, line: &str) -> Server {
        self.serve_in(line, &[])
    }

    /// Like [`Sandbox::serve`], with an allocator that returns freed memory to the system immediately, in small pages.
    pub fn serve_returning_freed(&self, line: &str) -> Server {
        let variables = [("MIMALLOC_PURGE_DELAY", "0"), SMALL_PAGES];
        self.serve_in(line, &variables)
    }

    fn serve_in(&self, line: &str, variables: &[(&str, &str)]) -> Server {
        let file = tempfile::tempfile().unwrap();
        let stderr = Stderr(file.try_clone().unwrap());
        self.start(line, variables, file.into(), Some(stderr))
    }

    /// Like [`Sandbox::serve`], with another destination for stderr.
    pub fn serve_with(&self, line: &str, stderr: impl Into<Stdio>) -> Server {
        self.start(line, &[], stderr.into(), None)
    }

    fn start(
        &self,
        line: &str,
        variables: &[(&str, &str)],
        stderr: Stdio,
        kept: Option<Stderr>,
    ) -> Server {
        let words = line.split_whitespace().chain(["--port", "0"]);
        let mut command = self.command(words);
        command.envs(variables.iter().copied());
        command.stdout(Stdio::piped()).stderr(stderr);
        let mut child = command.spawn().unwrap();
        let mut output = String::new();
        let stdout = child.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut output).unwrap();
        let address = output.trim().strip_prefix("http://");
        let address = address
            .unwrap_or_else(|| panic!("{line}: output {output:?}"))
            .to_owned();
        Server {
            child,
            address,
            _stderr: kept,
        }
    }
}

impl Server {
    pub fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, "", "")
    }

    pub fn post(&self, path: &str, body: &Value) -> Answer {
        self.post_text(path, &body.to_string())
    }

    pub fn post_text(&self, path: &str, body: &str) -> Answer {
        self.ask("POST", path, "content-type: application/json\r\n", body)
    }

    /// Sends a request and reads the whole response. Each header ends with a line break.
    pub fn ask(&self, method: &str, path: &str, headers: &str, body: &str) -> Answer {
        let mut stream = self.begin(method, path, headers, body);
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        Answer::new(&text)
    }

    /// Sends a request without reading the response.
    pub fn begin(&self, method: &str, path: &str, headers: &str, body: &str) -> TcpStream {
        let length = match headers.contains("content-length") {
            true => String::new(),
            false => format!("content-length: {}\r\n", body.len()),
        };
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{length}{headers}\r\n{body}",
        );
        let mut stream = self.connect();
        // The server may respond to an oversized body before reading all of it.
        let _ = stream.write_all(request.as_bytes());
        stream
    }

    /// Sends raw bytes and reads the whole response.
    pub fn raw(&self, request: &str) -> Answer {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        Answer::new(&text)
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        let wait = Some(Duration::from_secs(60));
        stream.set_read_timeout(wait).unwrap();
        stream
    }

    /// Waits until a metric has this value.
    pub fn wait_for(&self, name: &str, value: &str) {
        let wanted = format!("{name}{{model=\"run\"}} {value}");
        let start = Instant::now();
        loop {
            let metrics = self.get("/metrics").body;
            if metrics.lines().any(|line| line == wanted) {
                return;
            }
            let waited = start.elapsed();
            assert!(waited < Duration::from_secs(20), "{wanted}:\n{metrics}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn json(&self, path: &str) -> Value {
        self.get(path).expect(200).json()
    }

    pub fn port(&self) -> &str {
        self.address.rsplit(':').next().unwrap()
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Stops the server in an orderly way: its log is complete afterwards, unlike that of a dropped server.
    #[cfg(unix)]
    pub fn stop(self) {
        let id = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
        assert_eq!(self.ended(), Some(0));
    }

    /// Waits for the server to exit and returns its exit code.
    pub fn ended(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process may have exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
