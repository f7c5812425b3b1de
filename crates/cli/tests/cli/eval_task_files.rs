//! Task files and CORE agree with lm-evaluation-harness and with nanochat's rules, for three models (make_harness.py).

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::support::{AssertText, CommandOutput, Sandbox, fixtures};

const MODELS: [&str; 3] = ["gpt2", "gpt_neox", "llama"];

fn fixture(name: &str) -> PathBuf {
    fixtures().join("harness").join(name)
}

fn model(name: &str) -> String {
    let folder = match name {
        "gpt2" => fixtures().join("tasks/model"),
        name => fixture(name),
    };
    folder.to_string_lossy().into_owned()
}

/// Asserts that two numbers differ by at most `tolerance` of the expected one. Metrics may be 0.
#[track_caller]
fn close(found: &Value, expected: &Value, tolerance: f64) {
    let [found, expected] = [found, expected].map(|value| value.as_f64().unwrap());
    let error = (found - expected).abs();
    assert!(
        error <= tolerance * expected.abs(),
        "{found}, not {expected}"
    );
}

fn expected(file: &str) -> Value {
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
    }
}

/// Accuracies are exact, and perplexities follow from log-likelihoods in f32.
fn tolerance(metric: &str) -> f64 {
    match metric.contains("perplexity") || metric == "bits_per_byte" {
        true => 1e-3,
        false => 1e-12,
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

/// A folder with four task files and a group that has two of them by a tag, one by its name and one in a group.
fn with_group() -> Sandbox {
    let sandbox = Sandbox::with_data();
    for (name, items, more) in [
        ("one", 5, "tag: [pair, odd]\n"),
        ("two", 3, "tag: pair\nmetric_list: [{metric: acc}]\n"),
        ("three", 4, ""),
        ("four", 2, ""),
    ] {
        let task = format!(
            "task: {name}\ndataset_path: json\ndataset_kwargs: {{data_files: {{test: {name}.jsonl}}}}\ntest_split: test\n\
             output_type: multiple_choice\ndoc_to_text: '{{{{a}}}}'\ndoc_to_choice: ['d 2', 'm']\ndoc_to_target: b\n{more}"
        );
        sandbox.write(&format!("tasks/{name}.yaml"), task);
        let item = |i: usize| format!("{}\n", json!({"a": format!("{i} an"), "b": i % 2}));
        let items: String = (0..items).map(item).collect();
        sandbox.write(&format!("tasks/{name}.jsonl"), items);
    }
    let inner =
        "group: inner\ntask: [four]\naggregate_metric_list: {metric: acc, weight_by_size: false}\n";
    sandbox.write("tasks/_inner.yaml", inner);
    let all = "group: All-4\ngroup_alias: all\ntask: [pair, three, inner]\naggregate_metric_list:\n\
        - {metric: acc, aggregation: mean, weight_by_size: true}\n\
        - {metric: acc_norm, filter_list: none, weight_by_size: false}\nmetadata: {version: 1}\n";
    sandbox.write("tasks/_all.yaml", all);
    // Files of the harness that need Python are no members.
    sandbox.write(
        "tasks/python.yaml",
        "task: p\nprocess_docs: !function utils.f\n",
    );
    sandbox
}

#[test]
fn a_group_aggregates_its_tasks_as_the_harness_does() {
    let sandbox = with_group();
    sandbox.trains(
        "--data data --eval-interval 2 --steps 4 --set train.evaluation.tasks=[\"tasks/_all.yaml\"] --out run",
    );
    // A task that is also given has its place.
    let line = "eval run --task tasks/three.yaml --task tasks/_all.yaml";
    let found: Value = sandbox.json(&format!("{line} --json"));
    let tasks = found["tasks"].as_array().unwrap();
    let names: Vec<&str> = tasks
        .iter()
        .filter_map(|task| task["task"].as_str())
        .collect();
    assert_eq!(names, ["three", "one", "two", "four"]);
    let groups = found["groups"].as_array().unwrap();
    assert_eq!(
        (&groups[0]["group"], &groups[0]["items"]),
        (&json!("inner"), &json!(2))
    );
    assert_eq!(
        (&groups[1]["group"], &groups[1]["items"]),
        (&json!("All-4"), &json!(14))
    );
    let number = |task: &Value, name: &str| task["metrics"][name].as_f64();
    for name in ["acc", "acc_stderr"] {
        assert_eq!(number(&groups[0], name), number(&tasks[3], name));
    }
    let sum = |of: &dyn Fn(&Value, f64) -> Option<f64>| -> f64 {
        tasks
            .iter()
            .filter_map(|task| of(task, task["items"].as_f64().unwrap()))
            .sum()
    };
    let acc = sum(&|task, items| Some(number(task, "acc")? * items)) / 14.0;
    let stderr =
        sum(&|task, items| Some(number(task, "acc_stderr")?.powi(2) * items * (items - 1.0)));
    let stderr = (stderr / (14.0 - 4.0) / 14.0).sqrt();
    let norm = sum(&|task, _| number(task, "acc_norm")) / 3.0;
    let norm_stderr = sum(&|task, _| Some(number(task, "acc_norm_stderr")?.powi(2))).sqrt() / 3.0;
    let expected = [
        ("acc", acc),
        ("acc_stderr", stderr),
        ("acc_norm", norm),
        ("acc_norm_stderr", norm_stderr),
    ];
    for (name, value) in expected {
        close(&groups[1]["metrics"][name], &json!(value), 1e-12);
    }
    sandbox.ok(line).assert_has("  All-4, 14 items\n");
    let recorded = &sandbox.events("run", "evaluation")[1]["metrics"];
    assert_eq!(recorded["all_4_acc"], groups[1]["metrics"]["acc"]);
    assert_eq!(recorded["inner_acc"], groups[0]["metrics"]["acc"]);
}

#[test]
fn unusable_groups_are_refused_with_file_line_and_rule() {
    let sandbox = with_group();
    let model = model("gpt2");
    sandbox.write("tasks/double.yaml", "include: four.yaml\n");
    for (group, rule) in [
        (
            "task: [nothing]\n",
            "own.yaml:2: no file in its folder has a task, a group or a tag named nothing",
        ),
        (
            "task: [pair, one]\n",
            "own.yaml:2: one is in the group twice",
        ),
        ("task: [own]\n", "own.yaml:2: own is in the group twice"),
        (
            "task: [four]\n",
            "double.yaml and tasks/four.yaml are both named four",
        ),
        (
            "task: [{task: one, num_fewshot: 2}]\n",
            "own.yaml:2: {\"task\":\"one\",\"num_fewshot\":2} is not supported in a group: write a file",
        ),
        (
            "task: [one]\nnum_fewshot: 2\n",
            "own.yaml:3: `num_fewshot` is not supported in a group",
        ),
        (
            "task: [two]\naggregate_metric_list: [{metric: acc_norm}]\n",
            "own.yaml:3: no task has the metric acc_norm",
        ),
        (
            "task: [two]\naggregate_metric_list: [{metric: acc, filter_list: [strict]}]\n",
            "own.yaml:3: no task has the metric acc with the filter strict",
        ),
        (
            "task: [two]\naggregate_metric_list: [{metric: f1}]\n",
            "own.yaml:3: `metric` is f1, which is not supported",
        ),
        (
            "task: [two]\naggregate_metric_list: [{metric: acc, aggregation: median}]\n",
            "own.yaml:3: `aggregation` must be mean (got median)",
        ),
    ] {
        sandbox.write("tasks/own.yaml", format!("group: own\n{group}"));
        let line = format!("eval {model} --task tasks/own.yaml");
        sandbox.refusal(&line).assert_has(rule);
    }
    sandbox.write("tasks/own.yaml", "task: [one]\n");
    let refused = sandbox.refusal(&format!("eval {model} --task tasks/own.yaml"));
    refused.assert_has("own.yaml:1: `task` must be a name, unless `group` names a group of tasks");
}

#[test]
fn a_run_scores_tasks_at_each_evaluation_as_eval_does() {
    let sandbox = Sandbox::with_data();
    let task = "task: Own-1\ndataset_path: json\ndataset_kwargs: {data_files: {test: items.jsonl}}\ntest_split: test\n\
                output_type: multiple_choice\ndoc_to_text: '{{a}}'\ndoc_to_choice: ['d 2', 'm']\ndoc_to_target: b\n";
    sandbox.write("task.yaml", task);
    let items = [("1 an", 0), ("11 ", 1), ("7 a", 1), ("3 an", 0)]
        .map(|(a, b)| format!("{}\n", json!({"a": a, "b": b})));
    sandbox.write("items.jsonl", items.concat());
    sandbox.trains(
        "--data data --eval-interval 2 --steps 4 --set train.evaluation.tasks=[\"task.yaml\"] \
         --set train.evaluation.task_items=3 --out run",
    );
    let events = sandbox.events("run", "evaluation");
    assert_eq!(events.len(), 2);
    let found: Value = sandbox.json("eval run --task task.yaml --limit 3 --json");
    for metric in ["acc", "acc_norm"] {
        let recorded = &events[1]["metrics"][format!("own_1_{metric}")];
        assert_eq!(*recorded, found["tasks"][0]["metrics"][metric], "{metric}");
    }
    let begun = &sandbox.events("run", "begun")[0];
    begun.to_string().assert_has("\"own_1_acc_norm\"");
    // A missing file ends the run before its first step.
    let refused = sandbox.refusal(
        "train --data data --preset char-nano --steps 4 --set train.evaluation.tasks=[\"none.yaml\"] --out other",
    );
    refused.assert_has("none.yaml");
}

#[test]
fn a_run_scores_core_at_each_evaluation_as_eval_does() {
    // Texts of CORE begin with end-of-text, which the tokenizer of characters does not have.
    let lines = (0..400).map(|i| format!("{i} and {} make {}\n", i + 1, 2 * i + 1));
    let sandbox = Sandbox::with_text(lines.collect::<String>(), "byte");
    sandbox.write(
        "core/core.yaml",
        "icl_tasks:\n\
         - {label: Sums-1, dataset_uri: sums.jsonl, num_fewshot: [1], icl_task_type: multiple_choice}\n\
         - {label: last, dataset_uri: last.jsonl, num_fewshot: [0], icl_task_type: language_modeling}\n",
    );
    let chance = "Eval Task,Random baseline\nSums-1,50\nlast,0\n";
    sandbox.write("core/eval_meta_data.csv", chance);
    let sums = ["1 an", "11 ", "7 a", "3 an", "5 m"].map(|query| {
        format!(
            "{}\n",
            json!({"query": query, "choices": ["d 2", "m"], "gold": 0})
        )
    });
    sandbox.write("core/eval_data/sums.jsonl", sums.concat());
    let last = ["1 and 2 mak", "4 an"]
        .map(|context| format!("{}\n", json!({"context": context, "continuation": "e"})));
    sandbox.write("core/eval_data/last.jsonl", last.concat());
    let settings = |core: &str| {
        format!(
            "--data data --eval-interval 2 --steps 4 \
             --set train.checkpoints.interval=2 --set train.evaluation.core={core} --set train.evaluation.task_items=4"
        )
    };
    sandbox.trains(&format!("{} --out run", settings("core")));
    let events = sandbox.events("run", "evaluation");
    assert_eq!(events.len(), 2);
    for (event, step) in events.iter().zip([2, 4]) {
        let line = format!("eval run/checkpoints/step-0000000{step} --core core --limit 4 --json");
        let found: Value = sandbox.json(&line);
        let metrics = &event["metrics"];
        assert_eq!(metrics["core_metric"], found["core_metric"], "{step}");
        let tasks = found["tasks"].as_array().unwrap();
        assert_eq!(
            (&tasks[0]["items"], &tasks[1]["items"]),
            (&json!(4), &json!(2))
        );
        for (task, name) in tasks
            .iter()
            .zip(["core_sums_1_centered", "core_last_centered"])
        {
            assert_eq!(metrics[name], task["centered"], "{step}");
        }
    }
    let begun = &sandbox.events("run", "begun")[0];
    begun.to_string().assert_has("\"core_metric\"");
    // A missing folder ends the run before its first step.
    let refused = sandbox.train(&format!("{} --out other", settings("none")));
    let refused = refused.refusal();
    refused.assert_has("none/core.yaml");
}
