"""The official `ollama` client against the real server.

`python tests/clients/ollama_client.py --binary target/debug/emberlm --model RUN`, as `cargo xtask test-clients` runs it,
where RUN is of a byte tokenizer.
"""

import json
import tempfile
from pathlib import Path

import ollama

from served import Binary, Checks, Server, arguments, close, equal
from tools import PARAMETERS, TEMPLATE, TOOLS

MESSAGES = [{"role": "user", "content": "3 and 4 make"}]
OPTIONS = {"temperature": 0, "num_predict": 40, "num_ctx": 512}

check = Checks()


@check("generate: raw text is `emberlm generate`'s, streamed or not")
def raw(client, binary):
    expected = binary.generate("3 and 4 make", "--max-new-tokens", 40)["text"]
    options = {"model": client.name, "prompt": "3 and 4 make", "raw": True, "options": OPTIONS}
    whole = client.generate(**options)
    equal((whole.response, whole.done), (expected, True), "the text")
    assert whole.eval_count == 40 and whole.total_duration > 0, whole
    parts = list(client.generate(stream=True, **options))
    equal("".join(part.response for part in parts), expected, "the streamed text")
    equal([part.done for part in parts], [False] * (len(parts) - 1) + [True], "done")


@check("chat: a stream adds up to the answer, and an answer can be sent back")
def chat(client, _binary):
    options = {"model": client.name, "options": OPTIONS, "keep_alive": "5m"}
    whole = client.chat(messages=MESSAGES, **options)
    parts = list(client.chat(messages=MESSAGES, stream=True, **options))
    equal("".join(part.message.content for part in parts), whole.message.content, "the text")
    rounds = [*MESSAGES, whole.message, {"role": "user", "content": "and?"}]
    assert client.chat(messages=rounds, **options).prompt_eval_count > whole.prompt_eval_count


@check("chat: tools and two rounds")
def tools(client, _binary):
    described = [{"type": "function", "function": tool["function"] | {"strict": None}} for tool in TOOLS]
    options = {"model": client.name, "options": OPTIONS, "tools": described}
    assert client.chat(messages=MESSAGES, **options).done
    call = {"function": {"name": "find", "arguments": {"animal": "hare", "steps": 3}}}
    rounds = [
        *MESSAGES,
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "content": "there", "tool_name": "find"},
    ]
    assert client.chat(messages=rounds, **options).done


@check("chat: the form of the answer is a schema's")
def structured(client, _binary):
    told = client.chat(model=client.name, messages=MESSAGES, format=PARAMETERS, options=OPTIONS | {"num_predict": 100})
    found = json.loads(told.message.content)
    assert found["animal"] in ("🐢", "hare") and 0 <= found["steps"] <= 99, found


@check("embeddings: of several texts, and of one")
def embeddings(client, _binary):
    told = client.embed(model=client.name, input=["3 and", "said the"])
    equal([len(vector) for vector in told.embeddings], [64, 64], "the lengths")
    one = client.embeddings(model=client.name, prompt="said the").embedding
    close(list(one), list(told.embeddings[1]), 1e-5, "of one text")


@check("models: they are listed, described and there")
def models(client, _binary):
    equal([model.model for model in client.list().models], [client.name], "the models")
    equal([model.model for model in client.ps().models], [client.name], "those that run")
    shown = client.show(client.name)
    assert "completion" in shown.capabilities and "tools" in shown.capabilities, shown
    equal(client.pull(client.name).status, "success", "pull")
    equal([part.status for part in client.pull(client.name, stream=True)][-1], "success", "pull, streamed")


@check("errors: they are the client's")
def errors(client, _binary):
    for status, call in [
        (404, lambda: client.chat(model="nobody", messages=MESSAGES)),
        (404, lambda: client.show("nobody")),
        (400, lambda: client.chat(model=client.name, messages=MESSAGES, options={"temprature": 1})),
    ]:
        try:
            call()
        except ollama.ResponseError as error:
            equal(error.status_code, status, "the status")
            assert error.error, error
        else:
            raise AssertionError("no ResponseError")


def main():
    args = arguments(__doc__).parse_args()
    binary = Binary(args.binary, args.model)
    with tempfile.TemporaryDirectory() as folder:
        template = Path(folder) / "template.jinja"
        template.write_text(TEMPLATE)
        with Server(args.binary, args.model, "--chat-template", template) as server:
            client = ollama.Client(host=server.url, timeout=60)
            client.name = Path(args.model).name
            check.run(client, binary)
    check.finish()


if __name__ == "__main__":
    main()
