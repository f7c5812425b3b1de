"""The official `openai` client against the real server: what it asks, what it gets, and what the binary says without one.

`python tests/clients/openai_client.py --binary target/debug/emberlm --model RUN`, as `cargo xtask test-clients` runs it,
where RUN is of a byte tokenizer: the prompts' ids are their bytes.
"""

import base64
import math
import struct
import tempfile
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import openai
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from chat import chat
from responses import responses
from served import Binary, Checks, Server, arguments, close, equal
from tools import tools

PROMPT = "3 and 4 make"
# Ends within a character now and then: the model's text has some of two, three and four bytes.
LENGTHS = range(30, 46)

check = Checks()


def complete(client, prompt=PROMPT, **options):
    options = {"model": client.name, "max_tokens": 40, "temperature": 0} | options
    return client.completions.create(prompt=prompt, **options)


@check("models: the folder's name is listed and retrieved")
def models(client, _binary):
    listed = list(client.models.list())
    equal([model.id for model in listed], [client.name], "the models")
    equal(listed[0].object, "model", "a model's object")
    equal(client.models.retrieve(client.name).id, client.name, "the one retrieved")


@check("completions: greedy text is `emberlm generate --temperature 0`'s, wherever it is cut")
def greedy(client, binary):
    for length in LENGTHS:
        alone = binary.generate(PROMPT, "--max-new-tokens", length)
        told = complete(client, max_tokens=length)
        choice = told.choices[0]
        equal(choice.text, alone["text"], f"the text of {length} tokens")
        equal(choice.finish_reason, alone["finish"], "finish_reason")
        equal((told.object, told.model), ("text_completion", client.name), "object and model")


@check("completions: a text, its ids, and lists of both")
def shapes(client, _binary):
    ids = list(PROMPT.encode())
    text = complete(client).choices[0].text
    other = complete(client, "said the").choices[0].text
    equal(complete(client, ids).choices[0].text, text, "of ids")
    for prompts in [[PROMPT, "said the"], [ids, list(b"said the")]]:
        told = complete(client, prompts)
        equal([choice.index for choice in told.choices], [0, 1], "the choices' places")
        equal([choice.text for choice in told.choices], [text, other], "the choices' texts")


@check("completions: n choices, numbered prompt by prompt")
def several(client, _binary):
    told = complete(client, ["1 and", "2 and"], n=3, temperature=1.5, seed=5)
    equal([choice.index for choice in told.choices], list(range(6)), "the choices' places")
    assert len({choice.text for choice in told.choices[:3]}) > 1, "three times the same text"
    equal(told.usage.completion_tokens, 6 * 40, "tokens of six choices")


@check("completions: the same seed makes the same text, another makes another")
def seeds(client, _binary):
    text = lambda seed: complete(client, temperature=1.5, seed=seed).choices[0].text
    equal(text(7), text(7), "seed 7 again")
    assert text(7) != text(8), "seed 8 made the text of seed 7"


@check("completions: a stop string ends the text and is not in it, streamed or not")
def stops(client, _binary):
    whole = complete(client, max_tokens=60).choices[0].text
    for stop in [whole[5:7], whole[20:21], ["never there", whole[12:16]]]:
        found = stop if isinstance(stop, str) else stop[1]
        expected = whole[: whole.index(found)]
        choice = complete(client, max_tokens=60, stop=stop).choices[0]
        equal((choice.text, choice.finish_reason), (expected, "stop"), f"stop={stop!r}")
        parts = list(complete(client, max_tokens=60, stop=stop, stream=True))
        equal("".join(part.choices[0].text for part in parts), expected, f"streamed, stop={stop!r}")
        equal(parts[-1].choices[0].finish_reason, "stop", "streamed, finish_reason")


@check("completions: usage counts the prompt's tokens and those made")
def usage(client, _binary):
    for prompt, tokens in [(PROMPT, len(PROMPT)), ([1, 2, 3], 3), (["ab", "cde"], 5)]:
        told = complete(client, prompt, max_tokens=9).usage
        choices = 2 if isinstance(prompt[0], str) and len(prompt[0]) > 1 else 1
        equal(told.prompt_tokens, tokens, f"prompt_tokens of {prompt!r}")
        equal(told.completion_tokens, 9 * choices, f"completion_tokens after {prompt!r}")
        equal(told.total_tokens, told.prompt_tokens + told.completion_tokens, "total_tokens")


