//! Chat templates designed to exhaust memory, stack or time: each is harmless or causes an error that names
//! it.

use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use super::serve::with_model;
use super::support::{AssertText, Sandbox};

/// The address space limit of the program and each worker, in KiB. Most of it is reserved by the allocator.
const MEMORY: &str = "4000000";
/// The time limit of a run on a busy machine. A template has 5 s.
const TIME: Duration = Duration::from_secs(90);

impl Sandbox {
    /// Runs the binary with limits on memory and time. Returns `None` if it exceeds the time.
    pub fn limited(&self, line: &str, input: &[u8]) -> Option<Output> {
        let binary = self.command([""; 0]);
        let mut command = Command::new("sh");
        command
            .args([
                "-c",
                &format!("ulimit -c 0; ulimit -v {MEMORY}; exec \"$0\" \"$@\""),
            ])
            .arg(binary.get_program())
            .args(line.split_whitespace())
            .current_dir(self.path(""))
            .envs(
                binary
                    .get_envs()
                    .filter_map(|(name, value)| Some((name, value?))),
            )
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // The program may exit before it has read all of its input.
        let _ = child.stdin.take().unwrap().write_all(input);
        let start = Instant::now();
        while child.try_wait().unwrap().is_none() {
            if start.elapsed() > TIME {
                child.kill().unwrap();
                child.wait().unwrap();
                return None;
            }
            thread::sleep(Duration::from_millis(10));
        }
        Some(child.wait_with_output().unwrap())
    }
}

fn attacks() -> Vec<(&'static str, String)> {
    let rows = rows(include_str!("../hostile_templates.txt"));
    rows.map(|(name, template)| (name, expanded(template)))
        .collect()
}

/// The rows `name: contents` of a table.
pub fn rows(table: &'static str) -> impl Iterator<Item = (&'static str, &'static str)> {
    let rows = table.lines().filter(|row| !row.is_empty());
    let rows = rows.filter(|row| !row.starts_with('#'));
    rows.map(|row| row.split_once(": ").unwrap())
}

/// A text in which `«COUNT TEXT»` stands for repetitions.
pub fn expanded(text: &str) -> String {
    let mut parts = text.split('«');
    let mut whole = parts.next().unwrap().to_owned();
    for part in parts {
        let (repeated, rest) = part.split_once('»').unwrap();
        let (count, text) = repeated.split_once(' ').unwrap();
        whole += &text.repeat(count.parse().unwrap());
        whole += rest;
    }
    whole
}

#[test]
fn hostile_templates_end_in_an_error_or_are_harmless() {
    let sandbox = Sandbox::new();
    let turn = json!({"messages": [
        {"role": "user", "content": "ping"}, {"role": "assistant", "content": "pong"},
    ]});
    sandbox.write("talk.jsonl", format!("{turn}\n").repeat(3));
    let attacks = attacks();
    assert!(attacks.len() > 60);
    for (at, (_, source)) in attacks.iter().enumerate() {
        sandbox.write(&format!("{at}.jinja"), source);
    }
    let waiting = Mutex::new(attacks.iter().enumerate());
    let results = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                loop {
                    let Some((at, (name, _))) = waiting.lock().unwrap().next() else {
                        return;
                    };
                    let line = format!(
                        "prepare talk.jsonl --out out{at} --tokenizer byte --chat-template {at}.jinja"
                    );
                    let output = sandbox.limited(&line, b"");
                    results.lock().unwrap().push((at, *name, output));
                }
            });
        }
    });
    let (mut limited, mut failures) = (0, Vec::new());
    for (at, name, output) in results.into_inner().unwrap() {
        let Some(output) = output else {
            failures.push(format!("{name}: ran for longer than {TIME:?}"));
            continue;
        };
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let shown: String = stderr.chars().take(300).collect();
        // Harmless templates render a text that contains no answer.
        let named = stderr.contains(&format!("chat template {at}.jinja"))
            || stderr.contains("hold nothing that is to be learnt");
        if output.status.code() != Some(1) || !named {
            failures.push(format!("{name}: {}: {shown}", output.status));
        }
        limited += usize::from(stderr.contains("limit"));
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(limited > 40, "only {limited} attacks met a limit");
    let line = "prepare talk.jsonl --out fine --tokenizer byte --chat-template chatml";
    assert!(sandbox.limited(line, b"").unwrap().status.success());
}

/// Repeats the messages unless a message triggers an attack.
const TRIGGERED: &str = "{% for m in messages %}{{ m.content }}{% endfor %}\
    {% if messages[-1].content == 'memory' %}{% set n = namespace(s='x' * 1000) %}\
    {% for i in range(40) %}{% set n.s = n.s ~ n.s %}{% endfor %}{% endif %}\
    {% if messages[-1].content == 'stack' %}{% set n = namespace() %}{% set n.x = n %}{{ n }}{% endif %}\
    {% if messages[-1].content == 'time' %}{% for i in range(100000) %}{{ ('ab' * 9999999).count('aab') }}{% endfor %}{% endif %}";

#[test]
fn a_server_survives_a_hostile_template() {
    let sandbox = with_model(64, &[1]);
    sandbox.write("triggered.jinja", TRIGGERED);
    let server = sandbox.serve("serve run --slots 2 --chat-template triggered.jinja");
    let ask = |content: &str| {
        server.post(
            "/v1/chat/completions",
            &json!({"model": "run", "max_tokens": 2, "messages": [{"role": "user", "content": content}]}),
        )
    };
    for attack in ["memory", "stack", "time", "memory"] {
        let answer = ask(attack);
        assert_eq!(answer.status, 400, "{attack}: {}", answer.body);
        let message = answer.json()["error"]["message"].to_string();
        message.assert_has("chat template triggered.jinja");
        message.assert_has("limit");
        let answer = ask("hello");
        assert_eq!(answer.status, 200, "after {attack}: {}", answer.body);
    }
}

#[test]
fn chat_survives_hostile_templates_and_oversized_messages() {
    let sandbox = with_model(64, &[1]);
    sandbox.write("triggered.jinja", TRIGGERED);
    let mut input = b"hello\nmemory\n".to_vec();
    input.extend(vec![b'x'; 20 << 20]);
    input.extend(b"\nhello\n");
    let line = "chat run --chat-template triggered.jinja --max-new-tokens 2";
    let output = sandbox.limited(line, &input).unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    stderr.assert_has("chat template triggered.jinja: ");
    stderr.assert_has("at most 1048576 bytes");
    assert!(output.stdout.iter().filter(|byte| **byte == b'\n').count() >= 2);
}

#[test]
fn opening_a_model_with_a_hostile_template_names_it() {
    let sandbox = with_model(64, &[1]);
    sandbox.write("bomb.jinja", "{{ '%2000000000s'|format('a') }}");
    for line in [
        "chat run --chat-template bomb.jinja",
        "serve run --port 0 --chat-template bomb.jinja",
    ] {
        let output = sandbox.limited(line, b"hello\n").unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{line}: {stderr}");
        stderr.assert_has("chat template bomb.jinja: ");
        stderr.assert_has("hint: ");
    }
}
