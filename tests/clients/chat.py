"""The checks of `openai_client.py` that are of conversations; the server's template is ChatML."""

import json
from typing import Literal

import openai
from pydantic import BaseModel

from served import close, equal

MESSAGES = [
    {"role": "system", "content": "Add."},
    {"role": "user", "content": "3 and 4 make"},
]
# What ChatML makes of them, from its definition; before it the token with which every document of bytes begins.
WRITTEN = "<|im_start|>system\nAdd.<|im_end|>\n<|im_start|>user\n3 and 4 make<|im_end|>\n<|im_start|>assistant\n"
PROMPT = [256, *WRITTEN.encode()]


class Found(BaseModel):
    """What the structured answer must be."""

    animal: Literal["🐢", "hare"]
    slow: bool


SCHEMA = {
    "type": "object",
    "properties": {"animal": {"enum": ["🐢", "hare"]}, "slow": {"type": "boolean"}},
    "required": ["animal", "slow"],
    "additionalProperties": False,
}


def ask(client, **options):
    options = {"model": client.name, "messages": MESSAGES, "temperature": 0, "max_completion_tokens": 40} | options
    return client.chat.completions.create(**options)


def greedy(client, _binary):
    told = ask(client, logprobs=True)
    choice = told.choices[0]
    written = client.completions.create(
        model=client.name, prompt=PROMPT, temperature=0, max_tokens=40, stop="<|im_end|>", logprobs=1
    )
    logprobs = [token.logprob for token in choice.logprobs.content]
    close(logprobs, written.choices[0].logprobs.token_logprobs, 1e-4, "logprobs beside the completion's")
    equal(choice.message.content, written.choices[0].text, "the answer, beside a completion of the template's text")
    equal(choice.finish_reason, written.choices[0].finish_reason, "finish_reason")
    equal((choice.message.role, told.object), ("assistant", "chat.completion"), "role and object")
    equal(told.usage.prompt_tokens, len(PROMPT), "prompt_tokens")
    total = told.usage.prompt_tokens + told.usage.completion_tokens
    equal(told.usage.total_tokens, total, "total_tokens")
    equal(ask(client, max_completion_tokens=openai.omit, max_tokens=40).choices[0].message.content, choice.message.content, "max_tokens")


def parts_of_content(client, _binary):
    parts = [{"type": "text", "text": "3 and 4 make"}]
    messages = [MESSAGES[0], {"role": "user", "content": parts}]
    told = ask(client, messages=messages).choices[0].message.content
    equal(told, ask(client).choices[0].message.content, "content in parts")


def streamed(client, _binary):
    parts = list(ask(client, stream=True, stream_options={"include_usage": True}))
    told = ask(client)
    equal(parts[0].choices[0].delta.role, "assistant", "the first part's role")
    texts = [part.choices[0].delta.content or "" for part in parts[:-1]]
    equal("".join(texts), told.choices[0].message.content, "the text")
    equal(parts[-2].choices[0].finish_reason, told.choices[0].finish_reason, "finish_reason")
    equal((parts[-1].choices, parts[-1].usage), ([], told.usage), "the last part")


def stopped(client, _binary):
    whole = ask(client).choices[0].message.content
    choice = ask(client, stop=whole[6:8]).choices[0]
    expected = (whole[: whole.index(whole[6:8])], "stop")
    equal((choice.message.content, choice.finish_reason), expected, "stop")


def logprobs(client, _binary):
    choice = ask(client, logprobs=True, top_logprobs=4).choices[0]
    content = choice.logprobs.content
    equal(len(content), 40, "tokens told of")
    assert all(token.logprob <= 0 for token in content), content
    said = b"".join(bytes(token.bytes) for token in content)
    equal(said.decode(errors="replace"), choice.message.content, "the tokens' bytes, joined")
    for token in content:
        tops = [top.logprob for top in token.top_logprobs]
        equal((len(tops), tops), (4, sorted(tops, reverse=True)), "the four likeliest, in order")
        close(tops[:1], [token.logprob], 1e-6, "the likeliest of a greedy text is the one taken")


