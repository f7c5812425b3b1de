//! Attacks on everything that the server's OpenAPI description lists: each field of each body, and the parameters of each
//! operation.

use std::{
    iter,
    sync::atomic::{AtomicUsize, Ordering},
};

use emberlm_hostile::{EDGES, Fill, Operation, Outcome};

use crate::served::{http, process::Server};

/// The number of clients, which send the same large body at the same time.
pub const CLIENTS: usize = 16;
/// The size of bodies that the server admits.
const ADMITTED: usize = 256 << 10;
/// The size of bodies close to the memory that one request may have, and the values in them. The fields take turns.
const LARGE: usize = 2 << 20;
const OF_LARGE: [Fill; 4] = [Fill::Lists, Fill::Numbers, Fill::Names, Fill::Letters];
/// The server's default limit of a body, and the value in it.
const LARGEST: usize = 16 << 20;
const OF_LARGEST: Fill = Fill::Lists;

/// Hostile requests to one operation.
#[derive(Debug)]
pub struct Described {
    operation: Operation,
    requests: Vec<Planned>,
    next: AtomicUsize,
}

/// A request that is built when it is sent.
#[derive(Clone, Debug)]
enum Planned {
    /// A field with one of [`EDGES`].
    Edge { field: usize, value: usize },
    /// A field with a value that fills a body of a number of bytes.
    Fill {
        field: usize,
        fill: Fill,
        bytes: usize,
    },
    /// A hostile target, and its name for reports.
    Target { name: String, target: String },
}

impl Described {
    /// All requests to an operation.
    pub fn new(operation: Operation) -> Self {
        let mut requests = Vec::new();
        let numbers = || 0..operation.fields.len();
        for value in 0..EDGES.len() {
            requests.extend(numbers().map(|field| Planned::Edge { field, value }));
        }
        let targets = operation.targets().into_iter();
        requests.extend(targets.map(|(name, target)| Planned::Target { name, target }));
        for field in numbers() {
            let admitted = operation.fields[field].fills().map(|fill| (fill, ADMITTED));
            let large = OF_LARGE[field % OF_LARGE.len()];
            let all = admitted.chain([(large, LARGE), (OF_LARGEST, LARGEST)]);
            let all = all.map(|(fill, bytes)| Planned::Fill { field, fill, bytes });
            requests.extend(all.flat_map(|request| iter::repeat_n(request, CLIENTS)));
        }
        Self {
            operation,
            requests,
            next: AtomicUsize::new(0),
        }
    }

    /// Returns true if every request has been sent.
    pub fn is_complete(&self) -> bool {
        self.next.load(Ordering::Relaxed) >= self.requests.len() + CLIENTS
    }

    /// The request that is being sent.
    pub fn current(&self) -> String {
        let next = self.next.load(Ordering::Relaxed);
        self.name(&self.requests[next.saturating_sub(1) % self.requests.len()])
    }

    /// Sends the next request and checks the answer.
    pub fn send(&self, server: &Server) -> Result<Outcome, String> {
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        let request = &self.requests[next % self.requests.len()];
        let outcome = self.outcome(server, request);
        outcome.map_err(|wrong| format!("{}: {wrong}", self.name(request)))
    }

    fn outcome(&self, server: &Server, request: &Planned) -> Result<Outcome, String> {
        let fields = &self.operation.fields;
        let (target, body) = match request {
            Planned::Edge { field, value } => (None, fields[*field].body(EDGES[*value].1)),
            Planned::Fill { field, fill, bytes } => (None, fields[*field].filled(*fill, *bytes)),
            Planned::Target { target, .. } => (Some(target), "{}".to_owned()),
        };
        let path = target.unwrap_or(&self.operation.path);
        let reply = http::exchange(
            server.address,
            &self.operation.method,
            path,
            body.as_bytes(),
        );
        let (status, text) = reply.map_err(|error| format!("no answer: {error}"))?;
        match target {
            Some(_) => self.operation.check_target(status, &text),
            None => self.operation.check(status, &text),
        }
    }

    fn name(&self, request: &Planned) -> String {
        let pointer = |field: &usize| match self.operation.fields[*field].pointer.as_str() {
            "" => "the body",
            pointer => pointer,
        };
        match request {
            Planned::Edge { field, value } => format!("{} = {}", pointer(field), EDGES[*value].0),
            Planned::Fill { field, fill, bytes } => {
                format!(
                    "{} = {} of {} KiB",
                    pointer(field),
                    fill.name(),
                    bytes >> 10
                )
            }
            Planned::Target { name, .. } => name.clone(),
        }
    }
}
