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
# below it, transformers takes the short factors
LONG_ORIGINAL = 4
TYPES = [
    "gpt2", "gptj", "gpt_neox", "llama", "mistral", "qwen2", "qwen3", "gemma2", "mixtral", "qwen2_moe", "qwen3_moe",
    "olmoe", "olmo2", "olmo3", "smollm3", "phi3", "granite", "gemma3_text", "starcoder2", "cohere", "glm4", "bloom",
    "falcon", "gpt_oss", "qwen3_next", "qwen3_5_text", "deepseek_v2", "deepseek_v3", "glm4_moe", "glm4_moe_lite",
]


def rope(rng):
    """None for the type's own default."""
    base = {"rope_theta": rng.choice([10000.0, 500.0, 1e6])}
    llama3 = {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": rng.choice([16, 32, 64]),
    }
    yarn = {
        "rope_type": "yarn", "factor": rng.choice([2.0, 8.0]), "beta_fast": rng.choice([32.0, 4.0]),
        "beta_slow": rng.choice([1.0, 0.25]), "truncate": rng.random() < 0.5,
        "original_max_position_embeddings": rng.choice([16, 32]),
    }
    yarn |= rng.choice([{}, {"attention_factor": 1.3}, {"mscale": 1.0, "mscale_all_dim": 0.5}])
    kinds = [
        {"rope_type": "default"}, {"rope_type": "linear", "factor": rng.choice([2.0, 3.5])}, llama3, yarn,
        {"rope_type": "dynamic", "factor": rng.choice([2.0, 4.0])},
    ]
    return rng.choice([None, *(kind | base for kind in kinds)])


