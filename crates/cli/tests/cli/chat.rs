//! `emberlm chat` with piped input, and chat templates from datasets.

use std::fs;

use emberlm_model::ModelConfig;
use emberlm_tokenizer::{Tokenizer, TokenizerKind};
use serde_json::{Value, json};

use super::sampling_settings;
use super::support::model::{tiny, write_run};
use super::support::{AssertText, CommandOutput, Sandbox};

/// The ChatML text before an answer, one token per byte.
const QUESTION: &str = "<|im_start|>user\nping<|im_end|>\n<|im_start|>assistant\n";

/// A template without special tokens.
const TURNS: &str = "{% for m in messages %}### {{ m.role }}: {{ m.content }}\n{% endfor %}\
                     {% if add_generation_prompt %}### assistant: {% endif %}";

impl Sandbox {
    /// A ChatML dataset `talks` in bytes and a model `run` trained on it: it answers `ping` with `pong`,
    /// twice.
    fn with_pong() -> Self {
        let sandbox = Self::new();
        let turn = [
            json!({ "role": "user", "content": "ping" }),
            json!({ "role": "assistant", "content": "pong" }),
        ];
        let turns = [turn.clone(), turn].concat();
        let talk = json!({ "messages": turns }).to_string() + "\n";
        sandbox.write("talks.jsonl", talk.repeat(60));
        let line = "prepare talks.jsonl --out talks --tokenizer byte --chat-template chatml";
        sandbox.succeeds(line);
        let line = "--preset char-nano --set model.d_model=48 --set model.seq_len=256 --data talks \
                    --out run --steps 400 --set train.schedule.learning_rate=1e-2";
        sandbox.trains(line);
        sandbox
    }

    /// A byte-level model `run` with initial weights, which answers with a fixed letter.
    pub fn with_letters() -> Self {
        let sandbox = Self::new();
        let spec = Tokenizer::builtin(TokenizerKind::Byte).unwrap().spec();
        let model = ModelConfig {
            seq_len: 8192,
            ..tiny(257)
        };
        write_run(&sandbox.path("run"), &model, Some(&spec), &[1]);
        sandbox.write("turns.jinja", TURNS);
        sandbox
    }

    /// Runs `chat` with `input` on stdin.
    pub fn chat(&self, line: &str, input: impl AsRef<[u8]>) -> CommandOutput {
        self.feed(&format!("chat {line}"), input)
    }
}

/// A message of a record.
pub fn message(role: &str, content: &str) -> Value {
    json!({ "role": role, "content": content })
}

/// The messages of a file that `/save` has written.
#[track_caller]
pub fn messages(sandbox: &Sandbox, name: &str) -> Value {
    let record: Value = serde_json::from_str(&sandbox.text(name)).unwrap();
    record["messages"].clone()
}

/// Answers consist only of `a`s.
pub const LETTERS: &str = "run --chat-template turns.jinja --logit-bias 97=100 --temperature 0";

#[test]
fn learned_answers_reuse_the_cached_prefix() {
    let sandbox = Sandbox::with_pong();
    let transcript = sandbox
        .chat("run --temperature 0", "ping\nping\n/show\n")
        .ok();
    let shown = transcript.strip_prefix("pong\npong\n").unwrap();
    // The prompt starts with an end-of-text token. The answer's end marker is plain text here, so it is
    // generated but not printed. All of its tokens but the last are cached. A line break and the second
    // question follow.
    let first = 1 + QUESTION.len();
    let answer = "pong<|im_end|>".len();
    let (second, held) = (first + answer + 1 + QUESTION.len(), first + answer - 1);
    let last = format!("{answer} tokens, after {second} of which {held} were read before");
    shown.assert_has(&last);
    let whole = second + answer + 1 + "<|im_start|>assistant\n".len();
    shown.assert_has(&format!("{whole} of 256 tokens"));

    // The exported model gives the same answers.
    sandbox.succeeds("export run --out exported");
    let again = sandbox.chat("exported --temperature 0", "ping\nping\n/show\n");
    assert_eq!(again.ok(), transcript);
    // The model's template is used unless another one is given.
    let other = sandbox.chat("run --temperature 0 --chat-template llama3", "ping\n");
    other.says("the model's tokenizer has no <|begin_of_text|>, ");
}