@check("completions: logprobs are `emberlm generate --logprobs`'s and the logarithms of `emberlm logits`'s softmax")
def logprobs(client, binary):
    alone = binary.generate(PROMPT, "--max-new-tokens", 40, "--logprobs", 3)
    told = complete(client, logprobs=3).choices[0].logprobs
    equal(len(told.tokens), 40, "tokens")
    assert all(value <= 0 for value in told.token_logprobs), told.token_logprobs
    close(told.token_logprobs, [token["logprob"] for token in alone["logprobs"]], 1e-4, "generate's")
    ids = list(PROMPT.encode()) + alone["tokens"]
    with tempfile.TemporaryDirectory() as folder:
        rows = binary.logits(ids[:-1], folder)[len(PROMPT) - 1 :]
    total = lambda row: max(row) + math.log(sum(math.exp(x - max(row)) for x in row))
    computed = [row[token] - total(row) for row, token in zip(rows, alone["tokens"])]
    close(told.token_logprobs, computed, 1e-3, "the logits'")
    best = [max(tops.values()) for tops in told.top_logprobs]
    close(best, told.token_logprobs, 1e-6, "the likeliest of a greedy text is the one taken")
    equal(told.text_offset, sorted(told.text_offset), "text_offset")


@check("completions: streamed and joined is the whole text, however it is cut")
def streamed(client, _binary):
    for length in LENGTHS:
        parts = list(complete(client, max_tokens=length, stream=True))
        whole = complete(client, max_tokens=length).choices[0]
        equal("".join(part.choices[0].text for part in parts), whole.text, f"{length} tokens")
        reasons = [part.choices[0].finish_reason for part in parts]
        equal(reasons, [None] * (len(parts) - 1) + ["length"], "finish_reason of each part")
        assert len({part.id for part in parts}) == 1, "the parts' ids differ"
        assert len(parts) > 10, f"{length} tokens came in {len(parts)} parts"


@check("completions: include_usage tells it once, in a last part without choices")
def streamed_usage(client, _binary):
    options = {"include_usage": True}
    parts = list(complete(client, stream=True, stream_options=options))
    equal([part.usage for part in parts[:-1]], [None] * (len(parts) - 1), "usage before the end")
    equal(parts[-1].choices, [], "the last part's choices")
    equal(parts[-1].usage, complete(client).usage, "the usage")


@check("completions: several choices are streamed side by side")
def streamed_several(client, _binary):
    prompts = [PROMPT, "said the"]
    texts = ["", "", "", ""]
    for part in complete(client, prompts, n=2, temperature=1.2, seed=3, stream=True):
        for choice in part.choices:
            texts[choice.index] += choice.text
    whole = complete(client, prompts, n=2, temperature=1.2, seed=3)
    equal(texts, [choice.text for choice in whole.choices], "the texts")


@check("completions: streamed logprobs are those of the whole")
def streamed_logprobs(client, _binary):
    parts = complete(client, logprobs=1, stream=True)
    given = [part.choices[0].logprobs for part in parts]
    values = [value for told in given if told for value in told.token_logprobs]
    close(values, complete(client, logprobs=1).choices[0].logprobs.token_logprobs, 1e-4, "logprobs")


@check("completions: echo begins the text with the prompt")
def echo(client, _binary):
    equal(complete(client, echo=True).choices[0].text, PROMPT + complete(client).choices[0].text, "echo")


@check("completions: samplers do what `emberlm generate`'s do")
def samplers(client, binary):
    text = lambda **options: complete(client, **options).choices[0].text
    greedy = text()
    equal(text(temperature=1.5, extra_body={"top_k": 1}), greedy, "top_k 1")
    equal(text(temperature=1.5, extra_body={"min_p": 1}), greedy, "min_p 1")
    equal(text(temperature=1.5, top_p=0.000001), greedy, "top_p near 0")
    equal(text(logit_bias={str(ord("x")): 100}, max_tokens=5), "xxxxx", "a bias of 100")
    pairs = [("frequency_penalty", 1.5), ("presence_penalty", 1.5), ("repetition_penalty", 1.3)]
    for name, value in pairs:
        alone = binary.generate(PROMPT, "--max-new-tokens", 40, f"--{name.replace('_', '-')}", value)
        equal(text(extra_body={name: value}), alone["text"], name)


@check("completions: many clients at once get what one gets alone")
def at_once(client, _binary):
    prompts = [f"{i} and {i + 3}" for i in range(24)]
    alone = [complete(client, prompt).choices[0].text for prompt in prompts]
    with ThreadPoolExecutor(24) as pool:
        together = list(pool.map(lambda prompt: complete(client, prompt).choices[0].text, prompts))
    equal(together, alone, "the texts")