def longrope(rng, head_dim, context):
    """Fields of a scaling whose short factors, or whose long ones, are those of every text."""
    fraction = rng.choice([0.5, 1.0])
    factors = [[rng.choice([1.0, 1.25, 3.0]) for _ in range(int(head_dim * fraction) // 2)] for _ in range(2)]
    scaling = {"rope_type": "longrope", "rope_theta": 500.0, "partial_rotary_factor": fraction}
    scaling |= {"short_factor": factors[0], "long_factor": factors[1]}
    scaling |= rng.choice([{}, {"attention_factor": 1.3}, {"factor": 4.0}])
    return {"rope_parameters": scaling, "original_max_position_embeddings": rng.choice([LONG_ORIGINAL, context])}


def experts(rng):
    """The experts of a token, and the number of all."""
    count = rng.choice([2, 3, 4, 7])
    return {"num_experts_per_tok": rng.choice([n for n in (1, 2, 3) if n <= count])}, count


def either(rng, **more):
    """Each of some fields set to one of its values, or left out."""
    return {name: rng.choice(values) for name, values in more.items() if rng.random() < 0.8}


def delta_nets(kind, rng, common):
    """Types with gated delta nets in some layers. By default a quarter of a head is rotated."""
    layers, head_dim = common["num_hidden_layers"], common["head_dim"]
    rotated = common.get("rope_parameters") or {"rope_type": "default"}
    rotated["partial_rotary_factor"] = rng.choice([0.5, 1.0] if head_dim % 4 == 0 and head_dim > 4 else [1.0])
    common["rope_parameters"] = rotated
    common["hidden_act"] = rng.choice(["silu", "swish"])
    key_heads = rng.choice([1, 2, 3])
    mixed = [rng.choice(["linear_attention", "full_attention"]) for _ in range(layers)]
    common |= {
        "linear_num_key_heads": key_heads, "linear_num_value_heads": key_heads * rng.choice([1, 2, 3]),
        "linear_key_head_dim": rng.choice([2, 5, 8]), "linear_value_head_dim": rng.choice([1, 4, 9]),
        "layer_types": rng.choice([None, mixed]),
    }
    common |= either(rng, linear_conv_kernel_dim=[2, 3, 5], attention_bias=[True, False])
    if kind == "qwen3_5_text":
        return transformers.Qwen3_5TextConfig(**common)
    chosen, count = experts(rng)
    some = either(rng, norm_topk_prob=[True, False], mlp_only_layers=[[0], [1]], decoder_sparse_step=[1, 2])
    return transformers.Qwen3NextConfig(
        num_experts=count, moe_intermediate_size=rng.choice([8, 20]),
        shared_expert_intermediate_size=rng.choice([4, 12]), **chosen, **some, **common,
    )


def grouped_experts(rng):
    """Experts in groups, of which enough take part, beside a shared one."""
    groups, of_group = rng.choice([1, 1, 2, 3]), rng.choice([2, 3])
    active_groups = rng.choice([n for n in (1, 2) if n <= groups])
    return {
        "n_group": groups, "topk_group": active_groups, "n_routed_experts": groups * of_group,
        "num_experts_per_tok": rng.choice([n for n in (1, 2, 4) if n <= active_groups * of_group]),
        "moe_intermediate_size": rng.choice([8, 20]), "n_shared_experts": rng.choice([1, 2]),
        "routed_scaling_factor": rng.choice([1.0, 2.446, 16.0]),
    }


def latents(kind, rng, common):
    """Types with latent attention or with DeepSeek-V3's experts."""
    layers, flag = common["num_hidden_layers"], [True, False]
    common |= grouped_experts(rng)
    if kind == "deepseek_v2":
        common["topk_method"] = "greedy" if common["n_group"] == 1 else rng.choice(["greedy", "group_limited_greedy"])
    else:
        common |= either(rng, norm_topk_prob=flag)
    if kind == "glm4_moe_lite":
        common["mlp_layer_types"] = rng.choice([None, [rng.choice(["dense", "sparse"]) for _ in range(layers)]])
    else:
        common |= either(rng, first_k_dense_replace=[0, 1])
    if kind == "glm4_moe":
        return transformers.Glm4MoeConfig(**common, **either(rng, attention_bias=flag, use_qk_norm=flag), num_mtp_layers=0)
    del common["head_dim"]
    common["hidden_size"] = common["num_attention_heads"] * rng.choice([4, 6])
    common |= {
        "num_key_value_heads": common["num_attention_heads"], "q_lora_rank": rng.choice([None, 5, 12]),
        "kv_lora_rank": rng.choice([3, 8, 14]), "qk_nope_head_dim": rng.choice([2, 5, 8]),
        "qk_rope_head_dim": rng.choice([2, 4, 6]), "v_head_dim": rng.choice([3, 8, 20]),
    }
    common["attention_bias"] = common["q_lora_rank"] is not None and rng.random() < 0.5
    if kind == "deepseek_v2":
        return transformers.DeepseekV2Config(**common)
    common |= either(rng, rope_interleave=flag)
    if kind == "glm4_moe_lite":
        return transformers.Glm4MoeLiteConfig(**common)
    return transformers.DeepseekV3Config(**common, num_mtp_layers=0)


def newer(kind, rng, common, heads, head_dim):
    """The types since OLMo 2; `common` has LLaMA's fields."""
    layers = common["num_hidden_layers"]
    flag = [True, False]
    mixed = [rng.choice(["sliding_attention", "full_attention"]) for _ in range(layers)]
    if kind in ("olmo3", "gemma3_text"):
        full = common.pop("rope_parameters", None) or {"rope_type": "default"}
        full.pop("truncate", None)  # transformers looks for it in the wrong place
        sliding = rng.choice([{"rope_type": "default"}, {"rope_type": "linear", "factor": 2.0, "rope_theta": 700.0}])
        common |= {"rope_parameters": {"full_attention": full, "sliding_attention": sliding}, "layer_types": mixed}
        common |= {"sliding_window": rng.choice([3, 9, 100]), "attention_bias": rng.random() < 0.5}
    if kind == "gemma3_text":
        common |= {"hidden_activation": common.pop("hidden_act"), "hidden_size": heads * rng.choice([4, head_dim])}
        common |= either(rng, query_pre_attn_scalar=[4, 7, 144], final_logit_softcapping=[None, 2.0, 30.0])
        return transformers.Gemma3TextConfig(**common)
    if kind == "gpt_oss":
        del common["hidden_act"]
        chosen, count = experts(rng)
        return transformers.GptOssConfig(
            num_local_experts=count, layer_types=rng.choice([None, mixed]), **chosen, **common,
            **either(rng, sliding_window=[3, 9, 100], attention_bias=flag),
        )
    if kind in ("qwen3_next", "qwen3_5_text"):
        return delta_nets(kind, rng, common)
    if kind in ("deepseek_v2", "deepseek_v3", "glm4_moe", "glm4_moe_lite"):
        return latents(kind, rng, common)
    if kind == "glm4":
        return transformers.Glm4Config(**common, **either(rng, attention_bias=flag))
    del common["head_dim"]
    common["hidden_size"] = heads * head_dim
    if kind == "olmo2":
        return transformers.Olmo2Config(**common, **either(rng, attention_bias=flag))
    if kind == "olmo3":
        return transformers.Olmo3Config(**common)
    if kind == "smollm3":
        some = rng.choice([{}, {"no_rope_layer_interval": 2}, {"no_rope_layers": [rng.choice([0, 1]) for _ in range(layers)]}])
        return transformers.SmolLM3Config(**common, **some, **either(rng, attention_bias=flag, mlp_bias=flag))
    if kind == "granite":
        factors = either(
            rng, embedding_multiplier=[12.0, 3], attention_multiplier=[0.2, 0.0078125], residual_multiplier=[0.22, 1.5],
            logits_scaling=[8.0, 3.0, 0.7],
        )
        return transformers.GraniteConfig(**common, **factors, **either(rng, attention_bias=flag, mlp_bias=flag))
    if kind == "phi3":
        return transformers.Phi3Config(**common, sliding_window=rng.choice([None, 3, 9, 100]))
    epsilon = common.pop("rms_norm_eps")
    if kind == "starcoder2":
        some = either(rng, use_bias=flag, sliding_window=[None, 3, 9, 100], norm_epsilon=[epsilon])
        return transformers.Starcoder2Config(**common, **some)
    if kind == "cohere":
        some = either(rng, attention_bias=flag, logit_scale=[0.0625, 1.0, 3.3], layer_norm_eps=[epsilon])
        return transformers.CohereConfig(**common, **some)
    names = ["vocab_size", "tie_word_embeddings", "hidden_size", "num_hidden_layers", "num_attention_heads", "pad_token_id"]
    some = {name: common[name] for name in names} | either(rng, layer_norm_epsilon=[epsilon])
    if kind == "bloom":
        return transformers.BloomConfig(**some, seq_length=common["max_position_embeddings"])
    some |= {"max_position_embeddings": common["max_position_embeddings"], "activation": common["hidden_act"]}
    some |= {name: common[name] for name in ["rope_parameters"] if name in common}
    some |= either(rng, bias=flag, ffn_hidden_size=[20, 40])
    if rng.random() < 0.5:
        some |= {"new_decoder_architecture": True, "num_kv_heads": common["num_key_value_heads"]}
        return transformers.FalconConfig(**some, **either(rng, num_ln_in_parallel_attn=[1, 2]))
    return transformers.FalconConfig(**some, **either(rng, multi_query=flag, parallel_attn=flag))


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
    if kind in TYPES[TYPES.index("olmo2"):]:
        if kind in ("glm4", "phi3"):
            common["head_dim"] = head_dim = rng.choice([4, 8, 16])
            positions = {"rope_type": "default", "rope_theta": 500.0} if kind == "phi3" else positions
            if positions:
                common["rope_parameters"] = positions | {"partial_rotary_factor": rng.choice([0.5, 1.0])}
            if kind == "phi3" and rng.random() < 0.6:
                common |= longrope(rng, head_dim, context)
        return newer(kind, rng, common | {"pad_token_id": None}, heads, head_dim)
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
        return model(ids, use_cache=False).logits[0]


def relative(found, expected):
    return ((found - expected).norm() / expected.norm()).item()


def try_one(binary, rng, types, folder):
    """The error of the logits, or a text on what went wrong."""
    made = AutoModelForCausalLM.from_config(config(rng, types), attn_implementation="eager").eval()
    for parameter in made.parameters():
        parameter.data.copy_(torch.randn_like(parameter) * (0.3 if parameter.dim() > 1 else 0.2))
    for name, buffer in made.named_buffers():
        if name.endswith("e_score_correction_bias"):
            buffer.copy_(torch.randn_like(buffer) * 0.2)
    kind = rng.choice([torch.float32, torch.float32, torch.bfloat16, torch.float16])
    made.to(kind).save_pretrained(folder / "model", max_shard_size=rng.choice(["5GB", "5KB"]))
    is_long = getattr(made.config, "original_max_position_embeddings", None) == LONG_ORIGINAL
    ids = torch.randint(0, made.config.vocab_size, (1, rng.choice([5, 30] if is_long else [1, 5, 30])))
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
    parser.add_argument("--types", nargs="+", choices=TYPES, default=TYPES)
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
