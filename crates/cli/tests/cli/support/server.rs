//! A server of the binary, asked by hand.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::Value;

use super::Sandbox;

/// Killed where a test forgets it.
pub struct Server {
    child: Child,
    address: String,
}

/// An answer over HTTP.
pub struct Answer {
    pub status: u16,
    pub headers: String,
    pub body: String,
}

impl Sandbox {
    /// Starts a command that serves, on a free port, once it has said where.
    pub fn serve(&self, line: &str) -> Server {
        let words = line.split_whitespace().chain(["--port", "0"]);
        let mut command = self.command(words);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        let stdout = child.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut said).unwrap();
        let address = said.trim().strip_prefix("http://");
        let address = address
            .unwrap_or_else(|| panic!("{line}: said {said:?}"))
            .to_owned();
        Server { child, address }
    }
}

impl Server {
    pub fn get(&self, path: &str) -> Answer {
        let request = format!("GET {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n");
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let wait = Some(Duration::from_secs(30));
        stream.set_read_timeout(wait).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (headers, body) = text.split_once("\r\n\r\n").unwrap();
        Answer {
            status: headers.split(' ').nth(1).unwrap().parse().unwrap(),
            headers: headers.to_lowercase(),
            body: body.to_owned(),
        }
    }

    pub fn json(&self, path: &str) -> Value {
        let answer = self.get(path);
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        serde_json::from_str(&answer.body).unwrap()
    }

    pub fn port(&self) -> &str {
        self.address.rsplit(':').next().unwrap()
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for its end, and gives its exit code.
    pub fn ended(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
