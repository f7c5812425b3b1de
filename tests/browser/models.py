"""The models of the playground's tests: encoders and an encoder–decoder with random weights, and one that has learned a few answers."""

import json
import shutil
import struct
from pathlib import Path

from support import run, trained

FIXTURES = Path(__file__).parents[2] / "crates/model/tests/fixtures"

# What the chat model has learned.
ASKED, THOUGHT, FOUND = "What did the fox find?", "The tale has a bell.", "A silver bell."
WEATHER, CITY, RESULT, TOLD = "What is the weather?", "Oslo", "18 degrees, sunny", "It is sunny in Oslo."
CALL = json.dumps({"name": "get_weather", "arguments": {"city": CITY}})
LEARNED = [
    f"Q:{ASKED}\nA:<think>\n{THOUGHT}\n</think>\n\n{FOUND}",
    f"Q:{ASKED}\nB:{FOUND}",
    f"Q:{WEATHER}\nC:<tool_call>\n{CALL}\n</tool_call>",
    f"Q:{RESULT}\nD:{TOLD}",
]
# The letter before an answer says what kind of answer is wanted, which so small a model learns in seconds. The branch that is
# not taken has the tags of reasoning, and of calls as Hermes writes them.
TEMPLATE = (
    "{%- set last = messages[-1] -%}"
    "{%- set thinks = enable_thinking is not defined or enable_thinking -%}"
    "{%- if false -%}<think></think><tool_call>{{ last.tool_calls }}</tool_call>{%- endif -%}"
    "Q:{{ last.content }}\n{{ 'D:' if last.role == 'tool' else 'C:' if tools else 'A:' if thinks else 'B:' }}"
)


def conversing(binary, at):
    """A run that has learned the answers, and an adapter of it. Writes the template."""
    (at / "chat.jinja").write_text(TEMPLATE)
    (at / "talks.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in LEARNED * 200))
    run(binary, "prepare", "--out", "talks-data", "--tokenizer", "byte", "talks.jsonl", at=at)
    talks = trained(binary, at, "talks", 400, 1, data="talks-data")
    run(binary, "train", "--from", talks, "--data", "talks-data", "--out", "polite", "--steps", 1, "--adapter", "lora", at=at)
    return talks, at / "polite"


def tokenizer(vocab_size, end):
    """A tokenizer whose words are `w0`, `w1` and so on. `end` is the id of the token that ends a text; None without one."""
    vocab = {f"w{number}": number for number in range(vocab_size)}
    made = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None, "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "w0"},
    }
    if end is not None:
        del vocab[f"w{end}"]
        vocab["</s>"] = end
        text, special = {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}
        made["post_processor"] = {
            "type": "TemplateProcessing", "single": [text, special], "pair": [text, {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {"</s>": {"id": "</s>", "ids": [end], "tokens": ["</s>"]}},
        }
        made["added_tokens"] = [{"id": end, "content": "</s>", "single_word": False, "lstrip": False, "rstrip": False,
                                 "normalized": False, "special": True}]
    return json.dumps(made)


def fixture(source, folder, vocab_size, end=None):
    """A model of the tests of crates/model with a tokenizer."""
    folder.mkdir()
    for file in ["config.json", "model.safetensors"]:
        shutil.copy(FIXTURES / source / file, folder)
    (folder / "tokenizer.json").write_text(tokenizer(vocab_size, end))
    return folder


def with_one_label(folder):
    """Makes a classifier a cross-encoder by keeping its first label only."""
    config = json.loads((folder / "config.json").read_text())
    config |= {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}
    (folder / "config.json").write_text(json.dumps(config))
    path = folder / "model.safetensors"
    content = path.read_bytes()
    length = struct.unpack("<Q", content[:8])[0]
    head, data = json.loads(content[8:8 + length]), content[8 + length:]
    kept, place = b"", {}
    for name, tensor in head.items():
        if name == "__metadata__":
            continue
        begin, end = tensor["data_offsets"]
        if name.startswith("classifier."):
            end = begin + (end - begin) // tensor["shape"][0]
            tensor["shape"][0] = 1
        place[name] = {**tensor, "data_offsets": [len(kept), len(kept) + end - begin]}
        kept += data[begin:end]
    written = json.dumps(place).encode()
    path.write_bytes(struct.pack("<Q", len(written)) + written + kept)
    return folder


def all_kinds(binary, at):
    """A model of each kind by name."""
    talks, polite = conversing(binary, at)
    return {
        "talks": talks,
        "polite": polite,
        "t5": fixture("encoder_decoder/t5-untied", at / "t5", 67, end=1),
        "classifier": fixture("encoders/distilbert-sequence", at / "classifier", 59),
        "reranker": with_one_label(fixture("encoders/distilbert-sequence", at / "reranker", 59)),
    }
