"""Python's tiktoken on the documents of a JSONL file, the peer that `emberlm prepare` is measured against.

    python3 -m venv peer && peer/bin/pip install tiktoken      (outside the repository)
    cargo xtask bench prepare --peer peer/bin/python      (both, in turns)
    peer/bin/python xtask/peers/tiktoken_prepare.py FOLDER FILE.jsonl [--tokenizer gpt2] [--threads 2] [--limit BYTES]

FOLDER holds OpenAI's rank files, as the tiktoken-rs crate carries them in assets/, so that nothing is downloaded.
Measured is `encode_ordinary_batch` alone, on texts that are in memory: no reading, no writing. Prints one JSON line.
"""
import argparse, json, pathlib, resource, time

import tiktoken, tiktoken.load
import tiktoken_ext.openai_public as public

ENCODINGS = {"gpt2": "r50k_base", "p50k": "p50k_base", "cl100k": "cl100k_base", "o200k": "o200k_base"}


def encoding(folder, name):
    # The constructor asks for a URL; the same file is read from the folder instead, hash check included.
    load = tiktoken.load.load_tiktoken_bpe
    public.load_tiktoken_bpe = lambda url, expected_hash: load(str(folder / url.rsplit("/", 1)[1]), expected_hash)
    return tiktoken.Encoding(**public.ENCODING_CONSTRUCTORS[ENCODINGS[name]]())


def texts(path, limit):
    found, size = [], 0
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            text = json.loads(line)["text"]
            size += len(text.encode("utf-8"))
            if size > limit:
                break
            found.append(text)
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--tokenizer", default="gpt2", choices=ENCODINGS)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--limit", type=int, default=1 << 62)
    args = parser.parse_args()
    made = encoding(args.folder, args.tokenizer)
    documents = texts(args.file, args.limit)
    made.encode_ordinary_batch(documents[:100], num_threads=args.threads)
    started = time.perf_counter()
    ids = made.encode_ordinary_batch(documents, num_threads=args.threads)
    seconds = time.perf_counter() - started
    print(json.dumps({
        "program": f"tiktoken {tiktoken.__version__} encode_ordinary_batch",
        "threads": args.threads,
        "documents": len(documents),
        "bytes": sum(len(text.encode("utf-8")) for text in documents),
        "tokens": sum(map(len, ids)),
        "seconds": round(seconds, 3),
        "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
    }))


main()
