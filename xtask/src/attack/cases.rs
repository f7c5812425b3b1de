//! Requests at temperature 0, with the answers to a single client.

use std::{io, net::Shutdown, time::Duration};

use serde_json::{Value, json};

use super::kinds::COMPLETIONS;
use crate::{
    error::Error,
    served::{
        events::Events,
        http,
        process::{PATIENCE, Server},
    },
};

/// The number of cases.
const CASES: usize = 24;
/// The minimum margin of each token over the second most probable one, in nats. Sums over another number of
/// sequences have another order and can reverse a near tie.
const MARGIN: f64 = 1e-3;
/// The maximum number of candidates.
const MOST: usize = 4000;

/// A request and its answer.
#[derive(Clone, Debug)]
pub struct Case {
    model: String,
    prompt: String,
    max_tokens: usize,
    stop: Option<String>,
    answer: Answer,
}

/// The parts of an answer that are compared.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    text: String,
    finish: String,
    tokens: u64,
}

/// Cases whose tokens the model selects with a sufficient margin, with the answers to a single client.
pub fn of_one_client(server: &Server) -> Result<Vec<Case>, Error> {
    let mut cases = Vec::new();
    for number in 0..MOST {
        if cases.len() == CASES {
            break;
        }
        let mut case = Case {
            model: server.model.clone(),
            prompt: format!("{} and {} make", number % 40, number * 13 % 31),
            max_tokens: 8 + number * 29 % 120,
            stop: None,
            answer: Answer::default(),
        };
        if case.margin(server)? < MARGIN {
            continue;
        }
        case.answer = case.alone(server)?;
        // A third of the cases end at a stop text that occurs in the answer.
        if number % 3 == 0 {
            let text = &case.answer.text;
            let middle = text.chars().skip(text.chars().count() / 2).take(3);
            case.stop = Some(middle.collect()).filter(|stop: &String| !stop.is_empty());
            case.answer = case.alone(server)?;
        }
        cases.push(case);
    }
    if cases.len() < CASES {
        return Err(Error::Answer {
            command: server.model.clone(),
            what: format!(
                "{CASES} texts of which each token is {MARGIN} nats likelier than any other"
            ),
            found: format!("{} in {MOST}", cases.len()),
        });
    }
    Ok(cases)
}

impl Case {
    /// The body of the request.
    pub fn body(&self, stream: bool) -> Value {
        let mut body = json!({
            "model": self.model,
            "prompt": self.prompt,
            "max_tokens": self.max_tokens,
            "temperature": 0,
            "stream": stream,
        });
        if let Some(stop) = &self.stop {
            body["stop"] = json!(stop);
        }
        if stream {
            body["stream_options"] = json!({"include_usage": true});
        }
        body
    }

    /// The maximum number of tokens of the answer.
    pub fn max_tokens(&self) -> usize {
        self.max_tokens
    }

    /// Checks that an answer equals the answer to a single client.
    pub fn compare(&self, answer: &Answer, how: &str) -> Result<(), String> {
        if *answer == self.answer {
            return Ok(());
        }
        Err(format!(
            "{how}, {:?} was answered with {answer:?}, and by itself with {:?}",
            self.prompt, self.answer
        ))
    }

    /// Repeats the request without other clients and checks the answer.
    pub fn check(&self, server: &Server) -> Result<(), String> {
        let answer = self.alone(server).map_err(|error| error.to_string())?;
        self.compare(&answer, "by itself")
    }

    fn alone(&self, server: &Server) -> Result<Answer, Error> {
        let body = self.body(false);
        let asked = ask(server, &body).and_then(|reply| Answer::whole(&reply.text()?));
        asked.map_err(|error| wrong(&body, &error))
    }

    /// The smallest margin of a token over the second most probable one. It is read from the playground's
    /// stream, which identifies tokens by id: several tokens of a completion may have the same text.
    fn margin(&self, server: &Server) -> Result<f64, Error> {
        let body = json!({
            "model": self.model,
            "prompt": self.prompt,
            "max_tokens": self.max_tokens,
            "temperature": 0,
            "top_logprobs": 2,
        });
        let text = post(server, "/api/play", &body).and_then(http::Reply::text);
        let text = text.map_err(|error| wrong(&body, &error))?;
        let data = text.lines().filter_map(|line| line.strip_prefix("data:"));
        let events: Vec<Value> = data
            .filter_map(|it| serde_json::from_str(it).ok())
            .collect();
        if events.last().is_none_or(|event| event["end"].is_null()) {
            return Err(wrong(&body, &unlike(&text)));
        }
        let of_place = |event: &Value| {
            let top = &event["token"]["top"];
            Some(top[0]["logprob"].as_f64()? - top[1]["logprob"].as_f64()?)
        };
        let margins = events.iter().filter_map(of_place);
        Ok(margins.fold(f64::INFINITY, f64::min))
    }
}

