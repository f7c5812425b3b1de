//! Malformed requests, which a server must reject with a code and a reason, or survive.

use std::{
    borrow::Cow,
    io::{self, Write},
    net::Shutdown,
};

use emberlm_hostile::has_reason;

use crate::served::{
    http,
    process::{PATIENCE, Server},
};

const COMPLETIONS: &str = "/v1/completions";
const CHAT: &str = "/v1/chat/completions";
const RESPONSES: &str = "/v1/responses";
const EMBEDDINGS: &str = "/v1/embeddings";

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

/// All malformed requests. `MODEL` in a body stands for the name of the model.
pub fn all() -> Vec<Malformed> {
    let field = |name, field: &str| {
        let body = format!(r#"{{"model":"MODEL","prompt":"1 and 2","max_tokens":4,{field}}}"#);
        refused(name, COMPLETIONS, body)
    };
    let prompt = |name, prompt: &str| {
        let body = format!(r#"{{"model":"MODEL","max_tokens":4,"prompt":{prompt}}}"#);
        refused(name, COMPLETIONS, body)
    };
    let long = format!("\"{}\"", "and ".repeat(50_000));
    let deep = "[".repeat(100_000);
    let stops = format!("[\"a\"{}]", ",\"b\"".repeat(1000));
    let request = |name: &'static str, method, path, codes| Malformed {
        name: name.into(),
        what: What::Request {
            method,
            path,
            body: Vec::new(),
            codes,
        },
    };
    let huge = http::head("POST", COMPLETIONS, u64::MAX / 2);
    let half = http::head("POST", COMPLETIONS, 1000) + r#"{"model":"MO"#;
    vec![
        refused(
            "broken JSON",
            COMPLETIONS,
            r#"{"model":"MODEL","prompt":"#.to_owned(),
        ),
        refused("no JSON", CHAT, "hello".to_owned()),
        refused("no body", EMBEDDINGS, String::new()),
        refused("no input", RESPONSES, "{}".to_owned()),
        refused("a list for an object", COMPLETIONS, "[1, 2]".to_owned()),
        refused("deep JSON", COMPLETIONS, deep.clone()),
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
        field("too many stops", &format!(r#""stop":{stops}"#)),
        field("a stream of maybe", r#""stream":"maybe""#),
        refused(
            "messages of nobody",
            CHAT,
            r#"{"model":"MODEL","messages":[{"role":5}]}"#.to_owned(),
        ),
        refused(
            "an input of nothing",
            EMBEDDINGS,
            r#"{"model":"MODEL","input":{}}"#.to_owned(),
        ),
        Malformed {
            name: "bytes that are no text".into(),
            what: What::Request {
                method: "POST",
                path: COMPLETIONS,
                body: b"{\"model\":\"\xff\xfe\"}".to_vec(),
                codes: &[400],
            },
        },
        Malformed {
            name: "an unknown model".into(),
            what: What::Request {
                method: "POST",
                path: COMPLETIONS,
                body: br#"{"model":"nobody","prompt":"a"}"#.to_vec(),
                codes: &[404],
            },
        },
        request("a method that is not there", "PUT", COMPLETIONS, &[405]),
        request("a path that is not there", "POST", "/v1/nothing", &[404]),
        Malformed {
            name: "a length without end".into(),
            what: What::Raw(huge.into_bytes(), &[400, 413]),
        },
        Malformed {
            name: "no HTTP".into(),
            what: What::Raw(b"\x16\x03\x01\x00\xff hello\r\n\r\n".to_vec(), &[400]),
        },
        Malformed {
            name: "half a body".into(),
            what: What::Cut(half.into_bytes()),
        },
        Malformed {
            name: "half a head".into(),
            what: What::Cut(b"POST /v1/comple".to_vec()),
        },
        Malformed {
            name: "nothing".into(),
            what: What::Cut(Vec::new()),
        },
    ]
}

fn refused(name: &'static str, path: &'static str, body: String) -> Malformed {
    Malformed {
        name: name.into(),
        what: What::Request {
            method: "POST",
            path,
            body: body.into_bytes(),
            codes: &[400, 413],
        },
    }
}

impl Malformed {
    /// A request that the server must reject with one of the status codes, if it does not close the connection.
    pub fn raw(name: String, request: String, codes: &'static [u16]) -> Self {
        Self {
            name: name.into(),
            what: What::Raw(request.into_bytes(), codes),
        }
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
                let body = named(body, &server.model);
                let received = http::exchange(server.address, method, path, &body);
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

fn named(body: &[u8], model: &str) -> Vec<u8> {
    match std::str::from_utf8(body) {
        Ok(text) => text.replace("MODEL", model).into_bytes(),
        Err(_) => body.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_kind_has_a_name_of_its_own() {
        let all = all();
        let names: HashSet<_> = all.iter().map(|kind| &kind.name).collect();
        assert_eq!(names.len(), all.len());
    }
}
