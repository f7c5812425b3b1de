"""nanoGPT's recipe for Tiny Shakespeare's characters in PyTorch, evaluated as emberlm evaluates: the peer that the
character model's loss is measured against.

    peer/bin/python xtask/peers/torch_shakespeare.py tinyshakespeare.txt [--seed 1]

The model is train.py's `char`; first weights, decay groups, schedule, clip and random windows are nanoGPT's. Prints
the loss over the whole validation split in windows of 64, and nanoGPT's own estimate: 20 batches of random windows.
"""
import argparse, json, math
import torch, torch.nn as nn, torch.nn.functional as F
from train import SHAPES, Model

STEPS, WARMUP, PEAK, LEAST, WINDOW, BATCH = 2000, 100, 1e-3, 1e-4, 64, 12


def first_weights(model):
    for name, p in model.named_parameters():
        if p.dim() >= 2:
            residual = name.endswith(("out.weight", "down.weight"))
            nn.init.normal_(p, 0, 0.02 / math.sqrt(2 * len(model.blocks)) if residual else 0.02)


def rate(step):
    if step < WARMUP:
        return PEAK * (step + 1) / (WARMUP + 1)
    return LEAST + 0.5 * (1 + math.cos(math.pi * (step - WARMUP) / (STEPS - WARMUP))) * (PEAK - LEAST)


def windows(ids, starts):
    return (torch.stack([ids[i + d : i + d + WINDOW] for i in starts]) for d in (0, 1))


def loss(model, x, y):
    return F.cross_entropy(model(x).flatten(0, 1), y.flatten())


@torch.no_grad()
def over_all(model, ids):
    count = (len(ids) - 1) // WINDOW
    parts = torch.arange(count).mul(WINDOW).split(64)
    return sum(loss(model, *windows(ids, part)).item() * len(part) for part in parts) / count


@torch.no_grad()
def estimate(model, ids, batches=20):
    draws = (torch.randint(len(ids) - WINDOW, (BATCH,)) for _ in range(batches))
    return sum(loss(model, *windows(ids, draw)).item() for draw in draws) / batches


def main():
    p = argparse.ArgumentParser()
    p.add_argument("text")
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    torch.manual_seed(a.seed)
    text = open(a.text, encoding="utf-8").read()
    number = {c: i for i, c in enumerate(sorted(set(text)))}
    ids = torch.tensor([number[c] for c in text])
    train, val = ids.split([int(len(ids) * 0.9), len(ids) - int(len(ids) * 0.9)])
    model = Model(SHAPES["char"])
    first_weights(model)
    groups = [
        {"params": [q for q in model.parameters() if q.dim() >= 2], "weight_decay": 0.1},
        {"params": [q for q in model.parameters() if q.dim() < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=PEAK, betas=(0.9, 0.99), fused=True)
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        value = loss(model, *windows(train, torch.randint(len(train) - WINDOW, (BATCH,))))
        optimizer.zero_grad(set_to_none=True)
        value.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    print(json.dumps({
        "peer": f"torch {torch.__version__}",
        "seed": a.seed,
        "validation_loss": over_all(model, val),
        "estimate": estimate(model, val),
    }))


if __name__ == "__main__":
    main()