@check("embeddings: unit length, the same as floats and as base64, in the order asked")
def embeddings(client, _binary):
    embed = lambda given, **options: client.embeddings.create(model=client.name, input=given, **options)
    # The client asks for base64 and decodes it where nothing else is said.
    plain = embed(PROMPT).data[0].embedding
    floats = embed(PROMPT, encoding_format="float").data[0].embedding
    close(plain, floats, 1e-7, "base64 beside floats")
    close([math.hypot(*plain)], [1], 1e-5, "the length")
    told = embed([PROMPT, "said the", "🐢"])
    equal([item.index for item in told.data], [0, 1, 2], "the places")
    close(told.data[0].embedding, plain, 1e-5, "the first of three beside it alone")
    assert told.data[1].embedding != told.data[0].embedding, "two texts have one embedding"
    equal(told.usage.prompt_tokens, len(PROMPT) + 8 + 4, "prompt_tokens")
    close(embed(list(PROMPT.encode())).data[0].embedding, plain, 1e-5, "of ids")
    body = {"model": client.name, "input": PROMPT, "encoding_format": "base64"}
    raw = client.post("/embeddings", body=body, cast_to=object)["data"][0]["embedding"]
    data = base64.b64decode(raw)
    close(list(struct.unpack(f"<{len(data) // 4}f", data)), plain, 0, "base64 of little-endian floats")
    equal(len(embed(PROMPT, dimensions=len(plain)).data[0].embedding), len(plain), "dimensions")
    short = embed(PROMPT, dimensions=10).data[0].embedding
    length = math.hypot(*plain[:10])
    close(short, [value / length for value in plain[:10]], 1e-5, "the first ten, normalized again")
    raised(openai.BadRequestError, "dimensions", lambda: embed(PROMPT, dimensions=len(plain) + 1))


@check("metrics: they parse, count what was asked, and are quiet afterwards")
def metrics(client, _binary):
    def read():
        with urllib.request.urlopen(f"{client.url}/metrics", timeout=60) as answer:
            families = text_string_to_metric_families(answer.read().decode())
            samples = [sample for family in families for sample in family.samples]
        return lambda name, **labels: sum(
            sample.value
            for sample in samples
            if sample.name == f"emberlm_{name}" and labels.items() <= sample.labels.items()
        )

    before = read()
    complete(client, max_tokens=30, n=2)
    list(complete(client, max_tokens=30, stream=True))
    raised(openai.BadRequestError, "n", lambda: complete(client, n=0))
    after = read()
    grown = lambda name, **labels: after(name, **labels) - before(name, **labels)
    of_model = {"model": client.name}
    equal(grown("generated_tokens_total", **of_model), 90, "generated tokens")
    read_or_reused = grown("prompt_tokens_total", **of_model) + grown("reused_tokens_total", **of_model)
    equal(read_or_reused, 2 * len(PROMPT), "tokens of prompts, read or remembered")
    for status, count in [("200", 2), ("400", 1)]:
        labels = {"endpoint": "/v1/completions", "status": status}
        equal(grown("requests_total", **labels), count, f"requests answered by {status}")
    equal(grown("token_seconds_count", **of_model), 87, "waits of choices for tokens after their first")
    equal(grown("first_token_seconds_count", **of_model), 2, "waits of requests for a first token")
    equal([after("running_sequences"), after("waiting_requests")], [0, 0], "what runs and waits")
    assert after("free_slots", **of_model) > 0, "no slot is free"


def raised(kind, param, call):
    """The client's typed error, with an envelope that says what and where."""
    try:
        call()
    except kind as error:
        equal(error.param, param, f"param of {error.message!r}")
        assert isinstance(error.body["message"], str) and error.body["message"], error.body
        return error
    raise AssertionError(f"no {kind.__name__}")


@check("errors: an unknown model is a NotFoundError")
def unknown_model(client, _binary):
    calls = [
        lambda: complete(client, model="nobody"),
        lambda: client.models.retrieve("nobody"),
        lambda: client.embeddings.create(model="nobody", input="a"),
        lambda: client.chat.completions.create(
            model="nobody", messages=[{"role": "user", "content": "a"}]
        ),
    ]
    for call in calls:
        error = raised(openai.NotFoundError, "model", call)
        equal(error.code, "model_not_found", "code")