def several(client, _binary):
    choices = ask(client, n=3, temperature=1.5, seed=1).choices
    again = ask(client, n=3, temperature=1.5, seed=1).choices
    texts = [choice.message.content for choice in choices]
    equal([choice.index for choice in choices], [0, 1, 2], "the places")
    equal([choice.message.content for choice in again], texts, "the same seed")
    assert len(set(texts)) > 1, "three times the same text"


def structured(client, _binary):
    form = {"type": "json_schema", "json_schema": {"name": "found", "schema": SCHEMA, "strict": True}}
    for options in [{}, {"temperature": 1.5, "seed": 4}]:
        choice = ask(client, response_format=form, max_completion_tokens=300, **options).choices[0]
        equal(choice.finish_reason, "stop", f"finish_reason of {choice.message.content!r}")
        Found.model_validate_json(choice.message.content)
    parsed = client.chat.completions.parse(
        model=client.name, messages=MESSAGES, max_completion_tokens=300, response_format=Found
    )
    assert isinstance(parsed.choices[0].message.parsed, Found), parsed
    parts = ask(client, response_format=form, max_completion_tokens=300, stream=True)
    Found.model_validate_json("".join(part.choices[0].delta.content or "" for part in parts))


def any_object(client, _binary):
    form = {"type": "json_object"}
    for seed in range(8):
        choice = ask(client, response_format=form, seed=seed, temperature=1.5, max_completion_tokens=300).choices[0]
        assert choice.message.content.lstrip().startswith("{"), choice
        if choice.finish_reason == "stop":
            assert isinstance(json.loads(choice.message.content), dict), choice


def other_servers(client, _binary):
    plain = ask(client).choices[0].message.content
    harmless = ask(
        client,
        store=True,
        service_tier="flex",
        reasoning_effort="low",
        verbosity="low",
        metadata={"a": "b"},
        prompt_cache_key="key",
        safety_identifier="user",
        prediction={"type": "content", "content": "7"},
        extra_body={"cache_prompt": True, "include_reasoning": False},
    )
    equal(harmless.choices[0].message.content, plain, "the answer to a request with fields without effect")
    ended = {"256": 100}
    equal(ask(client, logit_bias=ended).usage.completion_tokens, 0, "an answer that ends at once")
    for extra, tokens in [({"min_tokens": 5}, 5), ({"ignore_eos": True}, 40)]:
        found = ask(client, logit_bias=ended, extra_body=extra).usage.completion_tokens
        equal(found, tokens, f"tokens of an answer with {extra}")
    first = plain[: len(plain) // 2]
    if first.strip() == first and first and "\ufffd" not in first:
        messages = MESSAGES + [{"role": "assistant", "content": first}]
        rest = ask(client, messages=messages, extra_body={"continue_final_message": True}).choices[0].message.content
        assert (first + rest).startswith(plain.rstrip("\ufffd")), (plain, first, rest)


def refused(client, _binary):
    user = {"role": "user", "content": "a"}
    schema = lambda schema: {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    wrong = {
        "messages": [[], "hello", [5], [{"role": "user"}], [user | {"content": 5}]],
        "top_logprobs": [-1, 21],
        "max_completion_tokens": [-1, "a"],
        "response_format": [{"type": "poem"}, "json", schema({"type": 5}), {"type": "json_schema"}],
    }
    for param, values in wrong.items():
        for value in values:
            body = {"model": client.name, "messages": [user], "logprobs": True, "max_completion_tokens": 5, param: value}
            try:
                client.post("/chat/completions", body=body, cast_to=object)
            except openai.BadRequestError as error:
                assert (error.param or "").split(".")[0].split("[")[0] == param, f"{param}={value!r}: {error.body}"
            else:
                raise AssertionError(f"{param}={value!r} was taken")


def chat(check):
    """Adds them."""
    check("chat: an answer is a completion of the template's text")(greedy)
    check("chat: content may come in parts")(parts_of_content)
    check("chat: streamed and joined is the whole answer")(streamed)
    check("chat: a stop string ends the answer and is not in it")(stopped)
    check("chat: logprobs tell each token's bytes and the likeliest in its place")(logprobs)
    check("chat: n answers of a seed")(several)
    check("chat: an answer held to a JSON schema parses, sampled and streamed too")(structured)
    check("chat: json_object makes an object")(any_object)
    check("chat: fields of other servers have their effect or none")(other_servers)
    check("chat: what cannot be is a BadRequestError that names the parameter")(refused)
