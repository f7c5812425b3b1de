"""Steps of LoRA with PEFT: finetune.py MODEL BATCH SEQ_LEN RANK STEPS. Prints a line of JSON per step."""

import json
import os
import sys
import time

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

folder = sys.argv[1]
batch, seq_len, rank, steps = map(int, sys.argv[2:])
torch.manual_seed(1)
model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", r=rank, lora_alpha=8)).train()
trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
optimizer = torch.optim.AdamW(trained, lr=2e-4)
vocabulary = model.config.vocab_size
for _ in range(steps):
    ids = torch.randint(0, vocabulary, (batch, seq_len + 1))
    begun = time.perf_counter()
    logits = model(input_ids=ids[:, :-1]).logits
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, vocabulary), ids[:, 1:].reshape(-1))
    loss.backward()
    torch.nn.utils.clip_grad_norm_(trained, 1.0)
    optimizer.step()
    optimizer.zero_grad()
    print(json.dumps({"tokens_per_second": batch * seq_len / (time.perf_counter() - begun)}), flush=True)