#[test]
fn a_conversation_is_led_by_commands() {
    let sandbox = Sandbox::with_letters();
    let script = "hello\n\ntwo\\\nlines\r\n//etc\n/undo\n/retry\n/set max-new-tokens 5\n/retry\n\
        /save talk.jsonl\n/save talk.jsonl\n/system Be\\\nbrief.\nx\n/save other.jsonl\n/reset\ny\n\
        /save third.jsonl\n/system\nz\n/save fourth.jsonl\n/quit\nnever\n";
    let transcript = sandbox.chat(&format!("{LETTERS} --max-new-tokens 3"), script);
    assert_eq!(
        transcript.ok(),
        "aaa\naaa\naaa\naaa\naaaaa\naaaaa\naaaaa\naaaaa\n"
    );
    let saved = |name: &str| sandbox.text(name);
    let record = |messages: &[Value]| json!({ "messages": messages }).to_string() + "\n";
    let (user, answer) = (|text| message("user", text), message("assistant", "aaaaa"));
    let system = message("system", "Be\nbrief.");
    assert_eq!(
        saved("talk.jsonl"),
        record(&[
            user("hello"),
            message("assistant", "aaa"),
            user("two\nlines"),
            answer.clone()
        ])
    );
    assert_eq!(
        saved("other.jsonl"),
        record(&[system.clone(), user("x"), answer.clone()])
    );
    assert_eq!(
        saved("third.jsonl"),
        record(&[system, user("y"), answer.clone()])
    );
    assert_eq!(saved("fourth.jsonl"), record(&[user("z"), answer]));
    // The saved conversation can be prepared as a dataset.
    let line =
        "prepare talk.jsonl --out talks --tokenizer byte --chat-template chatml --val-fraction 0";
    sandbox.succeeds(line);
    let help = sandbox.chat(LETTERS, "/help\n").ok();
    for command in [
        "/help", "/system", "/reset", "/undo", "/retry", "/set", "/show", "/stats", "/save",
        "/quit",
    ] {
        assert!(help.contains(&format!("  {command} ")), "{command}: {help}");
    }
}

