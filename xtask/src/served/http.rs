//! A minimal HTTP/1.1 client with one request per connection.
//!
//! The storm closes connections within an answer or a request, and sends requests that client libraries do not
//! allow. The benchmark measures the arrival of each event. Both need direct control of the socket.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

/// Maximum length of a line of a head or of a chunk's size.
const LONGEST_LINE: u64 = 64 << 10;

/// A response whose body has not been read yet.
#[derive(Debug)]
pub struct Reply {
    /// The status code.
    pub status: u16,
    /// The body.
    pub body: Body,
}

/// A body as it arrives, without chunk markers.
#[derive(Debug)]
pub struct Body {
    stream: BufReader<TcpStream>,
    left: Left,
}

/// The part of a body that has not been read.
#[derive(Debug)]
enum Left {
    /// A number of bytes.
    Bytes(u64),
    /// The rest of the current chunk, followed by more chunks. `None` before the size of the next chunk.
    Chunk(Option<u64>),
    /// All bytes until the connection ends.
    All,
}

/// Connects. Reading and writing fail after `patience` without progress.
pub fn connect(address: SocketAddr, patience: Duration) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, patience)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// The head of a request with a body of `length` bytes.
pub fn head(method: &str, path: &str, length: u64) -> String {
    format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n"
    )
}

/// Sends a complete request and reads the head of the response.
pub fn ask(mut stream: TcpStream, method: &str, path: &str, body: &[u8]) -> io::Result<Reply> {
    let mut request = head(method, path, body.len() as u64).into_bytes();
    request.extend_from_slice(body);
    // A server may respond and close before it has read a body that is too long.
    let sent = stream.write_all(&request);
    match reply(stream) {
        Ok(reply) => Ok(reply),
        Err(error) => Err(sent.err().unwrap_or(error)),
    }
}

/// Reads the head of a response.
pub fn reply(stream: TcpStream) -> io::Result<Reply> {
    let mut stream = BufReader::new(stream);
    let status = line(&mut stream)?;
    let code = status.split(' ').nth(1).and_then(|code| code.parse().ok());
    let status = code.ok_or_else(|| broken("the status line", &status))?;
    let mut left = Left::All;
    loop {
        let header = line(&mut stream)?.to_ascii_lowercase();
        if header.is_empty() {
            break;
        }
        let (name, value) = header
            .split_once(':')
            .ok_or_else(|| broken("a header", &header))?;
        match (name, value.trim()) {
            ("content-length", length) => {
                let length = length.parse().map_err(|_| broken("the length", length))?;
                left = Left::Bytes(length);
            }
            ("transfer-encoding", "chunked") => left = Left::Chunk(None),
            _ => (),
        }
    }
    let body = Body { stream, left };
    Ok(Reply { status, body })
}

impl Reply {
    /// The body as text.
    pub fn text(mut self) -> io::Result<String> {
        let mut text = String::new();
        self.body.read_to_string(&mut text)?;
        Ok(text)
    }
}

impl Read for Body {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        if let Left::Chunk(None) = self.left {
            let size = line(&mut self.stream)?;
            let digits = size.split(';').next().unwrap_or_default().trim();
            let size = u64::from_str_radix(digits, 16).map_err(|_| broken("a chunk", &size))?;
            self.left = match size {
                // No trailers were requested, so an empty line ends the body.
                0 if line(&mut self.stream)?.is_empty() => Left::Bytes(0),
                0 => return Err(broken("the end", "a trailer")),
                size => Left::Chunk(Some(size)),
            };
        }
        let (Left::Bytes(most) | Left::Chunk(Some(most))) = self.left else {
            return self.stream.read(buffer).map_err(stuck);
        };
        let most = usize::try_from(most).map_or(buffer.len(), |most| most.min(buffer.len()));
        let read = self.stream.read(&mut buffer[..most]).map_err(stuck)?;
        if read == 0 && most > 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match &mut self.left {
            Left::Bytes(left) => *left -= read as u64,
            Left::Chunk(Some(left)) if *left > read as u64 => *left -= read as u64,
            // The chunk has been read; its line ends here.
            _ => {
                line(&mut self.stream)?;
                self.left = Left::Chunk(None);
            }
        }
        Ok(read)
    }
}

