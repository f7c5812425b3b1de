"""Tries emberlm on T5 and mT5 directories of random configurations: greedy targets and beam searches, against transformers.

    python random_encoder_decoders.py target/release/emberlm --seed 1 --count 120     (torch, transformers 5, safetensors)

Each model has random weights, is written by transformers in a random type and shard size, and generated from by both in
float32. A target that differs from transformers' is computed by transformers again: two targets whose scores differ by
less than 1e-5 are a tie. It prints what differs otherwise or is refused, then the counts, and ends with 1 if there was
any.
"""

import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import torch
import transformers

ACTIVATIONS = ["relu", "gelu", "gelu_new", "silu", "gated-gelu", "gated-silu", "gated-relu", "gated-gelu_new"]


def config(rng):
    layers = rng.choice([1, 2, 3])
    buckets = rng.choice([4, 5, 8, 15, 32])
    kind = rng.choice([transformers.T5Config, transformers.T5Config, transformers.MT5Config])
    return kind(
        vocab_size=rng.choice([40, 65, 129]), d_model=rng.choice([8, 20, 32]), d_kv=rng.choice([4, 6, 10]),
        d_ff=rng.choice([12, 40]), num_layers=layers, num_decoder_layers=rng.randint(1, 3), num_heads=rng.randint(1, 5),
        relative_attention_num_buckets=buckets, relative_attention_max_distance=rng.randint(buckets // 2 + 1, 130),
        feed_forward_proj=rng.choice(ACTIVATIONS), layer_norm_epsilon=rng.choice([1e-3, 1e-6]),
        tie_word_embeddings=rng.random() < 0.5, decoder_start_token_id=rng.choice([0, 0, 5]), pad_token_id=0,
        eos_token_id=1,
    )


def build(config, rng):
    kind = transformers.T5ForConditionalGeneration if config.model_type == "t5" else transformers.MT5ForConditionalGeneration
    model = kind._from_config(config, attn_implementation="eager").eval()
    untied = rng.random() < 0.5
    if untied:
        model.lm_head.weight = torch.nn.Parameter(torch.zeros(config.vocab_size, config.d_model))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "layer_norm" in name:
                parameter.copy_(1 + 0.2 * torch.randn_like(parameter))
            elif "relative" in name:
                parameter.normal_()
            elif name == "shared.weight":
                parameter.normal_(std=1.0 if untied else 0.4)
            else:
                parameter.normal_(std=1.2 * parameter.shape[1] ** -0.5 / (config.d_kv ** 0.25 if ".q." in name else 1))
    return model.to(rng.choice([torch.float32, torch.bfloat16, torch.float16])), kind


def score(model, source, target, penalty):
    """Of a target with its end, as a beam search scores it."""
    start = model.config.decoder_start_token_id
    logits = model(input_ids=source, decoder_input_ids=torch.tensor([[start, *target[:-1]]])).logits[0]
    logprobs = logits.double().log_softmax(-1)[torch.arange(len(target)), torch.tensor(target)]
    return (logprobs.sum() / len(target) ** penalty).item()


def compare(emberlm, folder, model, rng):
    """The message of a difference, "tie", or none."""
    source = [rng.randrange(2, model.config.vocab_size) for _ in range(rng.choice([1, 3, 9, 40]))]
    beams, penalty, tokens = rng.randint(1, 6), rng.choice([1.0, 0.6, 2.0, 0.0, -0.5]), rng.choice([1, 4, 20])
    command = [emberlm, "generate", folder, "--tokens", ",".join(map(str, source)), "--json", "--max-new-tokens", str(tokens)]
    if beams > 1:
        command += ["--beams", str(beams), "--length-penalty", str(penalty)]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode:
        return f"{command}: {run.stderr}"
    answer = json.loads(run.stdout)
    found = answer["tokens"] + ([1] if answer["finish"] == "stop" else [])
    ids = torch.tensor([source])
    expected = model.generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=False, use_cache=False, num_beams=beams, max_new_tokens=tokens,
        **({"length_penalty": penalty, "early_stopping": False} if beams > 1 else {}),
    )[0, 1:].tolist()
    if found == expected:
        return None
    if beams == 1:
        at = next((i for i, (a, b) in enumerate(zip(found, expected)) if a != b), min(len(found), len(expected)) - 1)
        found, expected, penalty = found[: at + 1], expected[: at + 1], 0.0
    scores = [score(model, ids, target, penalty) for target in (found, expected)]
    if abs(scores[0] - scores[1]) < 1e-5 * max(1, abs(scores[1])):
        return "tie"
    return f"{model.config.model_type} {beams} beams, penalty {penalty}, {tokens} tokens: {found} {expected}, scores {scores}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("emberlm")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=120)
    args = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    emberlm = str(pathlib.Path(args.emberlm).resolve())
    rng = random.Random(args.seed)
    torch.manual_seed(args.seed)
    searches, ties, wrong = 0, 0, 0
    for number in range(args.count):
        with tempfile.TemporaryDirectory() as folder:
            built, kind = build(config(rng), rng)
            built.save_pretrained(folder, max_shard_size=rng.choice(["5GB", "20kB"]))
            (pathlib.Path(folder) / "generation_config.json").unlink(missing_ok=True)
            model = kind.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval()
            for _ in range(3):
                with torch.no_grad():
                    message = compare(emberlm, folder, model, rng)
                searches += 1
                ties += message == "tie"
                if message and message != "tie":
                    wrong += 1
                    print(f"model {number}: {message}")
    print(f"{args.count} models, {searches} targets, {ties} ties, {wrong} differ")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
