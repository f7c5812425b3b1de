"""Tries emberlm on Hugging Face models of random configurations: reads, computes, exports, and compares with transformers.

    python random_models.py target/release/emberlm --seed 1 --count 120     (torch, transformers 5, safetensors)

Each model has random weights, is written by transformers in a random type and shard size, and computed by both in
float32 for up to 30 tokens. What emberlm exports is read by transformers again. It prints what is off by more than 1e-5
or refused, then the largest error (norm of the difference over the norm), and ends with 1 if there was any.
"""

import argparse
import pathlib
import random
import subprocess
import sys
import tempfile

import torch
import transformers
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

ACTIVATIONS = [
    "gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "gelu_python", "gelu_accurate", "relu", "relu2", "silu", "swish",
]
TYPES = [
    "gpt2", "gptj", "gpt_neox", "llama", "mistral", "qwen2", "qwen3", "gemma2", "mixtral", "qwen2_moe", "qwen3_moe",
    "olmoe",
]


def rope(rng):
    """None for the type's own default."""
    base = {"rope_theta": rng.choice([10000.0, 500.0, 1e6])}
    llama3 = {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": rng.choice([16, 32, 64]),
    }
    kinds = [{"rope_type": "default"}, {"rope_type": "linear", "factor": rng.choice([2.0, 3.5])}, llama3]
    return rng.choice([None, *(kind | base for kind in kinds)])


def experts(rng):
    """The experts of a token, and the number of all."""
    count = rng.choice([2, 3, 4, 7])
    return {"num_experts_per_tok": rng.choice([n for n in (1, 2, 3) if n <= count])}, count


def config(rng, types):
    kind = rng.choice(types)
    heads, head_dim, layers = rng.choice([1, 2, 3, 4, 6]), rng.choice([4, 6, 8, 10, 16]), rng.choice([1, 2, 3])
    common = {"vocab_size": rng.choice([17, 50, 129]), "tie_word_embeddings": rng.random() < 0.5}
    context, activation, epsilon = rng.choice([32, 64]), rng.choice(ACTIVATIONS), rng.choice([1e-3, 1e-5, 1e-6])
    if kind in ("gpt2", "gptj"):
        common |= {
            "n_positions": context, "n_embd": heads * head_dim, "n_head": heads, "n_layer": layers,
            "n_inner": rng.choice([None, 20]), "activation_function": activation, "layer_norm_epsilon": epsilon,
        }
        if kind == "gpt2":
            return transformers.GPT2Config(**common)
        return transformers.GPTJConfig(rotary_dim=rng.choice([d for d in (2, 4, head_dim) if d <= head_dim]), **common)
    positions = rope(rng)
    common |= {
        "max_position_embeddings": context, "num_attention_heads": heads, "num_hidden_layers": layers,
        "intermediate_size": rng.choice([20, 40]), "hidden_act": activation,
    }
    if kind == "gpt_neox":
        if positions:
            common["rope_parameters"] = positions | {"partial_rotary_factor": rng.choice([0.25, 0.5, 1.0])}
        return transformers.GPTNeoXConfig(
            hidden_size=heads * head_dim, layer_norm_eps=epsilon, use_parallel_residual=rng.random() < 0.5,
            attention_bias=rng.random() < 0.7, **common,
        )
    common |= {
        "num_key_value_heads": rng.choice([n for n in (1, 2, 3, 4, 6) if heads % n == 0]), "rms_norm_eps": epsilon,
        "hidden_size": heads * head_dim if kind == "llama" else rng.choice([12, 24, heads * head_dim]),
        "head_dim": rng.choice([head_dim, 12]),
    }
    if positions:
        common["rope_parameters"] = positions
    if kind == "llama":
        return transformers.LlamaConfig(attention_bias=rng.random() < 0.5, mlp_bias=rng.random() < 0.5, **common)
    if kind == "mistral":
        return transformers.MistralConfig(sliding_window=rng.choice([None, 3, 9, 100]), **common)
    if kind == "gemma2":
        common |= {"hidden_activation": common.pop("hidden_act"), "hidden_size": heads * rng.choice([4, head_dim])}
        return transformers.Gemma2Config(
            sliding_window=rng.choice([3, 9, 100]), query_pre_attn_scalar=rng.choice([4, 7, 144]),
            attn_logit_softcapping=rng.choice([None, 1.5, 50.0]), final_logit_softcapping=rng.choice([None, 2.0, 30.0]),
            attention_bias=rng.random() < 0.5, **common,
        )
    if kind == "mixtral":
        chosen, count = experts(rng)
        window = rng.choice([None, 3, 9, 100])
        return transformers.MixtralConfig(num_local_experts=count, sliding_window=window, **chosen, **common)
    if kind == "olmoe":
        del common["head_dim"]
        chosen, count = experts(rng)
        common["hidden_size"] = heads * head_dim
        return transformers.OlmoeConfig(
            num_experts=count, norm_topk_prob=rng.random() < 0.5, attention_bias=rng.random() < 0.5, **chosen, **common,
        )
    if kind == "qwen2_moe":
        del common["head_dim"]
        chosen, count = experts(rng)
        common["hidden_size"] = heads * head_dim
        return transformers.Qwen2MoeConfig(
            num_experts=count, norm_topk_prob=rng.random() < 0.5, qkv_bias=rng.random() < 0.5,
            moe_intermediate_size=rng.choice([8, 20]), shared_expert_intermediate_size=rng.choice([8, 12]),
            decoder_sparse_step=rng.choice([1, 1, 2]), mlp_only_layers=rng.choice([[], [0]]),
            use_sliding_window=rng.random() < 0.5, sliding_window=rng.choice([3, 8]), max_window_layers=rng.choice([1, 28]),
            **chosen, **common,
        )
    if kind == "qwen3_moe":
        chosen, count = experts(rng)
        return transformers.Qwen3MoeConfig(
            num_experts=count, norm_topk_prob=rng.random() < 0.5, attention_bias=rng.random() < 0.5,
            moe_intermediate_size=rng.choice([8, 20]), decoder_sparse_step=rng.choice([1, 1, 2]),
            mlp_only_layers=rng.choice([[], [0]]), use_sliding_window=rng.random() < 0.5, sliding_window=rng.choice([3, 8]),
            **chosen, **common,
        )
    common |= {
        "use_sliding_window": rng.random() < 0.6, "sliding_window": rng.choice([3, 8]),
        "max_window_layers": rng.choice([0, 1, 2]),
    }
    if kind == "qwen2":
        return transformers.Qwen2Config(**common)
    return transformers.Qwen3Config(attention_bias=rng.random() < 0.5, **common)


