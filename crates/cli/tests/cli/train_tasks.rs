//! Task files and CORE as metrics of a run.

use serde_json::{Value, json};

use super::support::{AssertText, Sandbox};

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
