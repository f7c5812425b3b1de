//! The scores and standard errors are those of lm-evaluation-harness 0.4.13 (make_harness_metrics.py).

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::json;

use super::*;

#[derive(Deserialize)]
struct Fixture {
    choices: BTreeMap<String, Case<usize>>,
    texts: BTreeMap<String, Case<String>>,
}

/// Pairs of the reference and the answer.
#[derive(Deserialize)]
struct Case<T> {
    pairs: Vec<(T, T)>,
    scores: BTreeMap<String, Score>,
}

#[derive(Deserialize)]
struct Score {
    value: f64,
    stderr: Option<f64>,
}

fn fixture() -> Fixture {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/fixtures/harness_metrics.json"
    );
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn agrees(case: &str, scores: &BTreeMap<String, Score>, answers: &[TaskAnswer]) {
    for (name, score) in scores {
        let mut kinds = MetricKind::ALL.into_iter();
        let kind = kinds.find(|kind| kind.name() == name).unwrap();
        let found = estimate(kind, answers, &Pipeline::none(), true).unwrap();
        let close = |found: f64, expected: f64| (found - expected).abs() <= 1e-9 * (1.0 + expected);
        assert!(
            close(found.value, score.value),
            "{case} {name}: {found:?}, not {}",
            score.value
        );
        assert_eq!(found.stderr.is_some(), score.stderr.is_some());
        assert!(
            close(
                found.stderr.unwrap_or_default(),
                score.stderr.unwrap_or_default()
            ),
            "{case} {name}: {found:?}, not ± {:?}",
            score.stderr
        );
    }
}

#[test]
fn f1_and_mcc_equal_those_of_the_harness() {
    for (name, case) in fixture().choices {
        let pairs = case.pairs.iter();
        let classes = pairs.clone().map(|(one, other)| one.max(other) + 1).max();
        let answer = |(correct, choice): &(usize, usize)| TaskAnswer::Choice {
            correct: vec![*correct],
            choice: *choice,
            log_likelihoods: vec![0.0; classes.unwrap()],
        };
        agrees(&name, &case.scores, &pairs.map(answer).collect::<Vec<_>>());
    }
}

#[test]
fn bleu_and_chrf_equal_those_of_the_harness() {
    for (name, case) in fixture().texts {
        let answer = |(target, answer): &(String, String)| TaskAnswer::Text {
            answer: answer.clone(),
            targets: vec![target.clone()],
        };
        let answers: Vec<TaskAnswer> = case.pairs.iter().map(answer).collect();
        agrees(&name, &case.scores, &answers);
    }
}

#[test]
fn documents_without_a_defined_score_are_refused() {
    use crate::evaluate::tasks::harness::metrics::metric;
    use crate::evaluate::tasks::harness::output_type::OutputType;

    let refusal = |output, name: &str, target, choices: &[&str]| {
        let entry = json!({"metric": name});
        let metrics = [metric(output, entry.as_object().unwrap()).unwrap()];
        let doc = Doc {
            text: json!("q"),
            target,
            choices: match choices {
                [] => None,
                _ => Some(choices.iter().map(|&choice| choice.to_owned()).collect()),
            },
        };
        check(&metrics, &doc).err().unwrap_or_default()
    };
    let choice = OutputType::MultipleChoice;
    let found = refusal(choice, "f1", json!(1), &["a", "b", "c"]);
    assert!(found.starts_with("`doc_to_choice` has 3 choices: must be 2 for the metric f1"));
    let found = refusal(choice, "mcc", json!([1, 0]), &["a", "b"]);
    assert!(found.starts_with("`doc_to_target` is a list: must be one target for the metric mcc"));
    let found = refusal(OutputType::GenerateUntil, "bleu", json!(["a", "b"]), &[]);
    assert!(found.contains("for the metric bleu"));
    assert_eq!(refusal(choice, "mcc", json!(1), &["a", "b", "c"]), "");
    assert_eq!(refusal(choice, "f1", json!([1]), &["a", "b"]), "");
    assert_eq!(refusal(choice, "acc", json!([1]), &["a", "b", "c"]), "");
    assert_eq!(
        refusal(OutputType::GenerateUntil, "chrf", json!("a"), &[]),
        ""
    );
}
