"""Embeddings with sentence-transformers on PyTorch, or with onnxruntime, the peers that ours are measured against.

    cargo xtask bench embed MODEL      (makes the environment; ours and these in turns)
    peer/bin/python xtask/peers/embed.py onnxruntime MODEL TEXTS.txt [--threads 2] [--rounds 3] [--onnx model.onnx]

Measured is the time from texts to vectors, after one warm-up: tokenizing, the encoder, mean pooling, normalization.
Both sort texts by length and pad within batches of 32. Prints one JSON line; with --vectors, a file of f32 numbers,
also the largest absolute difference from it.
"""
import argparse, json, os, pathlib, resource, time

BATCH = 32


def arguments():
    p = argparse.ArgumentParser()
    p.add_argument("program", choices=["sentence-transformers", "onnxruntime"])
    p.add_argument("model", type=pathlib.Path)
    p.add_argument("texts", type=pathlib.Path)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--onnx", type=pathlib.Path, default="model.onnx")
    p.add_argument("--vectors", type=pathlib.Path)
    return p.parse_args()


def sentence_transformers(a):
    import sentence_transformers
    import torch

    torch.set_num_threads(a.threads)
    model = sentence_transformers.SentenceTransformer(str(a.model), device="cpu")
    name = f"sentence-transformers {sentence_transformers.__version__}, torch {torch.__version__}"
    return name, lambda texts: model.encode(texts, batch_size=BATCH, normalize_embeddings=True)


def export(a):
    """The encoder's states as an ONNX file, written once."""
    import torch
    import transformers

    model = transformers.AutoModel.from_pretrained(a.model, attn_implementation="eager").eval()

    class States(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, input_ids, attention_mask):
            return self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state

    ids, mask = torch.ones(2, 8, dtype=torch.int64), torch.ones(2, 8, dtype=torch.int64)
    # With ones only, the exported model would ignore its mask.
    mask[1, 5:] = 0
    axes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("seq")}
    torch.onnx.export(States().eval(), (ids, mask), str(a.onnx), dynamo=True, external_data=False,
                      input_names=["input_ids", "attention_mask"], dynamic_shapes=(axes, axes))


def onnxruntime(a):
    import numpy
    import onnxruntime
    import tokenizers

    if not a.onnx.exists():
        export(a)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = a.threads
    session = onnxruntime.InferenceSession(str(a.onnx), options, providers=["CPUExecutionProvider"])
    tokenizer = tokenizers.Tokenizer.from_file(str(a.model / "tokenizer.json"))
    limit = json.loads((a.model / "sentence_bert_config.json").read_text())["max_seq_length"]
    tokenizer.enable_truncation(limit)
    tokenizer.enable_padding()

    def embed(texts):
        order = sorted(range(len(texts)), key=lambda i: -len(texts[i]))
        vectors = [None] * len(texts)
        for start in range(0, len(order), BATCH):
            batch = order[start:start + BATCH]
            encoded = tokenizer.encode_batch([texts[i] for i in batch])
            ids = numpy.array([it.ids for it in encoded], dtype=numpy.int64)
            mask = numpy.array([it.attention_mask for it in encoded], dtype=numpy.int64)
            states, = session.run(None, {"input_ids": ids, "attention_mask": mask})
            weights = mask[..., None].astype(numpy.float32)
            means = (states * weights).sum(1) / weights.sum(1)
            means /= numpy.linalg.norm(means, axis=1, keepdims=True)
            for i, mean in zip(batch, means):
                vectors[i] = mean
        return numpy.stack(vectors)

    return f"onnxruntime {onnxruntime.__version__}", embed


def main():
    a = arguments()
    os.environ["OMP_NUM_THREADS"] = str(a.threads)
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    texts = a.texts.read_text(encoding="utf-8").splitlines()
    name, embed = {"sentence-transformers": sentence_transformers, "onnxruntime": onnxruntime}[a.program](a)
    vectors = embed(texts)
    seconds = []
    for _ in range(a.rounds):
        start = time.perf_counter()
        embed(texts)
        seconds.append(time.perf_counter() - start)
    line = {
        "program": name,
        "texts": len(texts),
        "texts_per_second": round(len(texts) / sorted(seconds)[len(seconds) // 2], 1),
        "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
    }
    if a.vectors:
        import numpy

        ours = numpy.fromfile(a.vectors, dtype="<f4").reshape(len(texts), -1)
        line["difference"] = float(abs(ours - vectors).max())
    print(json.dumps(line))


if __name__ == "__main__":
    main()
