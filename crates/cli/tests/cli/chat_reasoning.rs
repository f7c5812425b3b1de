//! `emberlm chat` with models that reason before their answer, between tags or in channels.

use serde_json::json;

use super::chat::{message, messages};
#[cfg(unix)]
use super::support::terminal::Terminal;
use super::support::{AssertText, Sandbox};

/// A template of a model whose reasoning is between tags.
const TAGS: &str = "{% for m in messages %}### {{ m.role }}: {{ m.content.split('</think>')[-1] }}\n{% endfor %}\
                    {% if add_generation_prompt %}### assistant: {% endif %}";

/// Reasoning, then the text `yes.`.
const TAGGED: &str =
    "run --chat-template tags.jinja --temperature 0 --regex <think>hm</think>yes[.]";

/// A template of a model whose answers are messages in channels. Training learns the messages of the answer.
const CHANNELS: &str = "{% for m in messages %}{% if m.role == 'assistant' %}<|start|>assistant{% generation %}\
    {% if m.thinking and loop.last %}<|channel|>analysis<|message|>{{ m.thinking }}<|end|><|start|>assistant{% endif %}\
    <|channel|>final<|message|>{{ m.content }}<|return|>{% endgeneration %}\
    {% else %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endif %}{% endfor %}\
    {% if add_generation_prompt %}<|start|>assistant{% endif %}";

/// A template of such a model whose prompts begin the text of the answer. Its comment has the markers of reasoning.
const CONTINUED: &str = "{# <|channel|>analysis<|message|> #}{{ messages[-1].content }}\
    {% if add_generation_prompt %}<|start|>assistant<|channel|>final<|message|>{% endif %}";

impl Sandbox {
    /// A model `run` with initial weights, and the templates `tags.jinja` and `continued.jinja`.
    fn with_templates() -> Self {
        let sandbox = Self::with_letters();
        sandbox.write("tags.jinja", TAGS);
        sandbox.write("continued.jinja", CONTINUED);
        sandbox
    }
}

#[test]
fn piped_answers_have_no_reasoning() {
    let sandbox = Sandbox::with_templates();
    let ran = sandbox.chat(TAGGED, "a\nb\n/save talk.jsonl\n");
    assert_eq!((&ran.stdout[..], &ran.stderr[..]), ("yes.\nyes.\n", ""));
    let answer = json!({ "role": "assistant", "content": "yes.", "reasoning_content": "hm" });
    assert_eq!(
        messages(&sandbox, "talk.jsonl"),
        json!([message("user", "a"), answer, message("user", "b"), answer])
    );
}

#[test]
fn an_answer_without_text_is_reported() {
    let sandbox = Sandbox::with_templates();
    let ran = sandbox.chat(&format!("{TAGGED} --max-new-tokens 8"), "a\n");
    assert_eq!((ran.code, &ran.stdout[..]), (Some(0), "\n"), "{ran}");
    ran.says("warning: the answer ended within its reasoning, after 8 tokens: allow more with --max-new-tokens or /set max-new-tokens");
}

#[test]
fn channels_are_split_into_reasoning_text_and_calls() {
    let sandbox = Sandbox::with_templates();
    let line = "run --chat-template continued.jinja --temperature 0 --regex";
    let message_of = |header: &str, text: &str| {
        let header = header.replace(' ', r"\x20");
        let header = header.replace('|', "[|]").replace('.', "[.]");
        format!("<[|]end[|]><[|]start[|]>assistant<[|]channel[|]>{header}<[|]message[|]>{text}")
    };
    let analysis = message_of("analysis", "hm[.]");
    let pattern = format!("So[.]{analysis}{}", message_of("final", "Yes[.]"));
    let ran = sandbox.chat(&format!("{line} {pattern}"), "a\n/save text.jsonl\n");
    assert_eq!(ran.stdout, "So.\n\nYes.\n", "{ran}");
    let answer =
        json!({ "role": "assistant", "content": "So.\n\nYes.", "reasoning_content": "hm." });
    assert_eq!(
        messages(&sandbox, "text.jsonl"),
        json!([message("user", "a"), answer])
    );

    let call = message_of("commentary to=functions.f <|constrain|>json", "[{][}]");
    let ran = sandbox.chat(&format!("{line} {analysis}{call}"), "a\n/save call.jsonl\n");
    assert_eq!(ran.stdout, "Call of f: {}\n");
    ran.says("warning: the model calls a function, but `chat` runs none");
    let called = json!({ "type": "function", "function": { "name": "f", "arguments": "{}" } });
    let answer = json!({ "role": "assistant", "content": "", "reasoning_content": "hm.", "tool_calls": [called] });
    assert_eq!(
        messages(&sandbox, "call.jsonl"),
        json!([message("user", "a"), answer])
    );
}

#[test]
fn a_trained_model_answers_in_channels() {
    let sandbox = Sandbox::new();
    sandbox.write("channels.jinja", CHANNELS);
    let answer = json!({ "role": "assistant", "content": "pong", "reasoning_content": "hm" });
    let talk = json!({ "messages": [message("user", "ping"), answer] }).to_string() + "\n";
    sandbox.write("talks.jsonl", talk.repeat(60));
    let line = "prepare talks.jsonl --out talks --tokenizer byte --chat-template channels.jinja";
    sandbox.succeeds(line);
    let line = "train --preset char-nano --set model.d_model=64 --set model.seq_len=160 --set train.micro_batch=8 \
                --data talks --out run --steps 400 --set train.schedule.learning_rate=5e-3 --renderer plain";
    sandbox.succeeds(line);
    let ran = sandbox.chat("run --temperature 0", "ping\n/save talk.jsonl\n");
    assert_eq!((&ran.stdout[..], &ran.stderr[..]), ("pong\n", ""));
    assert_eq!(
        messages(&sandbox, "talk.jsonl"),
        json!([message("user", "ping"), answer])
    );
    // A constraint is one of the final message, not of the reasoning before it.
    let ran = sandbox.chat("run --temperature 0 --regex [0-9]{3}", "ping\n");
    let digits = ran.stdout.trim_end();
    assert!(
        digits.len() == 3 && digits.chars().all(|c| c.is_ascii_digit()),
        "{ran}"
    );
}

/// Runs one question in a terminal with these variables. Returns the screen and the bytes that were written.
#[cfg(unix)]
fn in_terminal(variables: &[(&str, &str)]) -> (String, String) {
    let sandbox = Sandbox::with_templates();
    let line = format!("chat {TAGGED} --no-history");
    let mut terminal = Terminal::start_with(&sandbox, &line, variables, 24, 80);
    terminal.wait_for("the prompt", |text| text.trim_end().ends_with("\n>"));
    terminal.press("a\r");
    let screen = terminal.wait_for("the answer", |text| {
        text.contains("yes.") && text.trim_end().ends_with("\n>")
    });
    terminal.press("\u{4}");
    let bytes = terminal.bytes_at_the_end();
    (screen, String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(unix)]
#[test]
fn terminals_show_reasoning_dimmed() {
    let (screen, bytes) = in_terminal(&[]);
    screen.assert_has("> a\nhm\n\nyes.\n");
    bytes.assert_has("\u{1b}[2mm\u{1b}[0m");
    assert!(!bytes.contains("\u{1b}[2my"), "{bytes}");
}

#[cfg(unix)]
#[test]
fn terminals_without_styles_mark_reasoning() {
    let (screen, bytes) = in_terminal(&[("NO_COLOR", "1")]);
    screen.assert_has("> a\nThinking…\nhm\n…done thinking.\n\nyes.\n");
    assert!(!bytes.contains("\u{1b}[2m"), "{bytes}");
}
