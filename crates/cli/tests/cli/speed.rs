//! The throughput that `generate` and `chat` report, and the loading indicator.

use super::chat::LETTERS;
use super::support::{AssertText, Sandbox};

/// Replaces the timings in a line such as "prompt: 5 tokens in 0.01 s (500.0 tokens/s)".
fn without_times(line: &str) -> String {
    let (before, rest) = line.split_once(" in ").unwrap();
    let (seconds, rest) = rest.split_once(" s").unwrap();
    let seconds: f64 = seconds.parse().unwrap();
    assert!((0.0..600.0).contains(&seconds), "{line}");
    let Some(speed) = rest.strip_prefix(" (") else {
        return before.to_owned();
    };
    let speed: f64 = speed.split(' ').next().unwrap().parse().unwrap();
    assert!(speed > 0.0, "{line}");
    format!("{before} at a speed")
}

#[test]
fn generate_reports_its_speed_with_verbose() {
    let sandbox = Sandbox::with_char_model();
    let line = "generate run --prompt hello --temperature 0 --max-new-tokens 30";
    let silent = sandbox.ok(line);
    for more in ["", " --draft run"] {
        let ran = sandbox.words(&format!("{line} --verbose{more}"));
        assert_eq!((ran.code, &ran.stdout), (Some(0), &silent), "{ran}");
        let lines: Vec<String> = ran
            .stderr
            .lines()
            .filter(|line| line.starts_with("prompt: ") || line.starts_with("generated: "))
            .map(without_times)
            .collect();
        assert_eq!(
            lines,
            [
                "prompt: 5 tokens at a speed",
                "generated: 30 tokens at a speed"
            ]
        );
    }
    // Stdout remains valid JSON.
    let ran = sandbox.words(&format!("{line} --json -v"));
    assert!(serde_json::from_str::<serde_json::Value>(&ran.stdout).is_ok());
    ran.says("\ngenerated: 30 tokens in ");
}

#[test]
fn chat_reports_the_speed_of_the_last_and_of_all_answers() {
    let sandbox = Sandbox::with_letters();
    let line = format!("{LETTERS} --max-new-tokens 20");
    let ran = sandbox.chat(&line, "/stats\nhello\nagain\n/stats\n");
    assert_eq!(ran.stderr, "warning: nothing was answered yet\n", "{ran}");
    let lines: Vec<&str> = ran.stdout.lines().skip(2).collect();
    let [heading, last, all, context, ref memory @ ..] = lines[..] else {
        panic!("{ran}");
    };
    assert_eq!(
        heading.split_whitespace().collect::<Vec<_>>(),
        ["prompt", "answer"]
    );
    assert!(last.starts_with("  last answer  "), "{last}");
    last.assert_has("20 tokens in ");
    assert!(all.starts_with("  all answers  "), "{all}");
    all.assert_has("40 tokens in ");
    // The second prompt is the whole conversation, but only its new tokens are computed. The first prompt
    // starts with an end-of-text token.
    let first = 1 + "### user: hello\n### assistant: ".len();
    let new = "\n### user: again\n### assistant: ".len() + 1;
    let computed = format!("{new} tokens in ");
    last.assert_has(&computed);
    let computed = format!("{} tokens in ", first + new);
    all.assert_has(&computed);
    // The conversation as the template writes it for the next answer, after the end-of-text token.
    let answer = format!("### assistant: {}\n", "a".repeat(20));
    let text = [
        "### user: hello\n",
        &answer,
        "### user: again\n",
        &answer,
        "### assistant: ",
    ];
    let used = 1 + text.concat().len();
    assert_eq!(
        context.split_whitespace().collect::<Vec<_>>()[..4],
        ["context", &used.to_string(), "of", "8,192"],
        "{ran}"
    );
    // 2 layers, keys and values, 8,192 positions of 16 f32 numbers.
    let sizes: Vec<(&str, f64)> = memory.iter().map(|line| mebibytes(line)).collect();
    assert_eq!(sizes[0], ("cache", 2.0), "{ran}");
    if cfg!(target_os = "linux") {
        let [_, ("peak memory", peak)] = sizes[..] else {
            panic!("{ran}");
        };
        assert!(peak > 1.0, "{ran}");
    }
}

/// Reads a line such as "  peak memory  12.5 MiB".
fn mebibytes(line: &str) -> (&str, f64) {
    let (name, size) = line.trim().split_once("  ").unwrap();
    let number = size.trim().strip_suffix(" MiB").unwrap();
    (name, number.parse().unwrap())
}

#[test]
fn chat_reports_every_answer_with_stats() {
    let sandbox = Sandbox::with_letters();
    let line = format!("{LETTERS} --max-new-tokens 20");
    let silent = sandbox.chat(&line, "hello\nagain\n").ok();
    let ran = sandbox.chat(&format!("{line} --stats"), "hello\nagain\n");
    assert_eq!((ran.code, &ran.stdout), (Some(0), &silent), "{ran}");
    let lines: Vec<&str> = ran.stderr.lines().collect();
    assert_eq!(lines.len(), 2, "{ran}");
    for line in lines {
        let parts = [
            "(prompt: ",
            "; answer: 20 tokens in ",
            "; context: ",
            " of 8,192 tokens; cache: 2.0 MiB",
        ];
        for part in parts {
            line.assert_has(part);
        }
    }
}

#[cfg(unix)]
#[test]
fn the_loading_spinner_is_removed_from_the_terminal() {
    use super::support::terminal::Terminal;

    let sandbox = Sandbox::with_char_model();
    let line = "generate run --prompt hello --temperature 0 --max-new-tokens 3";
    let text = sandbox.ok(line);
    let terminal = Terminal::start(&sandbox, line, 24, 80);
    let bytes = terminal.bytes_at_the_end();
    assert!(String::from_utf8_lossy(&bytes).contains("loading run"));
    let mut screen = vt100::Parser::default();
    screen.process(&bytes);
    assert_eq!(screen.screen().contents().trim_end(), text.trim_end());
}
