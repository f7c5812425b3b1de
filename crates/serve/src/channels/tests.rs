//! Answers in the forms that OpenAI's description of the format has, and others. The expected parts are those of the
//! description: the text of a message is what follows `<|message|>`.

use std::slice;

use super::{ChannelParser, HARMONY};
use crate::answer_delta::AnswerDelta;

/// A merged part of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Reasoning(String),
    Text(String),
    Call(String, String),
}

fn reasoning(text: &str) -> Part {
    Part::Reasoning(text.to_owned())
}

fn text(text: &str) -> Part {
    Part::Text(text.to_owned())
}

fn call(name: &str, arguments: &str) -> Part {
    Part::Call(name.to_owned(), arguments.to_owned())
}

/// Adds deltas to the parts that they continue.
fn merge(parts: &mut Vec<Part>, deltas: Vec<AnswerDelta>) {
    for delta in deltas {
        match (parts.last_mut(), delta) {
            (Some(Part::Reasoning(text)), AnswerDelta::Reasoning(more))
            | (Some(Part::Text(text)), AnswerDelta::Text(more)) => *text += &more,
            (_, AnswerDelta::Reasoning(text)) => parts.push(Part::Reasoning(text)),
            (_, AnswerDelta::Text(text)) => parts.push(Part::Text(text)),
            (_, AnswerDelta::Call { name }) => parts.push(Part::Call(name, String::new())),
            (Some(Part::Call(_, arguments)), AnswerDelta::Arguments(more)) => *arguments += &more,
            (last, delta) => panic!("{delta:?} after {last:?}"),
        }
    }
}

/// The parts of an answer that arrives in these pieces.
fn parsed<'a>(
    pieces: impl IntoIterator<Item = &'a str>,
    begins: bool,
    may_call: bool,
) -> Vec<Part> {
    let mut parser = ChannelParser::new(&HARMONY, begins, may_call);
    let mut parts = Vec::new();
    for piece in pieces {
        merge(&mut parts, parser.push(piece));
    }
    merge(&mut parts, parser.finish());
    parts
}

/// Checks the parts of an answer for every split into two pieces, and for pieces of one character.
#[track_caller]
fn check_from(answer: &str, begins: bool, may_call: bool, expected: &[Part]) {
    for (at, _) in answer.char_indices() {
        let (first, second) = answer.split_at(at);
        let found = parsed([first, second], begins, may_call);
        assert_eq!(found, expected, "{first:?} + {second:?}");
    }
    let chars = answer.split_inclusive(|_| true);
    assert_eq!(parsed(chars, begins, may_call), expected, "{answer:?}");
}

#[track_caller]
fn check(answer: &str, expected: &[Part]) {
    check_from(answer, true, true, expected);
}

const HEAD: &str = "<|channel|>analysis<|message|>Is 2 + 2 é?<|end|><|start|>assistant";

#[test]
fn reasoning_precedes_the_final_text() {
    let thought = reasoning("Is 2 + 2 é?");
    for end in ["", "<|return|>", "<|end|>", "<|end|>\n"] {
        let answer = format!("{HEAD}<|channel|>final<|message|>It is 4.\n{end}");
        check(&answer, &[thought.clone(), text("It is 4.\n")]);
    }
    check("<|channel|>final<|message|>4<|return|>", &[text("4")]);
    check(
        "<|channel|>final <|constrain|>json<|message|>{}",
        &[text("{}")],
    );
    // A prompt that ends with a message.
    check(
        "<|start|>assistant<|channel|>final<|message|>4",
        &[text("4")],
    );
    check(
        "\n<|start|>assistant<|channel|>final<|message|> 4",
        &[text(" 4")],
    );
}

