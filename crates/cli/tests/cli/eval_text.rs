//! `emberlm eval --text`: the losses of a text's tokens agree with `transformers` (make_tasks.py) and with the model's other evaluations.

use std::fs;

use serde_json::Value;

use super::support::{AssertText, Sandbox, fixtures};

fn scores(report: &Value) -> &[Value] {
    report["scores"].as_array().unwrap()
}

fn losses(report: &Value) -> Vec<f64> {
    let predicted = scores(report).iter().skip(1);
    predicted
        .map(|score| score["loss"].as_f64().unwrap())
        .collect()
}

#[test]
fn the_losses_of_last_words_are_those_of_transformers() {
    let tasks = fixtures().join("tasks");
    let model = tasks.join("model");
    let expected = fs::read_to_string(tasks.join("expected.json")).unwrap();
    let expected: Value = serde_json::from_str(&expected).unwrap();
    let passages = fs::read_to_string(tasks.join("lambada.jsonl")).unwrap();
    let sandbox = Sandbox::new();
    let mut count = 0;
    for (at, line) in passages.lines().enumerate() {
        let passage: Value = serde_json::from_str(line).unwrap();
        let text = passage["text"].as_str().unwrap();
        sandbox.write("passage.txt", text);
        let args = [
            "eval",
            model.to_str().unwrap(),
            "--text",
            "passage.txt",
            "--json",
        ];
        let report: Value = sandbox.run(args).json();
        let (_, word) = text.rsplit_once(' ').unwrap();
        let (mut left, mut sum, mut greedy) = (word.len() + 1, 0.0, true);
        for score in scores(&report).iter().rev() {
            let token = score["token"].as_str().unwrap();
            // The bytes of characters that tokens divide are not text.
            if left == 0 || token.contains('\u{fffd}') {
                break;
            }
            left -= token.len();
            sum += score["loss"].as_f64().unwrap();
            greedy &= score["rank"] == 1;
        }
        if left > 0 {
            continue;
        }
        let expected = &expected["lambada"]["answers"][at];
        let log_likelihood = expected["log_likelihood"].as_f64().unwrap();
        assert!((sum + log_likelihood).abs() < 1e-4, "{text}: {sum}");
        assert_eq!(expected["greedy"], greedy, "{text}");
        count += 1;
    }
    assert!(count > 9, "{count}");
}

#[test]
fn the_report_agrees_with_its_tokens_and_with_a_dataset() {
    let sandbox = Sandbox::with_char_model();
    let text = "hello small world";
    sandbox.write("text.txt", text);
    let report: Value = sandbox.json("eval run --text text.txt --json");
    let losses = losses(&report);
    let mean = losses.iter().sum::<f64>() / losses.len() as f64;
    let number = |name: &str| report[name].as_f64().unwrap();
    assert!((number("loss") - mean).abs() < 1e-9);
    assert!((number("perplexity") - mean.exp()).abs() < 1e-9);
    // One byte per token.
    assert!((number("bits_per_byte") - mean / 2f64.ln()).abs() < 1e-9);
    assert_eq!(report["tokens"], text.len() - 1);
    let joined: String = scores(&report)
        .iter()
        .map(|score| score["token"].as_str().unwrap())
        .collect();
    assert_eq!(joined, text);
    assert!(scores(&report)[0]["loss"].is_null());
    for score in &scores(&report)[1..] {
        let top = score["top"].as_array().unwrap();
        assert_eq!(top.len(), 5);
        let rank = score["rank"].as_u64().unwrap() as usize;
        if let Some(same) = top.get(rank - 1) {
            let p = same["probability"].as_f64().unwrap();
            assert!((p - (-score["loss"].as_f64().unwrap()).exp()).abs() < 1e-9);
        }
    }
}

#[test]
fn tokens_of_later_windows_have_half_a_window_before_them() {
    let sandbox = Sandbox::with_char_model();
    let text = "hello small world and all the others";
    let of = |text: &str, more: &str| {
        sandbox.write("text.txt", text);
        let line = format!("eval run --text text.txt --json {more}");
        losses(&sandbox.json::<Value>(&line))
    };
    let text = &text.replace(|c: char| !"helo smawrd".contains(c), "o");
    let found = of(text, "--seq-len 8");
    let close = |a: &[f64], b: &[f64]| {
        assert_eq!(a.len(), b.len());
        let pairs = a.iter().zip(b);
        pairs.for_each(|(a, b)| assert!((a - b).abs() < 1e-5, "{a} {b}"));
    };
    close(&found[..8], &of(&text[..9], ""));
    // The second window has tokens 4 to 11, and predicts 9 to 12.
    close(&found[8..12], &of(&text[4..13], "")[4..]);
    assert_eq!(found.len(), text.len() - 1);
}

#[test]
fn a_page_shades_the_tokens() {
    let sandbox = Sandbox::with_char_model();
    sandbox.write("text.txt", "hello\nworld");
    let text = sandbox.ok("eval run --text text.txt --out page.html");
    text.assert_has("perplexity");
    text.assert_has("The least probable tokens:\n");
    let page = sandbox.text("page.html");
    assert_eq!(page.matches("<span style=\"--share:").count(), 11);
    assert_eq!(page.matches("token 10: p ").count(), 1);
    assert_eq!(page.matches(": p ").count(), 10);
    assert_eq!(page.matches("↵\n</span>").count(), 1);
    page.assert_lacks("http");
}
