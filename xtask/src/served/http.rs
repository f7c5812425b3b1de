//! A minimal HTTP/1.1 client with one request per connection.
//!
//! The attacks close connections within an answer or a request, and send requests that client libraries do not
//! allow. Client libraries also lose an answer that arrives before the request was sent. The benchmark measures the
//! arrival of each event.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use super::process::PATIENCE;

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

/// Sends a complete request and reads the whole response: its status and its body.
pub fn exchange(
    address: SocketAddr,
    method: &str,
    path: &str,
    body: &[u8],
) -> io::Result<(u16, String)> {
    let reply = ask(connect(address, PATIENCE)?, method, path, body)?;
    Ok((reply.status, reply.text()?))
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
mod tests {
    use std::{net::TcpListener, thread};

    use super::*;

    const LENGTH: &str = "HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nno";
    const CHUNKED: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";

    /// The response to one request of a server that writes `pieces`.
    fn answered(pieces: &'static [&'static str]) -> io::Result<(u16, String)> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = vec![0; head("POST", "/path", 3).len() + 3];
            stream.read_exact(&mut request).unwrap();
            for piece in pieces {
                stream.write_all(piece.as_bytes()).unwrap();
                stream.flush().unwrap();
            }
            String::from_utf8(request).unwrap()
        });
        let answer = exchange(address, "POST", "/path", b"ask");
        let request = server.join().unwrap();
        assert_eq!(request, head("POST", "/path", 3) + "ask");
        answer
    }

    #[test]
    fn bodies_end_where_their_heads_say_so_and_cut_or_broken_answers_are_errors() {
        use io::ErrorKind::{InvalidData, UnexpectedEof};
        for (pieces, expected) in [
            (&[LENGTH, "nemore"][..], Ok((404, "none"))),
            (
                &[
                    CHUNKED,
                    "3;x=y\r\nab",
                    "c\r\nA\r\n0123456789\r\n",
                    "0\r\n\r\n",
                ],
                Ok((200, "abc0123456789")),
            ),
            (
                &["HTTP/1.1 200 OK\r\n\r\nto the ", "end"],
                Ok((200, "to the end")),
            ),
            (&[LENGTH], Err(UnexpectedEof)),
            (&[CHUNKED, "5\r\nfour"], Err(UnexpectedEof)),
            (&[CHUNKED, "4\r\nfour\r\n"], Err(UnexpectedEof)),
            (&["HTTP/1.1 200 OK\r\n"], Err(UnexpectedEof)),
            (&["HTTP/1.1\r\n\r\n"], Err(InvalidData)),
            (&["HTTP/1.1 200 OK\r\nlonely\r\n\r\n"], Err(InvalidData)),
        ] {
            let found = answered(pieces).map_err(|error| error.kind());
            let expected = expected.map(|(status, text)| (status, text.to_owned()));
            assert_eq!(found, expected, "{pieces:?}");
        }
    }

    #[test]
    fn a_server_that_says_nothing_is_stuck() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = connect(listener.local_addr().unwrap(), Duration::from_millis(20));
        let error = ask(stream.unwrap(), "GET", "/", b"").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(error.to_string().contains("stuck"), "{error}");
    }
}
