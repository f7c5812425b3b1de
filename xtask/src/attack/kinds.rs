//! The list of attacks.

use emberlm_hostile::operations;
use serde_json::{Value, json};

use super::{
    described::{self, Described},
    malformed::{self, Malformed},
};
use crate::{
    error::Error,
    served::{http, process::Server},
};

pub const COMPLETIONS: &str = "/v1/completions";
pub const CHAT: &str = "/v1/chat/completions";
pub const RESPONSES: &str = "/v1/responses";
pub const EMBEDDINGS: &str = "/v1/embeddings";
pub const PLAY: &str = "/api/play";
/// The name of the attack [`Means::Storm`].
pub const STORM: &str = "storm";
/// Concurrent well-behaved clients, except in a storm.
const WELL_BEHAVED: usize = 2;

/// An attack.
#[derive(Debug)]
pub struct Attack {
    /// The name in the table.
    pub name: String,
    /// The number of concurrent attackers.
    pub clients: usize,
    /// The number of concurrent well-behaved clients.
    pub well_behaved: usize,
    /// The action of each attacker.
    pub means: Means,
}

/// The action of an attacking client.
#[derive(Debug)]
pub enum Means {
    /// Sends these bodies in turn and reads the answers.
    Bodies(Vec<(&'static str, String)>),
    /// Sends requests that the server must reject.
    Malformed(Vec<Malformed>),
    /// Sends this body, disconnects after a random delay, and repeats.
    Leaves(String),
    /// Sends requests of well-behaved clients and disconnects within the answer. Every fifth client sends these
    /// malformed requests instead.
    Storm(Vec<Malformed>),
    /// Sends each of these requests to an operation of the server's description.
    Described(Described),
    /// Opens connections, sends as much of this on each as the server reads, and never reads.
    Unread { connections: usize, request: String },
    /// Sends a request byte by byte for as long as the server accepts it.
    Slow,
    /// Sends an endless body.
    Endless,
}

impl Attack {
    /// Returns true if everyday requests are repeated, so that the server's memory and open files must not grow.
    pub fn is_storm(&self) -> bool {
        matches!(self.means, Means::Storm(_))
    }

    /// The current request, for reports. Empty if the attack always sends similar ones.
    pub fn current(&self) -> String {
        match &self.means {
            Means::Described(described) => described.current(),
            _ => String::new(),
        }
    }
}

/// An attack on each operation of the server.
pub fn of_description(server: &Server) -> Result<Vec<Attack>, Error> {
    const PATH: &str = "/openapi.json";
    let description = server.json(PATH)?;
    let known = json!({ "model": server.model });
    let operations = operations(&description, &known).map_err(|error| Error::Answer {
        command: server.model.clone(),
        what: PATH.to_owned(),
        found: error.to_string(),
    })?;
    let attacks = operations.into_iter().map(|operation| Attack {
        name: operation.name(),
        clients: described::CLIENTS,
        well_behaved: WELL_BEHAVED,
        means: Means::Described(Described::new(operation)),
    });
    Ok(attacks.collect())
}

/// The attacks that do not depend on the server's description, in order of execution.
pub fn all(model: &str) -> Vec<Attack> {
    let of_model = |mut body: Value| {
        body["model"] = json!(model);
        body.to_string()
    };
    let bodies = |bodies: Vec<(_, Value)>| {
        let bodies = bodies.into_iter();
        let bodies = bodies.map(|(path, body)| (path, of_model(body)));
        Means::Bodies(bodies.collect())
    };
    // The answer has several megabytes, more than the sockets' buffers hold.
    let chat = of_model(json!({
        "messages": [{"role": "user", "content": "1 and 2 make"}], "max_tokens": 400, "n": 8,
        "temperature": 1.0, "logprobs": true, "top_logprobs": 20, "stream": true,
    }));
    let chat = http::head("POST", CHAT, chat.len() as u64) + &chat;
    let page = http::head("GET", "/openapi.json", 0).replace("connection: close\r\n", "");
    let attack = |name: &str, clients, means| Attack {
        name: name.to_owned(),
        clients,
        well_behaved: WELL_BEHAVED,
        means,
    };
    let unread = |connections, request| Means::Unread {
        connections,
        request,
    };
    vec![
        attack("hostile JSON schemas", 4, bodies(schemas())),
        attack("hostile regular expressions", 12, bodies(expressions())),
        attack(
            "foreign `Host` and `Origin`",
            2,
            Means::Malformed(foreign().into_iter().map(rejected).collect()),
        ),
        attack(
            "malformed requests",
            4,
            Means::Malformed(malformed::all(model)),
        ),
        attack("bodies without end", 4, Means::Endless),
        attack("requests byte by byte", 16, Means::Slow),
        attack("idle connections", 4, unread(64, String::new())),
        attack(
            "pipelining without reading",
            8,
            unread(16, page.repeat(2000)),
        ),
        attack("streams that nobody reads", 4, unread(4, chat)),
        attack("embeddings of long texts", 4, bodies(embeddings())),
        attack("many samples with alternatives", 4, bodies(alternatives())),
        attack(
            "clients that leave",
            16,
            Means::Leaves(of_model(json!({
                "prompt": "1 and 2 make", "max_tokens": 400, "n": 4, "temperature": 1.0, "stream": true,
            }))),
        ),
        Attack {
            well_behaved: 25,
            ..attack(STORM, 39, Means::Storm(malformed::all(model)))
        },
    ]
}

/// Schemas that once exhausted the stack or the memory during compilation, through every request field.
fn schemas() -> Vec<(&'static str, Value)> {
    let chain = {
        let mut definitions = serde_json::Map::new();
        for link in 0..2000 {
            definitions.insert(
                format!("d{link}"),
                json!({"$ref": format!("#/$defs/d{}", link + 1)}),
            );
        }
        definitions.insert("d2000".to_owned(), json!({"type": "null"}));
        json!({"$ref": "#/$defs/d0", "$defs": definitions})
    };
    let flat = |count: usize, required: bool| {
        let names: Vec<String> = (0..count).map(|name| format!("p{name}")).collect();
        let properties: serde_json::Map<String, Value> =
            names.iter().map(|name| (name.clone(), json!({}))).collect();
        json!({"type": "object", "properties": properties, "required": if required { names } else { Vec::new() }})
    };
    let deep = (0..100).fold(
        json!({"type": "null"}),
        |inner, _| json!({"type": "array", "items": inner}),
    );
    let wide = json!({"type": "array", "minItems": 100_000, "maxItems": 1_000_000, "items": {"type": "string", "minLength": 100_000}});
    let itself = json!({"anyOf": [{"$ref": "#"}, {"$ref": "#"}]});
    let mut bodies = Vec::new();
    for schema in [
        chain,
        flat(7000, false),
        flat(30_000, true),
        deep,
        wide,
        itself,
    ] {
        bodies.extend(of_schema(&schema));
    }
    bodies
}

fn of_schema(schema: &Value) -> [(&'static str, Value); 4] {
    let messages = json!([{"role": "user", "content": "a"}]);
    let structured = json!({"json": schema});
    [
        (
            COMPLETIONS,
            json!({"prompt": "a", "max_tokens": 4, "structured_outputs": structured}),
        ),
        (
            CHAT,
            json!({"messages": messages, "max_tokens": 4, "response_format": {
                "type": "json_schema", "json_schema": {"name": "x", "schema": schema},
            }}),
        ),
        (
            RESPONSES,
            json!({"input": "a", "max_output_tokens": 4, "text": {"format": {
                "type": "json_schema", "name": "x", "schema": schema,
            }}}),
        ),
        (
            PLAY,
            json!({"prompt": "a", "max_tokens": 4, "structured_outputs": structured}),
        ),
    ]
}

/// Regular expressions whose compilation once took gigabytes.
fn expressions() -> Vec<(&'static str, Value)> {
    let body = |regex: String| {
        (
            COMPLETIONS,
            json!({"prompt": "a", "max_tokens": 4, "structured_outputs": {"regex": regex}}),
        )
    };
    let repeated = ["a?", "a*", ".?", "(?:a|)"].map(|part| body(part.repeat(20_000)));
    let nested = body("(((a{1,1000}){1,1000}){1,1000}){1,1000}".to_owned());
    let choice: Vec<String> = (0..20_000)
        .map(|choice| format!("choice {choice}"))
        .collect();
    let choices = (
        COMPLETIONS,
        json!({"prompt": "a", "max_tokens": 4, "structured_outputs": {"choice": choice}}),
    );
    let mut bodies = repeated.to_vec();
    bodies.extend([
        nested,
        body("(".repeat(10_000)),
        body(r"\p{L}{0,5000}x".to_owned()),
        choices,
    ]);
    bodies
}

fn embeddings() -> Vec<(&'static str, Value)> {
    let text = "1 and 2 make 3. ".repeat(31);
    let texts = vec![text; 64];
    vec![(EMBEDDINGS, json!({"input": texts}))]
}

fn alternatives() -> Vec<(&'static str, Value)> {
    let messages = json!([{"role": "user", "content": "a"}]);
    vec![
        (
            COMPLETIONS,
            json!({"prompt": "1 and 2 make", "max_tokens": 400, "n": 8, "logprobs": 5}),
        ),
        (
            CHAT,
            json!({"messages": messages, "max_tokens": 400, "n": 8, "logprobs": true, "top_logprobs": 20}),
        ),
        (
            COMPLETIONS,
            json!({"prompt": vec!["1 and 2 make"; 64], "max_tokens": 400, "n": 64, "logprobs": 5}),
        ),
    ]
}

/// A request of another site's page.
fn rejected(request: String) -> Malformed {
    let head: Vec<&str> = request.lines().take(3).collect();
    Malformed::raw(head.join(" "), request, &[400, 403, 421])
}

/// Requests of another site's page, after DNS rebinding or from a form.
fn foreign() -> Vec<String> {
    let body = r#"{"model":"m","prompt":"a","max_tokens":1}"#;
    let post = http::head("POST", COMPLETIONS, body.len() as u64) + body;
    let get = http::head("GET", "/v1/models", 0);
    let mut requests = Vec::new();
    for request in [post, get] {
        for host in [
            "attacker.example",
            "attacker.example:80",
            "127.0.0.1.attacker.example",
            "localhost.attacker.example",
        ] {
            requests.push(request.replace("host: localhost", &format!("host: {host}")));
        }
        requests.push(request.replace("host: localhost\r\n", ""));
        for origin in ["http://attacker.example", "null"] {
            requests.push(request.replace(
                "host: localhost",
                &format!("host: localhost\r\norigin: {origin}"),
            ));
        }
    }
    requests
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn attacks_have_names_of_their_own_and_bodies_below_the_limit() {
        let all = all("m");
        let names: HashSet<_> = all.iter().map(|attack| &attack.name).collect();
        assert_eq!(names.len(), all.len());
        for attack in &all {
            if let Means::Bodies(bodies) = &attack.means {
                // A larger body would be rejected for its size.
                assert!(
                    bodies.iter().all(|(_, body)| body.len() < 1 << 20),
                    "{}",
                    attack.name
                );
            }
        }
    }

    #[test]
    fn every_foreign_request_differs_from_a_local_one() {
        for request in foreign() {
            assert!(
                request.contains("attacker.example")
                    || request.contains("origin: null")
                    || !request.contains("host:"),
                "{request}"
            );
        }
    }
}
