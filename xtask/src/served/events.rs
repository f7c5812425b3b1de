//! Server-sent events: the `data:` lines of a streamed answer, with their arrival times.

use std::{
    io::{self, BufRead, BufReader, Read},
    time::Instant,
};

use serde_json::Value;

/// The end of a stream.
const DONE: &str = "[DONE]";

/// A streamed answer.
#[derive(Debug)]
pub struct Events<R> {
    body: BufReader<R>,
    done: bool,
}

/// A server-sent event.
#[derive(Debug)]
pub struct Event {
    /// The time at which its line was read.
    pub at: Instant,
    /// Its data.
    pub value: Value,
}

impl<R: Read> Events<R> {
    /// The events of a body that ends with `[DONE]`.
    pub fn new(body: R) -> Self {
        Self {
            body: BufReader::new(body),
            done: false,
        }
    }

    fn read(&mut self) -> io::Result<Option<Event>> {
        loop {
            let mut line = String::new();
            if self.body.read_line(&mut line)? == 0 {
                // A body that ends early is not a complete answer.
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let Some(data) = line.strip_prefix("data:").map(str::trim) else {
                continue;
            };
            if data == DONE {
                return self.ended().map(|()| None);
            }
            let at = Instant::now();
            let value: Value = serde_json::from_str(data).map_err(|_| unexpected(data))?;
            return Ok(Some(Event { at, value }));
        }
    }

    /// Checks that the body ends after the last event.
    fn ended(&mut self) -> io::Result<()> {
        let mut rest = String::new();
        self.body.read_to_string(&mut rest)?;
        match rest.trim().is_empty() {
            true => Ok(()),
            false => Err(unexpected(&rest)),
        }
    }
}

impl<R: Read> Iterator for Events<R> {
    type Item = io::Result<Event>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let event = self.read().transpose();
        self.done |= !matches!(event, Some(Ok(_)));
        event
    }
}

fn unexpected(data: &str) -> io::Error {
    let message = format!("an event is broken: {data:?}");
    io::Error::new(io::ErrorKind::InvalidData, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(body: &str) -> Vec<Result<Value, io::ErrorKind>> {
        let events = Events::new(body.as_bytes());
        let value = |event: io::Result<Event>| event.map(|event| event.value);
        let values = events.map(|event| value(event).map_err(|error| error.kind()));
        values.collect()
    }

    #[test]
    fn data_lines_are_events_until_done_and_cut_or_broken_streams_are_errors() {
        use io::ErrorKind::{InvalidData, UnexpectedEof};
        for (body, expected) in [
            (
                ": hello\n\ndata: {\"a\": 1}\n\nevent: x\r\ndata:2\r\n\r\ndata: [DONE]\n\n",
                vec![Ok(serde_json::json!({"a": 1})), Ok(2.into())],
            ),
            ("data: 1\n\n", vec![Ok(1.into()), Err(UnexpectedEof)]),
            ("data: {\n", vec![Err(InvalidData)]),
            ("data: [DONE]\n\ndata: 1\n\n", vec![Err(InvalidData)]),
        ] {
            assert_eq!(values(body), expected, "{body}");
        }
    }
}
