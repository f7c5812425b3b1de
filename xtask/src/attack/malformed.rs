//! Malformed requests, which a server must reject with a code and a reason, or survive.

use std::{
    borrow::Cow,
    io::{self, Write},
    net::Shutdown,
};

use emberlm_hostile::has_reason;

use super::kinds::{CHAT, COMPLETIONS, EMBEDDINGS, RESPONSES};
use crate::served::{
    http,
    process::{PATIENCE, Server},
};

/// A malformed request.
#[derive(Clone, Debug)]
pub struct Malformed {
    /// Its name.
    pub name: Cow<'static, str>,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    /// A complete request, and the allowed status codes.
    Request {
        method: &'static str,
        path: &'static str,
        body: Vec<u8>,
        codes: &'static [u16],
    },
    /// Bytes after which the connection is closed without reading a response.
    Cut(Vec<u8>),
    /// Bytes after which the server must respond with one of these codes or close the connection.
    Raw(Vec<u8>, &'static [u16]),
}

/// All malformed requests to a server with this model.
pub fn all(model: &str) -> Vec<Malformed> {
    let request = |name, method, path, body: &[u8], codes| {
        let body = body.to_vec();
        let what = What::Request {
            method,
            path,
            body,
            codes,
        };
        Malformed::new(name, what)
    };
    let refused = |name, path, body: &str| {
        let codes: &[u16] = &[400, 413];
        let body = body.replace("MODEL", model);
        request(name, "POST", path, body.as_bytes(), codes)
    };
    let prompt = |name, prompt: &str| {
        let body = format!(r#"{{"model":"MODEL","max_tokens":4,"prompt":{prompt}}}"#);
        refused(name, COMPLETIONS, &body)
    };
    let field = |name, field: &str| prompt(name, &format!(r#""1 and 2",{field}"#));
    let raw = |name, bytes: &[u8], codes| Malformed::new(name, What::Raw(bytes.to_vec(), codes));
    let cut = |name, bytes: &str| Malformed::new(name, What::Cut(bytes.as_bytes().to_vec()));
    let long = format!("\"{}\"", "and ".repeat(50_000));
    let deep = "[".repeat(100_000);
    let stops = format!("\"stop\":[\"a\"{}]", ",\"b\"".repeat(1000));
    let huge = http::head("POST", COMPLETIONS, u64::MAX / 2);
    let half = http::head("POST", COMPLETIONS, 1000) + r#"{"model":"MO"#;
    let no_text = b"{\"model\":\"\xff\xfe\"}";
    let unknown = br#"{"model":"nobody","prompt":"a"}"#;
    let nobody = r#"{"model":"MODEL","messages":[{"role":5}]}"#;
    let nothing = r#"{"model":"MODEL","input":{}}"#;
    vec![
        refused("broken JSON", COMPLETIONS, r#"{"model":"MODEL","prompt":"#),
        refused("no JSON", CHAT, "hello"),
        refused("no body", EMBEDDINGS, ""),
        refused("no input", RESPONSES, "{}"),
        refused("a list for an object", COMPLETIONS, "[1, 2]"),
        refused("deep JSON", COMPLETIONS, &deep),
        refused("messages of nobody", CHAT, nobody),
        refused("an input of nothing", EMBEDDINGS, nothing),
        prompt("a deep prompt", &deep),
        prompt("a number as prompt", "5"),
        prompt("ids that are none", "[1, 99999999]"),
        prompt("negative ids", "[-1]"),
        prompt("mixed prompts", r#"["a", 1]"#),
        prompt("no prompts", "[]"),
        prompt("too long a prompt", &long),
        field("a text as temperature", r#""temperature":"hot""#),
        field("a number beyond numbers", r#""temperature":1e999"#),
        field("a huge n", r#""n":4294967297"#),
        field("an endless max_tokens", r#""max_tokens":1e300"#),
        field("a negative max_tokens", r#""max_tokens":-1"#),
        field("a bias of no token", r#""logit_bias":{"99999999":1}"#),
        field("too many stops", &stops),
        field("a stream of maybe", r#""stream":"maybe""#),
        request("no UTF-8", "POST", COMPLETIONS, no_text, &[400]),
        request("an unknown model", "POST", COMPLETIONS, unknown, &[404]),
        request("an unknown method", "PUT", COMPLETIONS, b"", &[405]),
        request("an unknown path", "POST", "/v1/nothing", b"", &[404]),
        raw("a length without end", huge.as_bytes(), &[400, 413]),
        raw("no HTTP", b"\x16\x03\x01\x00\xff hello\r\n\r\n", &[400]),
        cut("half a body", &half),
        cut("half a head", "POST /v1/comple"),
        cut("nothing", ""),
    ]
}

impl Malformed {
    fn new(name: impl Into<Cow<'static, str>>, what: What) -> Self {
        let name = name.into();
        Self { name, what }
    }

    /// A request that the server must reject with one of the status codes, if it does not close the connection.
    pub fn raw(name: String, request: String, codes: &'static [u16]) -> Self {
        Self::new(name, What::Raw(request.into_bytes(), codes))
    }

    /// Sends the request. The error describes the unexpected response.
    pub fn send(&self, server: &Server) -> Result<(), String> {
        let connect = || http::connect(server.address, PATIENCE);
        match &self.what {
            What::Request {
                method,
                path,
                body,
                codes,
            } => {
                let received = http::exchange(server.address, method, path, body);
                let (status, text) = received.map_err(|error| error.to_string())?;
                match codes.contains(&status) && has_reason(&text) {
                    true => Ok(()),
                    false => Err(format!("{status} {text}")),
                }
            }
            What::Raw(bytes, codes) => match connect().and_then(|stream| raw(stream, bytes)) {
                Ok(Some(status)) if !codes.contains(&status) => Err(status.to_string()),
                Ok(_) => Ok(()),
                Err(error) => Err(error.to_string()),
            },
            What::Cut(bytes) => {
                let sent = connect().and_then(|mut stream| {
                    stream.write_all(bytes)?;
                    Ok(stream)
                });
                // The server may have closed the connection already.
                let _ = sent
                    .map_err(|error| error.to_string())?
                    .shutdown(Shutdown::Both);
                Ok(())
            }
        }
    }
}

/// The status code of the response to bytes, or `None` if the server closes the connection.
fn raw(mut stream: std::net::TcpStream, bytes: &[u8]) -> io::Result<Option<u16>> {
    // The server may have responded and closed the connection already.
    let _ = stream.write_all(bytes);
    match http::reply(stream) {
        Ok(reply) => Ok(Some(reply.status)),
        Err(error) if is_closed(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns true if the server has closed the connection.
pub fn is_closed(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe
    )
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_kind_has_a_name_of_its_own() {
        let all = all("m");
        let names: HashSet<_> = all.iter().map(|kind| &kind.name).collect();
        assert_eq!(names.len(), all.len());
    }
}
