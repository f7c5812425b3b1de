"""Generation with transformers on PyTorch, the peer that ours is measured against: GPT-2 small with random weights.

    cargo xtask bench generate      (makes the environment; ours and this in turns)
    peer/bin/python xtask/peers/generate.py gpt2-small [--prompt 256] [--tokens 64] [--rounds 3]

The prompt in one pass, then the likeliest token one by one over the cache, without what `generate` does around each
token. Prints one JSON line: tokens/s of both, of median times, and the peak resident memory in MiB.
"""
import argparse, json, resource, sys, time
import torch, transformers

SHAPES = {"gpt2-small": dict(vocab_size=50257, n_positions=1024, n_embd=768, n_layer=12, n_head=12)}


def median(seconds):
    return sorted(seconds)[len(seconds) // 2]


@torch.inference_mode()
def once(model, prompt, tokens):
    """The seconds of the prompt's pass, and of each token after it."""
    seconds, ids, cache = [], prompt, None
    for _ in range(tokens + 1):
        start = time.perf_counter()
        made = model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
        ids, cache = made.logits[:, -1:].argmax(-1), made.past_key_values
        ids.tolist()
        seconds.append(time.perf_counter() - start)
    return seconds[0], seconds[1:]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("workload", choices=SHAPES)
    p.add_argument("--prompt", type=int, default=256)
    p.add_argument("--tokens", type=int, default=64)
    p.add_argument("--rounds", type=int, default=3)
    a = p.parse_args()
    torch.manual_seed(1)
    config = transformers.GPT2Config(**SHAPES[a.workload], bos_token_id=0, eos_token_id=0)
    model = transformers.GPT2LMHeadModel(config).eval()
    prompt = torch.randint(0, config.vocab_size, (1, a.prompt))
    once(model, prompt, a.tokens)
    prefills, tokens = [], []
    for _ in range(a.rounds):
        prefill, each = once(model, prompt, a.tokens)
        prefills.append(prefill)
        tokens += each
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({
        "peer": f"transformers {transformers.__version__}, torch {torch.__version__}",
        "workload": a.workload, "prompt": a.prompt, "tokens": a.tokens, "threads": torch.get_num_threads(),
        "parameters": sum(q.numel() for q in model.parameters()),
        "prefill_tokens_per_second": round(a.prompt / median(prefills), 1),
        "decode_tokens_per_second": round(1 / median(tokens), 1),
        # macOS tells bytes, Linux KiB.
        "peak_rss_mib": peak // (1 << 20 if sys.platform == "darwin" else 1 << 10),
    }))


if __name__ == "__main__":
    main()