#[test]
fn a_recipient_follows_the_channel_or_the_role() {
    let arguments = "{\"city\":\"Köln <|> \\\"\"}";
    for header in [
        "<|channel|>commentary to=functions.get_weather-2 <|constrain|>json<|message|>",
        "<|channel|>commentary to=functions.get_weather-2<|constrain|>json<|message|>",
        "<|channel|>commentary to=functions.get_weather-2 json<|message|>",
        "<|channel|>analysis to=functions.get_weather-2 <|constrain|>json<|message|>",
        " to=functions.get_weather-2<|channel|>commentary json<|message|>",
        " to=functions.get_weather-2<|channel|>commentary <|constrain|>json<|message|>",
        " to=functions.get_weather-2<|message|>",
    ] {
        for end in ["", "<|call|>", "<|end|>"] {
            let expected = call("get_weather-2", arguments);
            let call = slice::from_ref(&expected);
            check(&format!("{header}{arguments}{end}"), call);
            let after = format!("{HEAD}{header}{arguments}{end}");
            check(&after, &[reasoning("Is 2 + 2 é?"), expected]);
        }
    }
}

#[test]
fn a_preamble_is_text() {
    let answer = format!(
        "{HEAD}<|channel|>commentary<|message|>**Plan**:\n1. Look<|end|><|start|>assistant\
         <|channel|>commentary to=functions.look <|constrain|>json<|message|>{{}}<|call|>"
    );
    let parts = [
        reasoning("Is 2 + 2 é?"),
        text("**Plan**:\n1. Look"),
        call("look", "{}"),
    ];
    check(&answer, &parts);
}

#[test]
fn messages_of_one_kind_are_separated() {
    let answer = format!("{HEAD}<|channel|>analysis<|message|>Yes.<|end|>\n<|start|>assistant");
    check(&answer, &[reasoning("Is 2 + 2 é?\n\nYes.")]);
    let answer = "<|channel|>commentary<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|>b<|end|>\
         <|start|>assistant<|channel|>final<|message|>c<|return|>";
    check(answer, &[text("a"), reasoning("b"), text("\n\nc")]);
    // Nothing precedes, and nothing follows.
    let answer = "<|channel|>final<|message|><|end|><|start|>assistant<|channel|>final<|message|>c<|end|>\
         <|start|>assistant<|channel|>final<|message|>";
    check(answer, &[text("c")]);
}

#[test]
fn other_recipients_are_part_of_the_reasoning() {
    let search = "<|channel|>analysis to=browser.search code<|message|>{\"query\": 1}<|call|>";
    check(search, &[reasoning("{\"query\": 1}")]);
    let python = "<|channel|>commentary to=python<|message|>2 + 2<|call|>";
    check(python, &[reasoning("2 + 2")]);
    // An answer that may not call functions.
    let call = "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>";
    check_from(call, true, false, &[reasoning("{}")]);
    check(
        "<|channel|>analysis to=functions.<|message|>{}",
        &[reasoning("{}")],
    );
}

#[test]
fn truncated_answers_keep_their_kind() {
    check(
        "<|channel|>analysis<|message|>So <|en",
        &[reasoning("So <|en")],
    );
    check("<|channel|>final<|message|>So <", &[text("So <")]);
    let call_begun =
        "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"a\": \"<|c";
    check(call_begun, &[call("f", "{\"a\": \"<|c")]);
    let call_begun = " to=functions.f<|channel|>commentary json<|message|>";
    check(call_begun, &[call("f", "")]);
    // Headers are dropped.
    let begun = format!("{HEAD}<|channel|>commentary to=functions.f <|constrain|>json<|mess");
    for (end, _) in begun.char_indices().skip(HEAD.len() - 1) {
        check(&begun[..end], &[reasoning("Is 2 + 2 é?")]);
    }
    let answer = "<|channel|>final<|message|>a<|return|>";
    for (end, _) in answer
        .char_indices()
        .skip("<|channel|>final<|message|>a".len())
    {
        let shown = parsed([&answer[..end]], true, true);
        assert!(
            matches!(&shown[..], [Part::Text(text)] if text.starts_with('a')),
            "{shown:?}"
        );
    }
    check(" to=functions.f", &[]);
    check("", &[]);
}