@check("errors: what cannot be is a BadRequestError that names the parameter")
def bad_requests(client, _binary):
    wrong = {
        "temperature": [-1, "hot"],
        "top_p": [-0.1, 1.5],
        "n": [0, -1, 100000, "two"],
        "max_tokens": [-1, 1.5, "many", 10**30, 10**9],
        "logprobs": [-1, 6],
        "stop": [["a"] * 1000, 5],
        "presence_penalty": [-2.5, 2.5],
        "frequency_penalty": [-2.5, 2.5],
        "logit_bias": [{"a": 1}, {"999999": 1}, {"1": 101}, 5],
        "prompt": [5, [300, 999999], [-1], [1.5], [True], [[]]],
        "seed": ["a", 1.5],
        "stream": ["yes"],
        "top_k": [-2, "a"],
        "min_p": [-1, 2],
        "repetition_penalty": [0, -1],
    }
    for param, values in wrong.items():
        for value in values:
            body = {"model": client.name, "prompt": PROMPT, "max_tokens": 5, param: value}
            call = lambda: client.post("/completions", body=body, cast_to=object)
            try:
                error = raised(openai.BadRequestError, param, call)
            except Exception as other:
                raise AssertionError(f"{param}={str(value)[:60]}: {other}") from other
            assert error.body["type"] == "invalid_request_error", error.body


@check("errors: what is longer than the context is a BadRequestError with its code")
def too_long(client, _binary):
    user = {"role": "user", "content": "a" * 100_000}
    calls = [
        lambda: complete(client, "a" * 100_000),
        lambda: complete(client, [1] * 100_000),
        lambda: complete(client, max_tokens=4000),
        lambda: client.chat.completions.create(model=client.name, messages=[user]),
    ]
    for call in calls:
        try:
            call()
        except openai.BadRequestError as error:
            equal(error.code, "context_length_exceeded", f"code of {error.message[:200]!r}")
        else:
            raise AssertionError("no BadRequestError")


@check("errors: a wrong key is an AuthenticationError, the right one is none; without a template nothing chats")
def keys(client, binary):
    with tempfile.NamedTemporaryFile("w", suffix=".key") as file:
        file.write("turtle\n")
        file.flush()
        with Server(binary.path, binary.model, "--api-key-file", file.name) as server:
            right = connect(server, client.name, api_key="turtle")
            wrong = connect(server, client.name, api_key="hare")
            equal(complete(right).choices[0].text, complete(client).choices[0].text, "with the key")
            user = {"role": "user", "content": "a"}
            chat = lambda: right.chat.completions.create(model=client.name, messages=[user])
            assert "template" in raised(openai.BadRequestError, "model", chat).message
            for call in [lambda: complete(wrong), lambda: list(wrong.models.list())]:
                error = raised(openai.AuthenticationError, None, call)
                equal(error.code, "invalid_api_key", "code")


@check("errors: a full queue is a RateLimitError, and what waits is answered")
def full(client, binary):
    with Server(binary.path, binary.model, "--slots", 1, "--max-queue", 1) as server:
        busy = connect(server, client.name)

        def one(_):
            try:
                return len(complete(busy, max_tokens=400, temperature=1).choices)
            except openai.RateLimitError as error:
                return error.code

        with ThreadPoolExecutor(24) as pool:
            told = list(pool.map(one, range(24)))
        assert 1 in told, f"nobody was answered: {told}"
        refused = [code for code in told if code != 1]
        assert refused, "24 clients at once, 1 slot and 1 that waits: nobody was refused"
        equal(complete(busy).choices[0].text, complete(client).choices[0].text, "once it is quiet")


@check("draining: SIGTERM lets a stream come to its end and takes nothing new")
def draining(client, binary):
    with Server(binary.path, binary.model) as server:
        other = connect(server, client.name)
        parts = complete(other, max_tokens=450, stream=True)
        text = next(parts).choices[0].text
        server.process.terminate()
        rest = list(parts)
        text += "".join(part.choices[0].text for part in rest)
        equal(rest[-1].choices[0].finish_reason, "length", "finish_reason")
        equal(text, complete(client, max_tokens=450).choices[0].text, "the text")
        try:
            complete(connect(server, client.name))
        except (openai.APIConnectionError, openai.InternalServerError):
            pass
        else:
            raise AssertionError("a server that was told to end answered a new request")


def connect(server, name, **options):
    options = {"api_key": "none", "max_retries": 0, "timeout": 60} | options
    client = openai.OpenAI(base_url=f"{server.url}/v1", **options)
    client.name = name
    client.url = server.url
    return client


def main():
    args = arguments(__doc__).parse_args()
    binary = Binary(args.binary, args.model)
    chat(check)
    responses(check)
    tools(check, connect)
    with Server(args.binary, args.model, "--chat-template", "chatml") as server:
        client = connect(server, args.model.rstrip("/").rsplit("/", 1)[-1])
        check.run(client, binary)
    check.finish()


if __name__ == "__main__":
    main()
