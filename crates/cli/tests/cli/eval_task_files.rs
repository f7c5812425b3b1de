//! Task files and CORE agree with lm-evaluation-harness and with nanochat's rules, for three models (make_harness.py).

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::support::{AssertText, CommandOutput, Sandbox, fixtures};

pub const MODELS: [&str; 3] = ["gpt2", "gpt_neox", "llama"];

pub fn fixture(name: &str) -> PathBuf {
    fixtures().join("harness").join(name)
}

pub fn model(name: &str) -> String {
    let folder = match name {
        "gpt2" => fixtures().join("tasks/model"),
        name => fixture(name),
    };
    folder.to_string_lossy().into_owned()
}

/// Asserts that two numbers differ by at most `tolerance` of the expected one. Metrics may be 0.
#[track_caller]
pub fn close(found: &Value, expected: &Value, tolerance: f64) {
    let [found, expected] = [found, expected].map(|value| value.as_f64().unwrap());
    let error = (found - expected).abs();
    assert!(
        error <= tolerance * expected.abs(),
        "{found}, not {expected}"
    );
}

pub fn expected(file: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(fixture(file)).unwrap()).unwrap()
}

fn eval(sandbox: &Sandbox, model_name: &str, more: &[&str]) -> CommandOutput {
    let model = model(model_name);
    sandbox.run(["eval", &model].into_iter().chain(more.iter().copied()))
}