#[test]
fn malformed_headers_are_text() {
    for (answer, expected) in [
        ("Hello <|world", "Hello <|world"),
        ("to be or not", "to be or not"),
        (" <b>", " <b>"),
        ("{\"a\": 1}", "{\"a\": 1}"),
        ("<|channel|>final<|end|>", "<|channel|>final"),
        ("<|channel|>final: é", "<|channel|>final: é"),
        ("<|start|>[a]<|message|>b", "<|start|>[a]<|message|>b"),
        ("<|channel|>other<|message|>a", "a"),
        ("<|message|>a", "a"),
        ("a<|end|>b", "a\n\nb"),
        ("a<|channel|>final<|message|>b", "a\n\nb"),
        ("<|channel|><|channel|><|message|>b", "b"),
        ("<|channel|>!<|channel|>!", "<|channel|>!\n\n<|channel|>!"),
    ] {
        check(answer, &[text(expected)]);
    }
    let long = format!("<|channel|>final{}<|message|>b", " a".repeat(300));
    check(&long, &[text(&long)]);
    for markers in [
        "<|end|><|call|><|return|>",
        "<|start|><|start|>",
        "<|constrain|>",
        "\n",
    ] {
        check(markers, &[]);
    }
}

#[test]
fn an_answer_ends_before_a_message_of_another_role() {
    let result = "<|channel|>final<|message|>4<|end|><|start|>user<|message|>And 3 + 3?<|end|><|start|>assistant\
         <|channel|>final<|message|>6<|return|>";
    check(result, &[text("4")]);
    let result = "<|start|>functions.f to=assistant<|channel|>commentary<|message|>7<|end|>";
    check(result, &[]);
}

#[test]
fn a_continued_text_has_no_header() {
    check_from(" or 5.<|return|>", false, true, &[text(" or 5.")]);
    let answer = " or 5.<|end|><|start|>assistant<|channel|>analysis<|message|>Hm.<|end|>";
    check_from(answer, false, true, &[text(" or 5."), reasoning("Hm.")]);
}

/// Every sequence of up to four elements, so that no order of markers fails.
#[test]
fn arbitrary_answers_have_the_same_parts_in_any_pieces() {
    let elements = [
        "<|start|>",
        "<|channel|>",
        "<|message|>",
        "<|constrain|>",
        "<|end|>",
        "<|call|>",
        "assistant",
        "analysis",
        "final",
        " to=functions.f",
        "user",
        "é ",
        "<|",
        "{}",
    ];
    let mut answers = vec![String::new()];
    for _ in 0..4 {
        let longer = answers
            .iter()
            .flat_map(|answer| elements.map(|element| [answer, element].concat()));
        answers = longer.collect();
    }
    for answer in answers {
        let whole = parsed([&*answer], true, true);
        let pieces = answer.split_inclusive(|_| true);
        assert_eq!(parsed(pieces, true, true), whole, "{answer}");
        for part in &whole {
            let shown = match part {
                Part::Reasoning(text) | Part::Text(text) => text,
                Part::Call(_, arguments) => arguments,
            };
            for end in ["<|end|>", "<|call|>"] {
                assert!(!shown.contains(end), "{answer}: {shown}");
            }
        }
    }
}

#[test]
fn answers_begin_with_a_header_or_within_a_text() {
    for (tail, begins) in [
        ("<|end|><|start|>assistant", true),
        ("<|end|><|start|>assistant\n", true),
        ("text<|return|>", true),
        ("<|start|>user<|message|>a<|end|>", true),
        ("<|channel|>final<|message|>", false),
        ("<|channel|>final<|message|>The assistant", false),
        ("", false),
    ] {
        assert_eq!(
            HARMONY.begins_with_header(tail.as_bytes()),
            begins,
            "{tail}"
        );
    }
}

#[test]
fn markers_are_recognized() {
    for (token, is_marker) in [
        ("<|start|>", true),
        ("<|channel|>", true),
        ("<|constrain|>", true),
        ("<|message|>", true),
        ("<|end|>", true),
        ("<|endoftext|>", false),
        ("<|startoftext|>", false),
        ("", false),
    ] {
        assert_eq!(HARMONY.is_marker(token), is_marker, "{token}");
    }
}