/// A line without its line break.
fn line(stream: &mut BufReader<TcpStream>) -> io::Result<String> {
    let mut line = String::new();
    let limited = stream.by_ref().take(LONGEST_LINE).read_line(&mut line);
    limited.map_err(stuck)?;
    match line.strip_suffix('\n') {
        Some(line) => Ok(line.strip_suffix('\r').unwrap_or(line).to_owned()),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Sockets report an expired timeout as `WouldBlock`.
fn stuck(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            let message = "the server is stuck: nothing came for as long as it may take";
            io::Error::new(io::ErrorKind::TimedOut, message)
        }
        _ => error,
    }
}

fn broken(what: &str, found: &str) -> io::Error {
    let message = format!("{what} of an answer is broken: {found:?}");
    io::Error::new(io::ErrorKind::InvalidData, message)
}

#[cfg(test)]
pub(super) mod tests {
    use std::{net::TcpListener, thread};

    use super::*;

    /// The response to one request of a server that writes `pieces`.
    pub fn answered(pieces: &'static [&'static str]) -> io::Result<Reply> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\nask") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                request.push(byte[0]);
            }
            for piece in pieces {
                stream.write_all(piece.as_bytes()).unwrap();
                stream.flush().unwrap();
            }
            String::from_utf8(request).unwrap()
        });
        let stream = connect(address, Duration::from_secs(10)).unwrap();
        let reply = ask(stream, "POST", "/path", b"ask");
        let request = server.join().unwrap();
        assert!(
            request.starts_with("POST /path HTTP/1.1\r\nhost: "),
            "{request}"
        );
        assert!(request.contains("\r\ncontent-length: 3\r\n"), "{request}");
        reply
    }

    #[test]
    fn a_body_of_a_known_length_ends_there() {
        let reply = answered(&[
            "HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nno",
            "nemore",
        ]);
        let reply = reply.unwrap();
        assert_eq!(reply.status, 404);
        assert_eq!(reply.text().unwrap(), "none");
    }

    #[test]
    fn chunks_are_joined_however_they_arrive() {
        const HEAD: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        let reply = answered(&[HEAD, "3;x=y\r\nab", "c\r\nA\r\n0123456789\r\n", "0\r\n\r\n"]);
        assert_eq!(reply.unwrap().text().unwrap(), "abc0123456789");
    }

    #[test]
    fn a_server_that_says_nothing_is_stuck() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = connect(listener.local_addr().unwrap(), Duration::from_millis(20));
        let error = ask(stream.unwrap(), "GET", "/", b"").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(error.to_string().contains("stuck"), "{error}");
    }

    #[test]
    fn without_a_length_all_is_the_body() {
        let reply = answered(&["HTTP/1.1 200 OK\r\n\r\nto the ", "end"]);
        assert_eq!(reply.unwrap().text().unwrap(), "to the end");
    }

    #[test]
    fn an_answer_that_is_cut_or_broken_is_an_error() {
        let cut: [&'static [&'static str]; 3] = [
            &["HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nfour"],
            &["HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfour"],
            &["HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nfour\r\n"],
        ];
        for pieces in cut {
            let error = answered(pieces).unwrap().text().unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{pieces:?}");
        }
        for pieces in [
            &["HTTP/1.1\r\n\r\n"],
            &["HTTP/1.1 200 OK\r\nlonely\r\n\r\n"],
        ] {
            let error = answered(pieces).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{pieces:?}");
        }
        assert!(answered(&["HTTP/1.1 200 OK\r\n"]).is_err());
    }
}
