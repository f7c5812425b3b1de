"""Tries emberlm on encoders of random configurations: embeddings and labels of texts of unequal length, against transformers.

    python random_encoders.py target/release/emberlm --seed 1 --count 120     (torch, transformers 5, safetensors)

Each model (BERT, RoBERTa, XLM-RoBERTa, DistilBERT or ModernBERT, without a head, with a masked language model or with a
classifier) has random weights and is written by transformers in a random type and shard size. emberlm packs the texts without
padding; transformers computes each alone, in float32. It prints what is refused and what differs, then the counts and
the largest error of an embedding's element, and ends with 1 if there was any.
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

ACTIVATIONS = ["gelu", "relu", "gelu_new", "silu"]
LARGEST_ERROR = 1e-5


def config(rng):
    heads = rng.choice([1, 2, 4])
    width = heads * rng.choice([4, 8, 10])
    labels = rng.choice([1, 2, 3, 5])
    vocabulary, length = rng.choice([40, 65, 129]), rng.choice([24, 50])
    if rng.random() < 0.25:
        return transformers.DistilBertConfig(
            vocab_size=vocabulary, max_position_embeddings=length, sinusoidal_pos_embds=rng.random() < 0.3,
            n_layers=rng.randint(1, 3), n_heads=heads, dim=width, hidden_dim=rng.choice([12, 40]),
            activation=rng.choice(["gelu", "relu"]), num_labels=labels,
        )
    if rng.random() < 0.3:
        layers, flag = rng.randint(1, 4), [True, False]
        kinds = [rng.choice(["sliding_attention", "full_attention"]) for _ in range(layers)]
        thetas = {
            name: rng.choice([{"rope_type": "default"}, {"rope_type": "linear", "factor": 2.0}]) | {"rope_theta": theta}
            for name, theta in [("full_attention", rng.choice([160000.0, 500.0])), ("sliding_attention", 100.0)]
        }
        return transformers.ModernBertConfig(
            vocab_size=vocabulary, max_position_embeddings=length, hidden_size=width, num_attention_heads=heads,
            num_hidden_layers=layers, intermediate_size=rng.choice([12, 40]), hidden_activation=rng.choice(ACTIVATIONS),
            classifier_activation=rng.choice(ACTIVATIONS), local_attention=rng.choice([2, 6, 9, 100]),
            norm_bias=rng.choice(flag), attention_bias=rng.choice(flag), mlp_bias=rng.choice(flag),
            classifier_bias=rng.choice(flag), decoder_bias=rng.choice(flag), norm_eps=rng.choice([1e-12, 1e-5]),
            classifier_pooling=rng.choice(["cls", "mean"]), layer_types=rng.choice([None, kinds]),
            rope_parameters=rng.choice([None, thetas]), pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1,
            sep_token_id=2, num_labels=labels,
        )
    kind = rng.choice([transformers.BertConfig, transformers.RobertaConfig, transformers.XLMRobertaConfig])
    padding = 0 if kind is transformers.BertConfig else rng.choice([1, 0, 3])
    return kind(
        vocab_size=vocabulary, max_position_embeddings=length, hidden_size=width, num_hidden_layers=rng.randint(1, 3),
        num_attention_heads=heads, intermediate_size=rng.choice([12, 40]), hidden_act=rng.choice(ACTIVATIONS),
        type_vocab_size=rng.choice([1, 2]), layer_norm_eps=rng.choice([1e-12, 1e-5]), pad_token_id=padding,
        num_labels=labels,
    )


def build(config, rng):
    kind = rng.choice([
        transformers.AutoModel, transformers.AutoModelForMaskedLM, transformers.AutoModelForSequenceClassification,
    ])
    model = kind.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            norm = "norm" in name.lower() and name.endswith("weight")
            parameter.copy_(1 + 0.2 * torch.randn_like(parameter)) if norm else parameter.normal_(std=0.3)
    model.tie_weights()
    return model.to(rng.choice([torch.float32, torch.bfloat16, torch.float16])), kind


def tokenizer(size):
    return json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None, "decoder": None,
        "model": {"type": "WordLevel", "vocab": {f"w{i}": i for i in range(size)}, "unk_token": "w0"},
    })


def lines(emberlm, command, folder, texts):
    run = subprocess.run([emberlm, command, folder, "-"], input="\n".join(texts) + "\n", capture_output=True, text=True)
    if run.returncode:
        raise ValueError(run.stderr)
    return [json.loads(line) for line in run.stdout.splitlines()]


def compare(emberlm, folder, model, rng):
    """The largest error of an element of the embeddings. Raises ValueError for a refusal or another label."""
    config = model.config
    padding = config.pad_token_id if "roberta" in config.model_type else -1
    room = config.max_position_embeddings - (padding + 1)
    ids = [i for i in range(config.vocab_size) if i != padding]
    rows = [[rng.choice(ids) for _ in range(rng.randint(1, room))] for _ in range(rng.choice([1, 2, 7]))]
    texts = [" ".join(f"w{i}" for i in row) for row in rows]
    error = 0.0
    for row, found in zip(rows, lines(emberlm, "embed", folder, texts)):
        states = model.base_model(input_ids=torch.tensor([row])).last_hidden_state[0].double()
        mean = torch.nn.functional.normalize(states.mean(0), dim=0)
        error = max(error, (torch.tensor(found["embedding"], dtype=torch.float64) - mean).abs().max().item())
    if error > LARGEST_ERROR:
        raise ValueError(f"an embedding differs by {error:.1e}")
    if "SequenceClassification" in type(model).__name__:
        for row, found in zip(rows, lines(emberlm, "classify", folder, texts)):
            probabilities = model(input_ids=torch.tensor([row])).logits[0].double().softmax(-1)
            expected = probabilities[config.label2id[found["label"]]].item()
            if abs(found["probability"] - expected) > LARGEST_ERROR or expected < probabilities.max() - LARGEST_ERROR:
                raise ValueError(f"{found}, and transformers {probabilities.tolist()}")
    return error


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
    largest, wrong = 0.0, 0
    for number in range(args.count):
        with tempfile.TemporaryDirectory() as folder, torch.no_grad():
            built, kind = build(config(rng), rng)
            built.save_pretrained(folder, max_shard_size=rng.choice(["5GB", "20kB"]))
            (pathlib.Path(folder) / "tokenizer.json").write_text(tokenizer(built.config.vocab_size))
            model = kind.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval()
            try:
                largest = max(largest, compare(emberlm, folder, model, rng))
            except ValueError as error:
                wrong += 1
                print(f"model {number}, {type(model).__name__}: {error} {model.config}")
    print(f"{args.count} models, {wrong} wrong, largest error {largest:.1e}")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