def loaded(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


def logits_of(model, ids):
    with torch.no_grad():
        return model(ids).logits[0]


def relative(found, expected):
    return ((found - expected).norm() / expected.norm()).item()


def try_one(binary, rng, types, folder):
    """The error of the logits, or a text on what went wrong."""
    made = AutoModelForCausalLM.from_config(config(rng, types), attn_implementation="eager").eval()
    for parameter in made.parameters():
        parameter.data.copy_(torch.randn_like(parameter) * (0.3 if parameter.dim() > 1 else 0.2))
    kind = rng.choice([torch.float32, torch.float32, torch.bfloat16, torch.float16])
    made.to(kind).save_pretrained(folder / "model", max_shard_size=rng.choice(["5GB", "5KB"]))
    ids = torch.randint(0, made.config.vocab_size, (1, rng.choice([1, 5, 30])))
    expected = logits_of(loaded(folder / "model"), ids)

    def run(*arguments):
        ran = subprocess.run([binary, *map(str, arguments)], capture_output=True, text=True)
        return ran.stderr.strip() if ran.returncode else None

    tokens = ",".join(map(str, ids[0].tolist()))
    refusal = run("logits", folder / "model", "--tokens", tokens, "--out", folder / "logits.safetensors")
    refusal = refusal or run("export", folder / "model", "--out", folder / "exported")
    if refusal:
        return f"{made.config.model_type}: {refusal}"
    error = relative(load_file(folder / "logits.safetensors")["logits"], expected)
    again = relative(logits_of(loaded(folder / "exported"), ids), expected)
    if error > 1e-5 or again > 1e-6:
        return f"{made.config.model_type}: logits {error:.1e}, exported {again:.1e}\n{made.config}"
    return error


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=120)
    parser.add_argument("--types", nargs="+", default=TYPES)
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    torch.manual_seed(arguments.seed)
    rng = random.Random(arguments.seed)
    errors, wrong = [], 0
    for _ in range(arguments.count):
        with tempfile.TemporaryDirectory() as folder:
            try:
                result = try_one(arguments.binary.resolve(), rng, arguments.types, pathlib.Path(folder))
            except (ValueError, RuntimeError, ZeroDivisionError) as refused:  # a configuration that transformers cannot run
                print("transformers:", str(refused).splitlines()[0][:120])
                continue
        if isinstance(result, float):
            errors.append(result)
        else:
            wrong += 1
            print(result)
    print(f"{len(errors)} models computed, {wrong} wrong or refused; the largest error is {max(errors, default=0):.1e}")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
