//! A server with the Hub's API: descriptions of repositories, files with ranges, redirects of large files to another
//! host, and faults.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;

use sha1::Sha1;
use sha2::{Digest, Sha256};

/// A fault of one answer.
#[derive(Clone, Copy)]
pub enum Fault {
    /// The answer has this status and `Retry-After`.
    Status(u16, Option<&'static str>),
    /// The connection of a large file ends after this number of bytes.
    EndAfter(usize),
    /// The first byte of a large file is another one.
    Flip,
    /// A large file has the status 416.
    NoRange,
    /// A large file is replaced by a Git LFS pointer, filled to its size.
    Pointer,
}

/// A request as it was received.
#[derive(Clone, Debug)]
pub struct Request {
    pub path: String,
    pub range: Option<String>,
    pub token: Option<String>,
}

struct File {
    path: String,
    content: Vec<u8>,
    large: bool,
}

#[derive(Default)]
struct State {
    commit: String,
    files: Vec<File>,
    faults: VecDeque<Fault>,
    ignores_ranges: bool,
    /// Status and headers of every answer.
    always: Option<&'static str>,
    /// The address of the host that stores large files.
    storage: Option<String>,
    /// The description of the repository, instead of that of the files.
    description: Option<String>,
    requests: Vec<Request>,
}

/// The server. Its thread ends with the program.
pub struct Server {
    state: Arc<Mutex<State>>,
    port: u16,
}

impl Server {
    pub fn start(commit: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(Mutex::new(State {
            commit: commit.to_owned(),
            ..State::default()
        }));
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = Arc::clone(&shared);
                // A client that closes the connection is not a failure.
                thread::spawn(move || drop(serve(&state, stream, port)));
            }
        });
        Self { state, port }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub fn address(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Adds or replaces a file. Large files are redirected.
    pub fn add(&self, path: &str, content: Vec<u8>, large: bool) {
        let mut state = self.state();
        state.files.retain(|file| file.path != path);
        let path = path.to_owned();
        state.files.push(File {
            path,
            content,
            large,
        });
    }

    pub fn set_commit(&self, commit: &str) {
        self.state().commit = commit.to_owned();
    }

    /// The next answer that can have the fault has it.
    pub fn fault(&self, fault: Fault) {
        self.state().faults.push_back(fault);
    }

    pub fn fault_first(&self, fault: Fault) {
        self.state().faults.push_front(fault);
    }

    pub fn clear_faults(&self) {
        self.state().faults.clear();
    }

    pub fn ignore_ranges(&self) {
        self.state().ignores_ranges = true;
    }

    /// All answers have this status and these headers.
    pub fn answer_always(&self, answer: &'static str) {
        self.state().always = Some(answer);
    }

    /// Large files are redirected to the server at `address`.
    pub fn redirect_to(&self, address: &str) {
        self.state().storage = Some(address.to_owned());
    }

    /// Answers requests for the description of the repository.
    pub fn describe(&self, description: String) {
        self.state().description = Some(description);
    }

    pub fn requests(&self) -> Vec<Request> {
        self.state().requests.clone()
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn description(state: &State) -> String {
    let siblings = state.files.iter().map(|file| {
        let git = Sha1::new_with_prefix(format!("blob {}\0", file.content.len()));
        let id = hexadecimal(&git.chain_update(&file.content).finalize());
        let size = file.content.len();
        let mut sibling = serde_json::json!({"rfilename": file.path, "size": size, "blobId": id});
        if file.large {
            let sha256 = hexadecimal(&Sha256::digest(&file.content));
            sibling["lfs"] =
                serde_json::json!({"sha256": sha256, "size": size, "pointerSize": 134});
        }
        sibling
    });
    let siblings: Vec<_> = siblings.collect();
    serde_json::json!({"id": "org/tiny", "sha": state.commit, "siblings": siblings}).to_string()
}

/// Answers one request and closes the connection.
fn serve(state: &Mutex<State>, mut stream: TcpStream, port: u16) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let first = lines.next().transpose()?.unwrap_or_default();
    let target = first.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut request = Request {
        path: target.clone(),
        range: None,
        token: None,
    };
    for line in lines {
        let line = line?;
        match line.split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("range") => {
                request.range = Some(value.to_owned())
            }
            Some((name, value)) if name.eq_ignore_ascii_case("authorization") => {
                request.token = Some(value.to_owned());
            }
            Some(_) => {}
            None => break,
        }
    }
    let mut state = state.lock().unwrap();
    state.requests.push(request.clone());
    if let Some(answer) = state.always {
        return write!(
            stream,
            "HTTP/1.1 {answer}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
    }
    let fault = state.faults.front().copied();
    if let Some(Fault::Status(status, after)) = fault {
        state.faults.pop_front();
        let after = after.map_or(String::new(), |after| format!("Retry-After: {after}\r\n"));
        return write!(
            stream,
            "HTTP/1.1 {status} X\r\n{after}Content-Length: 0\r\nConnection: close\r\n\r\n"
        );
    }
    if target.starts_with("/api/models/org/tiny/revision/") {
        let body = state
            .description
            .clone()
            .unwrap_or_else(|| description(&state));
        return write!(
            stream,
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
    }
    let stored = target.strip_prefix("/storage/");
    let path = match stored {
        Some(path) => path,
        None => target.splitn(6, '/').nth(5).unwrap_or_default(),
    };
    let Some(file) = state.files.iter().find(|file| file.path == path) else {
        return write!(
            stream,
            "HTTP/1.1 404 X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
    };
    if file.large && stored.is_none() {
        // Another name of the same machine is another host to the client.
        let storage = state.storage.clone();
        let storage = storage.unwrap_or_else(|| format!("http://localhost:{port}"));
        return write!(
            stream,
            "HTTP/1.1 302 Found\r\nLocation: {storage}/storage/{path}\r\nContent-Length: 0\r\n\
             Connection: close\r\n\r\n"
        );
    }
    let mut content = file.content.clone();
    let large = file.large;
    let start = request
        .range
        .filter(|_| !state.ignores_ranges)
        .and_then(|range| {
            range
                .strip_prefix("bytes=")?
                .strip_suffix('-')?
                .parse::<usize>()
                .ok()
        });
    let size = content.len();
    let mut sent = content.len() - start.unwrap_or(0);
    if large {
        match state.faults.pop_front() {
            Some(Fault::EndAfter(bytes)) => sent = sent.min(bytes),
            Some(Fault::Flip) => content[0] ^= 1,
            Some(Fault::Pointer) => {
                let pointer = b"version https://git-lfs.github.com/spec/v1\n";
                content[..pointer.len()].copy_from_slice(pointer);
            }
            Some(Fault::NoRange) => {
                return write!(
                    stream,
                    "HTTP/1.1 416 X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                );
            }
            Some(Fault::Status(..)) | None => {}
        }
    }
    drop(state);
    let from = start.unwrap_or(0);
    let status = match start {
        Some(start) => format!(
            "206 Partial Content\r\nContent-Range: bytes {start}-{}/{size}",
            size - 1
        ),
        None => "200 OK".to_owned(),
    };
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        size - from
    )?;
    stream.write_all(&content[from..from + sent])
}
