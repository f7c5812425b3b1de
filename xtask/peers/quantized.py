"""Compares a directory that `emberlm export --weights int8` wrote with what transformers loads of it.

    python quantized.py EMBERLM DIR [DIR ...]        (transformers, torch, compressed-tensors, accelerate)

For each directory: the largest difference of the logits of eight tokens, over the largest logit. Exits with 1 if one is above
1e-5.
"""

import os
import subprocess
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers
from safetensors.torch import load_file

emberlm, *folders = sys.argv[1:]
worst = 0.0
for folder in folders:
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    ids = [(3 * place + 1) % model.config.vocab_size for place in range(8)]
    with torch.no_grad():
        expected = model(torch.tensor([ids])).logits[0]
    with tempfile.TemporaryDirectory() as scratch:
        out = os.path.join(scratch, "logits.safetensors")
        tokens = ",".join(map(str, ids))
        subprocess.run([emberlm, "logits", folder, "--tokens", tokens, "--out", out], check=True, stdout=subprocess.DEVNULL)
        found = load_file(out)["logits"]
    error = ((found - expected).abs().max() / expected.abs().max()).item()
    worst = max(worst, error)
    print(f"{folder}: {error:.1e}")
sys.exit(worst > 1e-5)
