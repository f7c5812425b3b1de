//! Chat templates designed to exhaust memory, stack or time: each is harmless or causes an error that names
//! it.

use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use super::serve::with_model;
use super::support::Sandbox;

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

fn times(text: &str, count: usize) -> String {
    text.repeat(count)
}

/// Names of attacks with their templates.
fn attacks() -> Vec<(&'static str, String)> {
    let text = |attacks: &[(&'static str, &str)]| -> Vec<(&'static str, String)> {
        attacks
            .iter()
            .map(|(name, source)| (*name, (*source).to_owned()))
            .collect()
    };
    let mut all = text(&[
        // Memory exhaustion.
        (
            "doubled string",
            "{% set n = namespace(s='x' * 1000) %}{% for i in range(40) %}{% set n.s = n.s ~ n.s %}{% endfor %}{{ n.s }}",
        ),
        (
            "added string",
            "{% set n = namespace(s='x' * 1000) %}{% for i in range(40) %}{% set n.s = n.s + n.s %}{% endfor %}{{ n.s|length }}",
        ),
        (
            "doubled list",
            "{% set n = namespace(l=[1]) %}{% for i in range(40) %}{% set n.l = (n.l + n.l)|list %}{% endfor %}{{ n.l|length }}",
        ),
        ("width of format", "{{ '%10000000000d'|format(1) }}"),
        ("width of text", "{{ '%2000000000s'|format('a') }}"),
        ("precision of format", "{{ '%.2000000000f'|format(1.0) }}"),
        ("width given to format", "{{ '%*d'|format(2000000000, 1) }}"),
        ("method format", "{{ '{:>2000000000}'.format(1) }}"),
        ("indent", "{{ ('\\n' * 1000000)|indent(1000000) }}"),
        ("width of indent", "{{ 'a\\nb'|indent(10000000000) }}"),
        ("batch", "{{ [1]|batch(10000000000, 'x')|list }}"),
        ("slice", "{{ [1]|slice(2000000000, 'x')|list }}"),
        (
            "replace",
            "{{ ('a' * 100000)|replace('a', 'b' * 1000000) }}",
        ),
        (
            "method replace",
            "{{ ('a' * 100000).replace('a', 'b' * 1000000) }}",
        ),
        (
            "replace nothing",
            "{{ ('a' * 1000000)|replace('', 'b' * 100000) }}",
        ),
        ("center", "{{ 'x'|center(10000000000) }}"),
        ("method center", "{{ 'x'.center(10000000000) }}"),
        ("method ljust", "{{ 'x'.ljust(10000000000) }}"),
        ("method zfill", "{{ 'x'.zfill(10000000000) }}"),
        ("join", "{{ (['x'] * 1000000)|join('y' * 100000) }}"),
        (
            "method join",
            "{{ ('y' * 100000).join((['x'] * 1000000)|list) }}",
        ),
        ("multiplied string", "{{ 'x' * 10 ** 10 }}"),
        (
            "multiplied strings",
            "{% set n = namespace(l=[]) %}{% for i in range(1000) %}{% set n.l = n.l + ['x' * 99999999] %}{% endfor %}",
        ),
        ("multiplied list", "{{ ([0] * 100000000)|list|length }}"),
        (
            "multiplied lists",
            "{{ (([0] * 10000) * 10000)|list|tojson }}",
        ),
        ("range", "{{ range(10 ** 12)|list }}"),
        ("split", "{{ ('a ' * 49999999).split()|length }}"),
        ("list of characters", "{{ ('a' * 99999999)|list|length }}"),
        (
            "written text",
            "{% for i in range(100000) %}{{ 'x' * 1000000 }}{% endfor %}",
        ),
        (
            "set block",
            "{% set s %}{% for i in range(100000) %}{{ 'x' * 1000000 }}{% endfor %}{% endset %}{{ s|length }}",
        ),
        (
            "indent of JSON",
            "{{ range(100000)|list|tojson(indent=1000000000) }}",
        ),
        (
            "separators of JSON",
            "{{ range(100000)|list|tojson(separators=['x' * 1000000, ':']) }}",
        ),
        (
            "printed list",
            "{{ (['x' * 1000] * 10000000)|list|pprint }}",
        ),
        (
            "title",
            "{{ ('a ' * 49999999)|title|upper|lower|urlencode|length }}",
        ),
        // Stack exhaustion by values.
        (
            "namespace within itself",
            "{% set n = namespace() %}{% set n.x = n %}{{ n }}",
        ),
        (
            "namespace within itself as JSON",
            "{% set n = namespace() %}{% set n.x = n %}{{ n|tojson }}",
        ),
        (
            "namespaces within themselves compared",
            "{% set a = namespace() %}{% set a.x = a %}{% set b = namespace() %}{% set b.x = b %}{{ a == b }}{{ a < b }}",
        ),
        (
            "namespace within itself as text",
            "{% set n = namespace() %}{% set n.x = n %}{{ n ~ '' }}{{ [n]|join(',') }}",
        ),
        (
            "namespace within itself twice",
            "{% set n = namespace() %}{% set n.x = n %}{% set n.y = n %}{{ n|string }}",
        ),
        (
            "deep list dropped",
            "{% set n = namespace(l=[]) %}{% for i in range(100000) %}{% set n.l = [n.l] %}{% endfor %}",
        ),
        (
            "deep list printed",
            "{% set n = namespace(l=[]) %}{% for i in range(100000) %}{% set n.l = [n.l] %}{% endfor %}{{ n.l }}",
        ),
        (
            "deep map as JSON",
            "{% set n = namespace(l={}) %}{% for i in range(100000) %}{% set n.l = {'a': n.l} %}{% endfor %}{{ n.l|tojson }}",
        ),
        (
            "deep lists compared",
            "{% set n = namespace(a=[], b=[]) %}{% for i in range(100000) %}{% set n.a = [n.a] %}{% set n.b = [n.b] %}{% endfor %}{{ n.a == n.b }}",
        ),
        (
            "recursive macro",
            "{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}",
        ),
        (
            "recursive loop",
            "{% for m in [messages] recursive %}{{ loop([m]) }}{% endfor %}",
        ),
        // Time exhaustion.
        (
            "loops",
            "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
        ),
        (
            "count",
            "{% for i in range(100000) %}{{ ('ab' * 9999999).count('aab') }}{% endfor %}",
        ),
        (
            "comparisons",
            "{% set s = 'a' * 99999999 %}{% for i in range(100000) %}{{ s == s ~ '' }}{% endfor %}",
        ),
        (
            "sort",
            "{% for i in range(100000) %}{{ (range(100000)|list + range(100000)|list)|sort|first }}{% endfor %}",
        ),
        (
            "two calls for each",
            "{% macro f(n) %}{% if n > 0 %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
        ),
        (
            "power",
            "{{ 2 ** 10000000 }}{{ 10.0 ** 400 }}{{ (2 ** 62) * (2 ** 62) }}",
        ),
        (
            "contains",
            "{% set l = range(100000)|list %}{% for i in l %}{% if -1 in l %}x{% endif %}{% endfor %}",
        ),
    ]);
    // Stack exhaustion of the parser, the compiler and the destructors of trees.
    let n = 40_000;
    all.extend([
        ("not", format!("{{{{ {}true }}}}", times("not ", 30_000))),
        ("minus", format!("{{{{ {}1 }}}}", times("- ", n))),
        (
            "ternaries",
            format!("{{{{ {}1 }}}}", times("1 if 0 else ", 10_000)),
        ),
        (
            "ternaries on the left",
            format!("{{{{ 1{} }}}}", times(" if 1", 20_000)),
        ),
        (
            "parentheses",
            format!("{{{{ {}1{} }}}}", times("(", n), times(")", n)),
        ),
        (
            "brackets",
            format!("{{{{ {}{} }}}}", times("[", n), times("]", n)),
        ),
        (
            "braces",
            format!(
                "{{{{ {}1{} }}}}",
                times("{'a':", 20_000),
                times("}", 20_000)
            ),
        ),
        ("attributes", format!("{{{{ a{} }}}}", times(".a", n))),
        ("subscripts", format!("{{{{ a{} }}}}", times("[0]", n))),
        ("calls", format!("{{{{ a{} }}}}", times("()", n))),
        (
            "filters",
            format!("{{{{ 'a'{} }}}}", times("|trim", 20_000)),
        ),
        ("sums", format!("{{{{ 1{} }}}}", times("+1", n))),
        ("or", format!("{{{{ 0{} }}}}", times(" or 0", 20_000))),
        ("tests", format!("{{{{ 1{} }}}}", times(" is odd", 15_000))),
        (
            "nested if",
            format!(
                "{}{}",
                times("{% if 1 %}", 5000),
                times("{% endif %}", 5000)
            ),
        ),
        (
            "nested for",
            format!(
                "{}{}",
                times("{% for a in [1] %}", 3000),
                times("{% endfor %}", 3000)
            ),
        ),
        (
            "elif",
            format!("{{% if 0 %}}{}{{% endif %}}", times("{% elif 0 %}", 9000)),
        ),
        ("long source", times("a", 1 << 20)),
        ("open tags", times("{% ", n)),
        ("open generation tags", times("{% generation ", 8000)),
        ("names of special tokens", times("<|", 60_000)),
    ]);
    all
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
        assert!(
            message.contains("chat template triggered.jinja") && message.contains("limit"),
            "{message}"
        );
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
    assert!(
        stderr.contains("chat template triggered.jinja: "),
        "{stderr}"
    );
    assert!(stderr.contains("at most 1048576 bytes"), "{stderr}");
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
        assert!(stderr.contains("chat template bomb.jinja: "), "{stderr}");
        assert!(stderr.contains("hint: "), "{stderr}");
    }
}
