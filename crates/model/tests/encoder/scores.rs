//! Scores of text classifiers against the pipeline of `transformers` (`fixtures/make_scores.py`).

use std::fs;
use std::path::PathBuf;

use emberlm_model::HuggingFaceError;
use emberlm_model::encoder::{EncoderHeadConfig, ProblemType};
use serde_json::{Value, json};

use super::directories::changed;

#[test]
fn scores_are_those_of_the_pipeline() {
    let file =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/classifier_scores.json");
    let expected: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    let numbers = |value: &Value| -> Vec<f32> {
        let values = value.as_array().unwrap().iter();
        values.map(|value| value.as_f64().unwrap() as f32).collect()
    };
    for case in expected["cases"].as_array().unwrap() {
        let problem = match case["problem_type"].as_str() {
            Some(name) => ProblemType::ALL
                .into_iter()
                .find(|known| known.name() == name),
            None => Some(ProblemType::default()),
        };
        let found = problem.unwrap().scores(&numbers(&case["logits"]));
        let scores = numbers(&case["scores"]);
        assert_eq!(found.len(), scores.len());
        for (found, expected) in found.iter().zip(scores) {
            let tolerance = 1e-6 * expected.abs().max(1e-12);
            assert!((found - expected).abs() <= tolerance, "{case}: {found}");
        }
    }
}

#[test]
fn the_problem_type_is_read_and_unknown_ones_are_refused() {
    let problem = |value: Value| -> Result<ProblemType, HuggingFaceError> {
        let read = changed("bert-sequence", |fields| fields["problem_type"] = value)?;
        match read.config().encoder_head() {
            Some(EncoderHeadConfig::Sequence { problem, .. }) => Ok(*problem),
            head => panic!("{head:?}"),
        }
    };
    for (value, expected) in [
        (Value::Null, ProblemType::SingleLabelClassification),
        (
            json!("single_label_classification"),
            ProblemType::SingleLabelClassification,
        ),
        (
            json!("multi_label_classification"),
            ProblemType::MultiLabelClassification,
        ),
        (json!("regression"), ProblemType::Regression),
    ] {
        assert_eq!(problem(value).unwrap(), expected);
    }
    let error = problem(json!("ranking")).unwrap_err().to_string();
    assert!(
        error.contains("problem_type") && error.contains("must be one of"),
        "{error}"
    );
}