#[test]
fn errors_are_reported_and_the_conversation_continues() {
    let sandbox = Sandbox::with_letters();
    sandbox.write("there.jsonl", "kept");
    let script = format!(
        "/frobnicate\n/set heat 1\n/set temperature -1\n/save\n/save there.jsonl\n/save new.jsonl\n/undo\n/retry\n{}\nhi\n",
        "x".repeat(300)
    );
    let ran = sandbox.chat(
        &format!("{LETTERS} --max-new-tokens 3 --context 100"),
        script,
    );
    assert_eq!((ran.code, &ran.stdout[..]), (Some(0), "aaa\n"), "{ran}");
    assert_eq!(sandbox.text("there.jsonl"), "kept");
    let stderr = ran
        .stderr
        .replace(&sampling_settings::options(), "SETTINGS");
    insta::assert_snapshot!(stderr, @r"
    warning: there is no /frobnicate, but /help, /system, /reset, /undo, /retry, /set, /show, /stats, /save, /quit; // sends a message that begins with /
    warning: there is no setting heat, but: SETTINGS, seed, max-new-tokens
    warning: temperature cannot be -1: must be at least 0 and finite
    warning: /save needs a file's name after it
    error: there.jsonl is there already
    hint: choose another name
    error: there is nothing to save
    warning: nothing to remove
    warning: nothing to answer again
    error: this takes 327 tokens, more than the context of 100 has room for
    hint: say it shorter
    ");
}

#[test]
fn outgrowing_the_context_is_reported_once() {
    let sandbox = Sandbox::with_letters();
    let ran = sandbox.chat(
        &format!("{LETTERS} --max-new-tokens 20 --context 300 --system Short"),
        "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\n/save all.jsonl\n/show\n",
    );
    assert_eq!(ran.code, Some(0), "{ran}");
    let answers = format!("{}\n", "a".repeat(20)).repeat(8);
    let shown = ran.stdout.strip_prefix(&answers[..]).unwrap();
    shown.assert_has("messages            16\n");
    assert_eq!(
        ran.stderr
            .matches("has outgrown the context of 300 tokens")
            .count(),
        1,
        "{ran}"
    );
    let all = sandbox.text("all.jsonl");
    all.assert_has("\"one\"");
    all.assert_has("\"eight\"");
}

#[test]
fn answers_end_at_stop_strings_and_constraints() {
    let sandbox = Sandbox::with_letters();
    let line = format!("{LETTERS} --max-new-tokens 10");
    assert_eq!(
        sandbox
            .chat(&format!("{line} --stop aaaa"), "hi\nhi\n")
            .ok(),
        "\n\n"
    );
    // Every answer matches the regular expression.
    let held = "run --chat-template turns.jinja --regex (yes|no)[.] --temperature 0";
    let transcript = sandbox.chat(held, "hi\nhi\n").ok();
    let lines: Vec<&str> = transcript.lines().collect();
    assert!(
        lines.len() == 2 && lines.iter().all(|line| ["yes.", "no."].contains(line)),
        "{transcript}"
    );
}

#[test]
fn chat_handles_empty_unterminated_and_invalid_input() {
    let sandbox = Sandbox::with_letters();
    assert_eq!(sandbox.ok(&format!("chat {LETTERS}")), "");
    assert_eq!(
        sandbox
            .chat(LETTERS, "no line's end")
            .ok()
            .trim_matches('a'),
        "\n"
    );
    let ran = sandbox.chat(LETTERS, b"\xFF\n");
    assert_eq!(ran.code, Some(1), "{ran}");
    ran.says("error: line 1 of stdin is not UTF-8");
}

#[test]
fn the_errors_of_a_template_do_not_end_the_conversation() {
    let sandbox = Sandbox::with_char_model();
    sandbox.write(
        "plain.jinja",
        "{% if messages[0].role == 'system' %}{{ raise_exception('no system here') }}{% endif %}{{ messages[-1].content[:2] }}",
    );
    let script = "HI\nhe\n/system no\nhe\n/system\nhe\n";
    let line = "run --chat-template plain.jinja --temperature 0 --max-new-tokens 1";
    let ran = sandbox.chat(line, script);
    assert_eq!(
        (ran.code, ran.stdout.lines().count()),
        (Some(0), 2),
        "{ran}"
    );
    insta::assert_snapshot!(ran.stderr, @r"
    error: character 'H' at position 0 is not among the 12 characters of this tokenizer
    hint: a char tokenizer has only the characters of its corpus
    error: chat template plain.jinja, line 1: no system here
    ");
}

/// The template goes from the dataset into the run, and from the run into the exported files.
#[test]
fn templates_follow_the_dataset_the_run_and_the_export() {
    let sandbox = Sandbox::new();
    let talk = json!({ "messages": [
        { "role": "user", "content": "a" }, { "role": "assistant", "content": "b" },
    ] });
    sandbox.write("talks.jsonl", (talk.to_string() + "\n").repeat(60));
    let line = "prepare talks.jsonl --out talks --tokenizer byte --chat-template chatml";
    sandbox.succeeds(line);
    let json = |path: &str| -> Value { sandbox.value(path) };
    let recorded = json("talks/dataset.json")["chat_template"].clone();
    assert_eq!(recorded["name"], "chatml");
    sandbox.trains("--preset char-nano --data talks --out run --steps 1");
    let model = json("run/checkpoints/step-00000001/model.json");
    assert_eq!(model["chat_template"], recorded);
    sandbox.succeeds("export run --out exported");
    // As in training, each conversation starts with an end-of-text token.
    let exported = sandbox.text("exported/chat_template.jinja");
    let template = recorded["template"].as_str().unwrap();
    assert_eq!(exported, format!("{{{{- \"<|endoftext|>\" }}}}{template}"));
    // The template itself adds the end-of-text token, so `prepare` adds no second one.
    let line = "prepare talks.jsonl --out again --tokenizer exported --chat-template exported";
    sandbox.succeeds(line);
    for file in ["train_00000.bin", "train_00000.mask"] {
        let read = |folder: &str| fs::read(sandbox.path(folder).join(file)).unwrap();
        assert!(read("talks") == read("again"), "{file}");
    }
    // A text dataset has no template, and prints nothing about one.
    sandbox.write("text.txt", "hello small world\n".repeat(20));
    sandbox.ok("prepare text.txt --out data --tokenizer byte");
    assert_eq!(json("data/dataset.json").get("chat_template"), None);
    // A mix of datasets uses the template of the first one that has one.
    sandbox.trains("--preset char-nano --data data=0.5 talks=0.5 --out mixed --steps 1");
    let model = json("mixed/checkpoints/step-00000001/model.json");
    assert_eq!(model["chat_template"], recorded);
}
