"""lm-evaluation-harness against the real server: `local-completions` scores the fixtures' model as `transformers` does.

`python tests/clients/harness.py --binary target/debug/emberlm --model RUN`, as `cargo xtask test-clients` runs it. RUN is
not used: model, items and expected values are those of crates/model/tests/fixtures/tasks, which make_tasks.py wrote with
`transformers`. The harness cleans the items, tokenizes them and picks the answers; the server gives log-probabilities.
"""

import json
import os
import tempfile
from pathlib import Path

# Everything is local.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_DATASETS_OFFLINE"] = "1"
os.environ["TQDM_DISABLE"] = "1"

import lm_eval
from lm_eval.tasks import TaskManager
from lm_eval.tasks.hellaswag.utils import process_docs
from transformers import PreTrainedTokenizerFast

from served import Checks, Server, arguments, close, equal

TASKS = Path(__file__).parents[2] / "crates/model/tests/fixtures/tasks"
MODEL = TASKS / "model"
EXPECTED = json.loads((TASKS / "expected.json").read_text())
# The model's context. The harness cuts longer texts to one token less than `transformers` does.
CONTEXT = 64

MEAN = {"aggregation": "mean", "higher_is_better": True}
PERPLEXITY = {"metric": "perplexity", "aggregation": "perplexity", "higher_is_better": False}
HELLASWAG = {
    "task": "hellaswag_local",
    "output_type": "multiple_choice",
    "process_docs": process_docs,
    "doc_to_text": "{{query}}",
    "doc_to_target": "{{gold}}",
    "doc_to_choice": "choices",
    "metric_list": [{"metric": "acc", **MEAN}, {"metric": "acc_norm", **MEAN}],
}
LAMBADA = {
    "task": "lambada_local",
    "output_type": "loglikelihood",
    "doc_to_text": "{{text.split(' ')[:-1]|join(' ')}}",
    "doc_to_target": "{{' '+text.split(' ')[-1]}}",
    "metric_list": [PERPLEXITY, {"metric": "acc", **MEAN}],
}

check = Checks()


def lines(name):
    return [json.loads(line) for line in (TASKS / name).read_text(encoding="utf-8").splitlines()]


def tokenizer(folder):
    """The folder of a tokenizer that `transformers` finds without the configuration of a model."""
    loaded = PreTrainedTokenizerFast(tokenizer_file=str(MODEL / "tokenizer.json"), eos_token="<|endoftext|>")
    loaded.save_pretrained(folder)
    return loaded


def evaluated(server, task, items):
    """The harness's results, and its log-likelihoods of each item in order."""
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        tokenizer(folder / "tokenizer")
        file = folder / "items.jsonl"
        file.write_text("".join(json.dumps(item) + "\n" for item in items), encoding="utf-8")
        data = {"data_files": {"test": str(file)}, "cache_dir": str(folder / "cache")}
        config = {**task, "dataset_path": "json", "dataset_kwargs": data, "test_split": "test"}
        options = {
            "model": "model",
            "base_url": f"{server.url}/v1/completions",
            "tokenizer": str(folder / "tokenizer"),
            "max_length": CONTEXT,
            "num_concurrent": 4,
            "max_retries": 1,
        }
        found = lm_eval.simple_evaluate(
            model="local-completions", model_args=options, tasks=[config], log_samples=True, bootstrap_iters=0,
            task_manager=TaskManager(include_defaults=False),
        )
    samples = sorted(found["samples"][task["task"]], key=lambda sample: sample["doc_id"])
    scores = [[(float(value), greedy) for value, greedy in sample["filtered_resps"]] for sample in samples]
    return found["results"][task["task"]], scores


@check("hellaswag: log-likelihoods, acc and acc_norm equal those by transformers")
def hellaswag(server):
    with tempfile.TemporaryDirectory() as folder:
        loaded = tokenizer(folder)

    def fits(text):
        return len(loaded.encode(text)) < CONTEXT

    chosen = []
    for item, answer in zip(lines("hellaswag.jsonl"), EXPECTED["hellaswag"]["answers"]):
        if all(fits(f"{item['activity_label']}: {item['ctx']} {ending}") for ending in item["endings"]):
            # The published file has numbers, and the hub's copy texts; the loader wants one of them.
            chosen.append((item | {"label": int(item["label"])}, answer))
    assert len(chosen) >= 9, len(chosen)
    results, scores = evaluated(server, HELLASWAG, [item for item, _ in chosen])
    hits = {"acc": [], "acc_norm": []}
    for found, (_, answer) in zip(scores, chosen, strict=True):
        expected = answer["lm_evaluation_harness"]
        close([value for value, _ in found], expected["log_likelihoods"], 1e-4, "log-likelihoods")
        hits["acc"].append(expected["choice"] == answer["label"])
        hits["acc_norm"].append(expected["choice_norm"] == answer["label"])
    for metric, values in hits.items():
        equal(results[f"{metric},none"], sum(values) / len(values), metric)


@check("lambada: log-likelihoods, acc and perplexity equal those by transformers")
def lambada(server):
    expected = EXPECTED["lambada"]
    results, scores = evaluated(server, LAMBADA, lines("lambada.jsonl"))
    found = [pair for item in scores for pair in item]
    close([value for value, _ in found], [answer["log_likelihood"] for answer in expected["answers"]], 1e-4, "sums")
    equal([greedy for _, greedy in found], [answer["greedy"] for answer in expected["answers"]], "greedy")
    equal(results["acc,none"], expected["acc"], "acc")
    close([results["perplexity,none"]], [expected["perplexity"]], 1e-4 * expected["perplexity"], "perplexity")


def main():
    options = arguments(__doc__.splitlines()[0]).parse_args()
    with Server(options.binary, MODEL) as server:
        check.run(server)
    check.finish()


if __name__ == "__main__":
    main()