impl Answer {
    /// Parses a complete body.
    pub fn whole(text: &str) -> io::Result<Self> {
        let mut answer = Self::default();
        let value: Value = serde_json::from_str(text).map_err(|_| unlike(text))?;
        answer.add(&value)?;
        answer.ended(text)
    }

    /// Reads a stream to its end.
    pub fn streamed(body: http::Body) -> io::Result<Self> {
        let mut answer = Self::default();
        for event in Events::new(body) {
            answer.add(&event?.value)?;
        }
        answer.ended("the stream")
    }

    fn add(&mut self, value: &Value) -> io::Result<()> {
        if !value["error"].is_null() {
            return Err(unlike(&value.to_string()));
        }
        let choice = &value["choices"][0];
        self.text
            .push_str(choice["text"].as_str().unwrap_or_default());
        if let Some(finish) = choice["finish_reason"].as_str() {
            self.finish.push_str(finish);
        }
        if let Some(tokens) = value["usage"]["completion_tokens"].as_u64() {
            self.tokens += tokens;
        }
        Ok(())
    }

    /// Checks that the answer has a finish reason and a token count.
    fn ended(self, text_received: &str) -> io::Result<Self> {
        match self.finish.is_empty() || self.tokens == 0 {
            true => Err(unlike(text_received)),
            false => Ok(self),
        }
    }
}

/// Sends a completion request and reads the head of the response. A status other than
/// 200 is an error.
pub fn ask(server: &Server, body: &Value) -> io::Result<http::Reply> {
    post(server, COMPLETIONS, body)
}

/// Sends a completion request and disconnects after a while without reading.
pub fn ask_and_leave(server: &Server, body: &str, after: Duration) -> io::Result<()> {
    let mut stream = http::connect(server.address, PATIENCE)?;
    let request = http::head("POST", COMPLETIONS, body.len() as u64) + body;
    io::Write::write_all(&mut stream, request.as_bytes())?;
    std::thread::sleep(after);
    // The server may have closed the connection already.
    let _ = stream.shutdown(Shutdown::Both);
    Ok(())
}

fn post(server: &Server, path: &str, body: &Value) -> io::Result<http::Reply> {
    let stream = http::connect(server.address, PATIENCE)?;
    let reply = http::ask(stream, "POST", path, body.to_string().as_bytes())?;
    match reply.status {
        200 => Ok(reply),
        status => Err(unlike(&format!("{status} {}", reply.text()?))),
    }
}

fn wrong(body: &Value, error: &io::Error) -> Error {
    Error::Answer {
        command: body.to_string(),
        what: "the answer".to_owned(),
        found: error.to_string(),
    }
}

fn unlike(found: &str) -> io::Error {
    let message = format!("not an answer: {found}");
    io::Error::new(io::ErrorKind::InvalidData, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_a_text_an_end_and_a_count() {
        let text =
            r#"{"choices":[{"text":"ab","finish_reason":"stop"}],"usage":{"completion_tokens":2}}"#;
        let expected = Answer {
            text: "ab".to_owned(),
            finish: "stop".to_owned(),
            tokens: 2,
        };
        assert_eq!(Answer::whole(text).unwrap(), expected);
        for broken in [
            "{",
            r#"{"choices":[{"text":"ab"}],"usage":{"completion_tokens":2}}"#,
            r#"{"choices":[{"text":"ab","finish_reason":"stop"}]}"#,
            r#"{"error":{"message":"no"}}"#,
        ] {
            assert!(Answer::whole(broken).is_err(), "{broken}");
        }
    }

    #[test]
    fn a_different_answer_is_reported_with_both_texts() {
        let case = Case {
            model: String::new(),
            prompt: "1 and".to_owned(),
            max_tokens: 8,
            stop: None,
            answer: Answer::default(),
        };
        let other = Answer {
            tokens: 3,
            ..Answer::default()
        };
        assert_eq!(case.compare(&Answer::default(), "streamed"), Ok(()));
        let wrong = case.compare(&other, "streamed").unwrap_err();
        assert!(
            wrong.starts_with("streamed, \"1 and\" was answered with"),
            "{wrong}"
        );
    }
}
