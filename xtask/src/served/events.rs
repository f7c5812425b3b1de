//! Server-sent events: the `data:` lines of a streamed answer, with their arrival times.

use std::{
    io::{self, BufRead, BufReader, Read},
    time::Instant,
};

use serde_json::Value;

/// The default end of a stream.
const DONE: &str = "[DONE]";

/// A streamed answer.
#[derive(Debug)]
pub struct Events<R> {
    body: BufReader<R>,
    /// The field that marks the last event, if the stream does not end with `[DONE]`.
    last: Option<&'static str>,
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
            last: None,
            done: false,
        }
    }

    /// The events of a body whose last event has the field `last`.
    pub fn ending(body: R, last: &'static str) -> Self {
        Self {
            last: Some(last),
            ..Self::new(body)
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
            if data == DONE && self.last.is_none() {
                return self.ended().map(|()| None);
            }
            let at = Instant::now();
            let value: Value = serde_json::from_str(data).map_err(|_| unexpected(data))?;
            if self.last.is_some_and(|last| !value[last].is_null()) {
                self.ended()?;
                self.done = true;
            }
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
    fn data_lines_are_events_until_done() {
        let body = ": hello\n\ndata: {\"a\": 1}\n\nevent: x\r\ndata:2\r\n\r\ndata: [DONE]\n\n";
        assert_eq!(
            values(body),
            [Ok(serde_json::json!({"a": 1})), Ok(2.into())]
        );
    }

    #[test]
    fn an_event_may_be_the_last_one() {
        let last = |body: &str| {
            let events = Events::ending(body.as_bytes(), "end");
            events.map(|event| event.is_ok()).collect::<Vec<_>>()
        };
        assert_eq!(
            last("data: {\"a\":1}\n\ndata: {\"end\":{}}\n\n"),
            [true, true]
        );
        assert_eq!(last("data: {\"a\":1}\n\n"), [true, false]);
        assert_eq!(last("data: {\"end\":{}}\n\ndata: 1\n\n"), [false]);
    }

    #[test]
    fn a_stream_that_is_cut_broken_or_goes_on_is_an_error() {
        let cut = values("data: 1\n\n");
        assert_eq!(cut, [Ok(1.into()), Err(io::ErrorKind::UnexpectedEof)]);
        assert_eq!(values("data: {\n"), [Err(io::ErrorKind::InvalidData)]);
        let more = values("data: [DONE]\n\ndata: 1\n\n");
        assert_eq!(more, [Err(io::ErrorKind::InvalidData)]);
    }
}
