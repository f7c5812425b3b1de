"""PyTorch twin of the training workloads, the peer that training speed is measured against.

    cargo xtask bench peers      (makes the environment; ours and this in turns)
    cargo xtask bench train --preset pocket --peer peer/bin/python      (one workload, with an environment of your own)
    peer/bin/python crates/cli/peers/train.py pocket [--compile] [--precision bf16] [--steps 6] [--batch 4] [--seq 256]
    peer/bin/python crates/cli/peers/train.py gpt2-small --device cuda --compile --precision bf16 --batch 12 --seq 1024

Workloads (forward, mean cross-entropy, backward, AdamW; float32, or products in bf16 by autocast; random token ids):
  char        vocab 65,    seq 64,  batch 12, 4 layers, 4 heads, width 128: nanoGPT's CPU Shakespeare model
              (LayerNorm without bias, learned positions, GELU, tied head)
  pocket      vocab 50257, seq 256, batch 4,  6 layers, 6 query / 2 key-value heads, width 384: PocketTransformer
              (parameter-free RMSNorm, half-split RoPE, grouped-query attention, squared ReLU, untied head)
  gpt2-small  vocab 50257, seq 64,  batch 4,  12 layers, 12 heads, width 768, context 1024: GPT-2
              (LayerNorm and maps with biases, learned positions, GELU's tanh form, tied head)
Prints one JSON line: tokens/s over the median step, seconds per step, peak resident memory in MiB.
"""
import argparse, contextlib, json, resource, sys, time
import torch, torch.nn as nn, torch.nn.functional as F

SHAPES = {
    "char": dict(vocab=65, seq=64, context=64, batch=12, width=128, layers=4, heads=4, kv_heads=4),
    "pocket": dict(vocab=50257, seq=256, context=256, batch=4, width=384, layers=6, heads=6, kv_heads=2, pocket=True),
    "gpt2-small": dict(
        vocab=50257, seq=64, context=1024, batch=4, width=768, layers=12, heads=12, kv_heads=12, bias=True, gelu="tanh"
    ),
}


class UnitRms(nn.Module):
    def forward(self, x):
        return x / (x.pow(2).mean(-1, keepdim=True).sqrt() + 1e-8)


def norm(c):
    return UnitRms() if c.get("pocket") else nn.LayerNorm(c["width"], bias=c.get("bias", False))


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c, self.pocket, self.head = c, c.get("pocket", False), c["width"] // c["heads"]
        w, kv, bias = c["width"], c["kv_heads"] * self.head, c.get("bias", False)
        self.qkv = nn.Linear(w, w + 2 * kv, bias=bias)
        self.out = nn.Linear(w, w, bias=bias)
        self.up, self.down = nn.Linear(w, 4 * w, bias=bias), nn.Linear(4 * w, w, bias=bias)
        self.norm1, self.norm2 = norm(c), norm(c)

    def forward(self, x, rope):
        b, t, w = x.shape
        h, kv, d = self.c["heads"], self.c["kv_heads"], self.head
        q, k, v = self.qkv(self.norm1(x)).split([w, kv * d, kv * d], -1)
        q, k, v = (z.view(b, t, -1, d).transpose(1, 2) for z in (q, k, v))
        if self.pocket:
            # Autocast leaves values in bf16, while angles in float32 would make the queries and keys float32.
            q, k = rotate(q, rope).to(v.dtype), rotate(k, rope).to(v.dtype)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=h != kv)
        x = x + self.out(a.transpose(1, 2).reshape(b, t, w))
        u = self.up(self.norm2(x))
        u = F.relu(u).square() if self.pocket else F.gelu(u, approximate=self.c.get("gelu", "none"))
        return x + self.down(u)


def rotate(x, rope):
    cos, sin = rope
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


class Model(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.pocket, w = c.get("pocket", False), c["width"]
        self.tokens = nn.Embedding(c["vocab"], w)
        self.blocks = nn.ModuleList(Block(c) for _ in range(c["layers"]))
        self.norm_in = UnitRms() if self.pocket else nn.Identity()
        self.norm_out = norm(c)
        self.head = nn.Linear(w, c["vocab"], bias=False)
        d = w // c["heads"]
        freq = 1 / 10000 ** (torch.arange(0, d, 2).float() / d)
        angle = torch.outer(torch.arange(c["seq"]).float(), freq).repeat(1, 2)
        self.register_buffer("cos", angle.cos()), self.register_buffer("sin", angle.sin())
        if not self.pocket:
            self.positions = nn.Embedding(c["context"], w)
            self.tokens.weight = self.head.weight

    def forward(self, ids):
        x = self.tokens(ids)
        if not self.pocket:
            x = x + self.positions.weight[: ids.shape[1]]
        x = self.norm_in(x)
        for block in self.blocks:
            x = block(x, (self.cos, self.sin))
        return self.head(self.norm_out(x))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("workload", choices=SHAPES)
    p.add_argument("--compile", action="store_true")
    p.add_argument("--precision", choices=["f32", "bf16", "f16"], default="f32")
    p.add_argument("--device", default="cpu")
    p.add_argument("--seq", type=int)
    p.add_argument("--steps", type=int)
    p.add_argument("--batch", type=int)
    a = p.parse_args()
    c = dict(SHAPES[a.workload])
    c["batch"], c["seq"] = a.batch or c["batch"], a.seq or c["seq"]
    torch.manual_seed(1)
    model = Model(c).to(a.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    run = torch.compile(model) if a.compile else model
    kind = {"f32": None, "bf16": torch.bfloat16, "f16": torch.float16}[a.precision]
    products = (lambda: torch.autocast(a.device.split(":")[0], dtype=kind)) if kind else contextlib.nullcontext
    # Does nothing but in f16.
    scaler = torch.amp.GradScaler(a.device.split(":")[0], enabled=a.precision == "f16")
    ids = torch.randint(0, c["vocab"], (c["batch"], c["seq"] + 1)).to(a.device)
    steps, seconds = a.steps or (100 if a.workload == "char" else 6), []
    for i in range(steps + 3):
        start = time.perf_counter()
        with products():
            loss = F.cross_entropy(run(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        loss.item()
        if i >= 3:
            seconds.append(time.perf_counter() - start)
    median = sorted(seconds)[len(seconds) // 2]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({
        "peer": f"torch {torch.__version__}" + (" compiled" if a.compile else "") + (f" {a.precision}" if kind else ""),
        "workload": a.workload, "batch": c["batch"], "threads": torch.get_num_threads(),
        "parameters": sum(q.numel() for q in model.parameters()),
        "tokens_per_second": round(c["batch"] * c["seq"] / median, 1),
        "seconds_per_step": round(median, 5),
        # macOS tells bytes, Linux KiB.
        "device_mib": torch.cuda.max_memory_reserved() >> 20 if a.device.startswith("cuda") else None,
        "peak_rss_mib": peak // (1 << 20 if sys.platform == "darwin" else 1 << 10),
    }))


if __name__ == "__main__":
    main()
