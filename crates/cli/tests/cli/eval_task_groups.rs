//! Groups of task files: their aggregates, and the groups that are refused.

use serde_json::{Value, json};

use super::eval_task_files::{MODELS, close, expected, fixture, model};
use super::support::{AssertText, Sandbox};

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

/// The values of `TaskManager` and `Group.aggregate` (make_harness.py).
#[test]
fn members_with_settings_score_as_in_the_harness() {
    let group = fixture("_settings.yaml");
    let expected = expected("groups.json");
    for name in MODELS {
        let (model, group) = (model(name), group.to_string_lossy());
        let ran = Sandbox::new().run(["eval", &model, "--task", &group, "--json"]);
        // Prompts with examples are longer than GPT-2's context.
        assert_eq!(ran.code, Some(0), "{ran}");
        let found: Value = serde_json::from_str(&ran.stdout).unwrap();
        for (kind, key) in [("tasks", "task"), ("groups", "group")] {
            let expected = expected[name][kind].as_object().unwrap();
            let found = found[kind].as_array().unwrap();
            assert_eq!(found.len(), expected.len(), "{name} {kind}");
            for found in found {
                let metrics = &expected[found[key].as_str().unwrap()];
                for (metric, value) in metrics.as_object().unwrap() {
                    let metric = metric.strip_suffix(",none").unwrap_or(metric);
                    close(&found["metrics"][metric], value, 1e-9);
                }
            }
        }
    }
}

/// A task has one set of settings in an evaluation.
#[test]
fn a_task_is_not_evaluated_with_two_sets_of_settings() {
    let sandbox = with_group();
    sandbox.write(
        "tasks/own.yaml",
        "group: own\ntask: [{task: one, num_fewshot: 1}]\n",
    );
    let line = format!(
        "eval {} --task tasks/one.yaml --task tasks/own.yaml",
        model("gpt2")
    );
    sandbox
        .refusal(&line)
        .assert_has("one.yaml:1: another task or group is named one");
    sandbox.write(
        "tasks/own.yaml",
        "group: own\ntask: [{task: one, tag: x}]\n",
    );
    sandbox
        .refusal(&line)
        .assert_has("another task or group is named one");
    sandbox.write("tasks/own.yaml", "group: own\ntask: [{group: one}]\n");
    sandbox.ok(&line).assert_has("one, 5 items, 0-shot");
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
            "task: [5]\n",
            "own.yaml:2: a member must be a name, or a mapping with `task` or `group` (got 5)",
        ),
        (
            "task: [{task: [one]}]\n",
            "own.yaml:2: `task` of a member must be a name (got [\"one\"])",
        ),
        (
            "task: [{task: one, num_fewshot: many}]\n",
            "own.yaml:2: the member one: `num_fewshot` is \"many\": ",
        ),
        (
            "task: [{task: one, output_typ: x}]\n",
            "own.yaml:2: the member one: `output_typ` is not a known key",
        ),
        (
            "task: [{task: one, include: two.yaml}]\n",
            "own.yaml:2: the member one: `include` is not a known key",
        ),
        (
            "task: [{task: one, process_docs: f}]\n",
            "own.yaml:2: the member one: `process_docs` is not supported",
        ),
        (
            "task: [one, {task: one, num_fewshot: 2}]\n",
            "own.yaml:2: one is in the group twice",
        ),
        (
            "task: [{task: pair, num_fewshot: 2}]\n",
            "own.yaml:2: the member pair: `task` must be a task (got a group or a tag)",
        ),
        (
            "task: [{task: inner, num_fewshot: 2}]\n",
            "own.yaml:2: the member inner: `task` must be a task (got a group or a tag)",
        ),
        (
            "task: [{group: pair, num_fewshot: 2}]\n",
            "own.yaml:2: the member pair: `group` must be a group (got a tag)",
        ),
        (
            "task: [{group: inner, task: [one]}]\n",
            "own.yaml:2: the member inner: `task` is not supported beside `group`",
        ),
        (
            "task: [{group: new, num_fewshot: 2}]\n",
            "own.yaml:2: no file in its folder has a group named new, and without `task`",
        ),
        (
            "task: [{group: new, task: [{task: two}, two]}]\n",
            "own.yaml:2: the member own::new: two is in the group twice",
        ),
        (
            "task: [{task: new, num_fewshot: 2}]\n",
            "own.yaml:2: no file in its folder has a task named new, and without `dataset_path`",
        ),
        (
            "task: [{task: new, dataset_path: json}]\n",
            "own.yaml:2: the member own::new: `dataset_kwargs.data_files` is missing",
        ),
        (
            "task: [one]\nnum_fewshots: 2\n",
            "own.yaml:3: `num_fewshots` is not a known key",
        ),
        (
            "task: [one]\nnum_fewshot: many\n",
            "own.yaml:3: `num_fewshot` is \"many\": ",
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
            "own.yaml:3: no task has the metric f1",
        ),
        (
            "task: [two]\naggregate_metric_list: [{metric: rouge1}]\n",
            "own.yaml:3: `metric` is rouge1, which is not supported",
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