/// Compares log-likelihoods, answers and metrics of every task with the harness'.
fn agrees_with_the_harness(name: &str) {
    let expected = &expected("expected.json")[name];
    let tasks = expected.as_object().unwrap();
    let files: Vec<String> = tasks
        .keys()
        .map(|task| {
            fixture(&format!("{task}.yaml"))
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    let mut args = vec!["--json"];
    for file in &files {
        args.extend(["--task", file]);
    }
    let ran = eval(&Sandbox::new(), name, &args);
    // Prompts with examples are longer than the contexts.
    ran.says("were scored without their beginning");
    assert_eq!(ran.code, Some(0), "{ran}");
    let found: Value = serde_json::from_str(&ran.stdout).unwrap();
    for (found, (task, expected)) in found["tasks"].as_array().unwrap().iter().zip(tasks) {
        assert_eq!(found["task"], json!(format!("own_{task}")));
        let answers = expected["answers"].as_array().unwrap();
        assert_eq!(found["items"], answers.len(), "{name} {task}");
        for (at, expected) in answers.iter().enumerate() {
            let found = &found["answers"][at];
            match expected {
                Value::String(text) => assert_eq!(found["answer"], *text, "{name} {task} {at}"),
                // The choices, and after them those without a context.
                Value::Array(values) if found["log_likelihoods"].is_array() => {
                    let found = found["log_likelihoods"].as_array().unwrap();
                    assert!(!found.is_empty() && values.len() % found.len() == 0);
                    for (found, value) in found.iter().zip(values) {
                        close(found, value, 2e-4);
                    }
                }
                Value::Array(values) => close(&found["log_likelihood"], &values[0], 2e-4),
                value => close(&found["log_likelihood"], value, 2e-3),
            }
        }
        for (metric, value) in expected["metrics"].as_object().unwrap() {
            let name = metric.strip_suffix(",none").unwrap_or(metric);
            close(&found["metrics"][name], value, tolerance(name));
        }
        let stderrs = expected["stderrs"].as_object();
        for (metric, value) in stderrs.into_iter().flatten() {
            let name = metric.strip_suffix(",none").unwrap_or(metric);
            close(&found["metrics"][format!("{name}_stderr")], value, 1e-9);
        }
    }
}

/// Perplexities follow from log-likelihoods in f32.
fn tolerance(metric: &str) -> f64 {
    match metric.contains("perplexity") || metric == "bits_per_byte" {
        true => 1e-3,
        false => 1e-9,
    }
}

#[test]
fn task_files_score_as_lm_evaluation_harness_does_with_gpt2() {
    agrees_with_the_harness("gpt2");
}

#[test]
fn task_files_score_as_lm_evaluation_harness_does_with_gpt_neox() {
    agrees_with_the_harness("gpt_neox");
}

#[test]
fn task_files_score_as_lm_evaluation_harness_does_with_llama() {
    agrees_with_the_harness("llama");
}

#[test]
fn core_is_scored_by_the_rules_of_nanochat() {
    let expected = expected("core.json");
    let folder = fixture("core");
    let folder = folder.to_str().unwrap();
    for name in MODELS {
        let expected = &expected[name];
        let ran = eval(&Sandbox::new(), name, &["--core", folder, "--json"]);
        assert_eq!(ran.code, Some(0), "{ran}");
        let found: Value = serde_json::from_str(&ran.stdout).unwrap();
        close(&found["core_metric"], &expected["core_metric"], 1e-12);
        let tasks = found["tasks"].as_array().unwrap();
        assert_eq!(tasks.len(), 4);
        for task in tasks {
            let expected = &expected["tasks"][task["task"].as_str().unwrap()];
            assert_eq!(task["correct"], expected["correct"], "{name} {task}");
            close(&task["centered"], &expected["centered"], 1e-12);
        }
    }
    let text = eval(&Sandbox::new(), "llama", &["--core", folder]).stdout;
    let core = expected["llama"]["core_metric"].as_f64().unwrap();
    text.assert_has(&format!("{core:.4}"));
    text.assert_has("last_words");
}

#[test]
fn a_report_names_metrics_filters_and_examples() {
    let file = fixture("gsm8k.yaml");
    let args = ["--task", file.to_str().unwrap(), "--limit", "2"];
    let text = eval(&Sandbox::new(), "llama", &args).ok();
    assert!(text.starts_with("  own_gsm8k, 2 items, 1-shot\n"), "{text}");
    text.assert_has("exact_match,strict-match");
    text.assert_has("exact_match,flexible-extract");
    let args = ["--task", file.to_str().unwrap(), "--num-fewshot", "0"];
    eval(&Sandbox::new(), "llama", &args)
        .ok()
        .assert_has("0-shot");
}

/// A task file that is refused, with the data of one item.
fn refused(task: &str, item: &Value) -> String {
    let sandbox = Sandbox::new();
    let data =
        "dataset_path: json\ndataset_kwargs: {data_files: {test: items.jsonl}}\ntest_split: test\n";
    fs::write(sandbox.path("task.yaml"), format!("{data}{task}")).unwrap();
    fs::write(sandbox.path("items.jsonl"), format!("{item}\n")).unwrap();
    let ran = eval(&sandbox, "gpt2", &["--task", "task.yaml"]);
    assert_eq!(ran.code, Some(1), "{ran}");
    assert!(ran.stdout.is_empty(), "{ran}");
    ran.stderr
}

#[test]
fn unusable_task_files_are_refused_with_file_line_and_rule() {
    let item = json!({"question": "q", "choices": ["a", "b"], "answer": 1});
    let choice = "output_type: multiple_choice\ndoc_to_text: question\ndoc_to_choice: choices\n";
    for (task, rule) in [
        (
            "doc_to_text: question\n",
            "task.yaml:1: `doc_to_target` is missing",
        ),
        (
            "output_type: chat\n",
            "task.yaml:4: `output_type` must be one of multiple_choice, ",
        ),
        (
            "doc_to_text: question\ndoc_to_target: answer\nprocess_docs: !function utils.f\n",
            "task.yaml:6: `!function utils.f` is not supported",
        ),
        (
            "doc_to_text: question\ndoc_to_target: answer\ngen_prefix: x\n",
            "task.yaml:6: `gen_prefix` is not supported",
        ),
        (
            "doc_to_txt: question\n",
            "task.yaml:4: `doc_to_txt` is not a known key",
        ),
        (
            "doc_to_text: question\ndoc_to_target: answer\nnum_fewshot: many\n",
            "task.yaml:6: `num_fewshot` is \"many\"",
        ),
        (
            "doc_to_text: \"{{question\"\ndoc_to_target: answer\n",
            "task.yaml:4: `doc_to_text` is not a valid Jinja template",
        ),
        (
            "doc_to_text: \"{{missing}}\"\ndoc_to_target: answer\n",
            "items.jsonl:1: `doc_to_text`: the template fails: ",
        ),
        (
            &format!("{choice}doc_to_target: 2\n"),
            "items.jsonl:1: the target is 2: must be one of the 2 choices",
        ),
        (
            &format!("{choice}doc_to_target: question\n"),
            "items.jsonl:1: the target is \"q\": must be one of the 2 choices",
        ),
        (
            "output_type: multiple_choice\ndoc_to_text: question\ndoc_to_choice: []\ndoc_to_target: 0\n",
            "items.jsonl:1: `doc_to_choice` has no choice",
        ),
        (
            "output_type: multiple_choice\ndoc_to_text: question\ndoc_to_target: 0\n",
            "`doc_to_choice` is missing",
        ),
        (
            &format!("{choice}doc_to_target: answer\nmetric_list: [{{metric: bleu}}]\n"),
            "task.yaml:8: `metric` of multiple_choice must be one of",
        ),
        (
            &format!(
                "{choice}doc_to_target: answer\nmetric_list: [{{metric: f1, aggregation: mean}}]\n"
            ),
            "task.yaml:8: `aggregation` of f1 must be f1 (got \"mean\")",
        ),
        (
            &format!("{choice}doc_to_target: '{{{{[0, 1]}}}}'\nmetric_list: [{{metric: mcc}}]\n"),
            "items.jsonl:1: `doc_to_target` is a list: must be one target for the metric mcc",
        ),
        (
            "doc_to_text: question\ndoc_to_target: choices\nmetric_list: [{metric: bleu}]\n",
            "items.jsonl:1: `doc_to_target` is a list: must be one target for the metric bleu",
        ),
        (
            &format!("{choice}doc_to_target: answer\nnum_fewshot: 3\n"),
            "items.jsonl:1: `num_fewshot` is 3, but only 1 examples",
        ),
        (
            &format!("{choice}doc_to_target: answer\nfewshot_split: dev\nnum_fewshot: 1\n"),
            "task.yaml:8: the split dev has no file",
        ),
        (
            "doc_to_text: question\ndoc_to_target: answer\ngeneration_kwargs: {do_sample: true}\n",
            "task.yaml:6: `generation_kwargs.do_sample` must be false",
        ),
        (
            "doc_to_text: question\ndoc_to_target: answer\n",
            "`max_gen_toks` is 256: must be less than the model's context of 64",
        ),
        ("a: [\n", "is not YAML"),
    ] {
        let found = refused(task, &item);
        assert!(found.contains(rule), "{task}\n{found}");
        assert_eq!(
            found.contains("hint: "),
            rule.contains("task.yaml") || !rule.contains("items.jsonl"),
            "{found}"
        );
    }
}

#[test]
fn datasets_are_not_downloaded_and_missing_files_are_named() {
    let sandbox = Sandbox::new();
    let rest = "test_split: test\ndoc_to_text: q\ndoc_to_target: a\n";
    fs::write(
        sandbox.path("task.yaml"),
        format!("dataset_path: allenai/ai2_arc\n{rest}"),
    )
    .unwrap();
    let refused = eval(&sandbox, "gpt2", &["--task", "task.yaml"]).stderr;
    refused.assert_has("task.yaml:1: `dataset_path` must be json, csv or parquet");
    let files = "dataset_path: json\ndataset_kwargs: {data_files: {test: none.jsonl}}\n";
    fs::write(sandbox.path("task.yaml"), format!("{files}{rest}")).unwrap();
    let refused = eval(&sandbox, "gpt2", &["--task", "task.yaml"]).stderr;
    refused.assert_has("none.jsonl");
    let refused = eval(&sandbox, "gpt2", &["--core", "."]).stderr;
    refused.assert_has("core.yaml");
}

/// A published task file with its data replaced by local files.
#[test]
fn a_file_may_include_another_and_replace_its_keys() {
    let sandbox = Sandbox::new();
    let base = "task: base\ndataset_path: allenai/ai2_arc\ntest_split: test\noutput_type: multiple_choice\n\
                doc_to_text: \"{{q}}\"\ndoc_to_choice: [a, b]\ndoc_to_target: label\n";
    fs::create_dir(sandbox.path("tasks")).unwrap();
    fs::write(sandbox.path("tasks/base.yaml"), base).unwrap();
    let own = "include: tasks/base.yaml\ntask: own\ndataset_path: csv\ndataset_kwargs: {data_files: {test: items.csv}}\n";
    fs::write(sandbox.path("own.yaml"), own).unwrap();
    fs::write(
        sandbox.path("items.csv"),
        "q,label\nthe bread is,a\nthe bees are,b\n",
    )
    .unwrap();
    let found: Value = eval(&sandbox, "gpt2", &["--task", "own.yaml", "--json"]).json();
    assert_eq!(
        (&found["tasks"][0]["task"], &found["tasks"][0]["items"]),
        (&json!("own"), &json!(2))
    );
    assert_eq!(found["tasks"][0]["answers"][1]["correct"], json!([1]));
}
