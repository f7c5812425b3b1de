"""The checks of `openai_client.py` for `/v1/responses`; the server's template is ChatML."""

import json

import openai

from chat import MESSAGES, SCHEMA, Found, ask as chatted
from served import close, equal

INPUT = {"instructions": MESSAGES[0]["content"], "input": MESSAGES[1]["content"]}


def ask(client, **options):
    options = {"model": client.name, "temperature": 0, "max_output_tokens": 40} | INPUT | options
    return client.responses.create(**options)


def same_as_chat(client, _binary):
    told, expected = ask(client), chatted(client)
    equal(told.output_text, expected.choices[0].message.content, "the text")
    status = "incomplete" if expected.choices[0].finish_reason == "length" else "completed"
    equal((told.object, told.status), ("response", status), "object and status")
    equal(told.usage.input_tokens, expected.usage.prompt_tokens, "input_tokens")
    equal(told.usage.output_tokens, expected.usage.completion_tokens, "output_tokens")
    listed = ask(client, instructions=openai.omit, input=MESSAGES)
    equal(listed.output_text, told.output_text, "a list of messages")
    close([told.temperature], [0], 0, "temperature")


def conversation(client, _binary):
    first = ask(client, max_output_tokens=8)
    user = {"role": "user", "content": "and 2"}
    following = [MESSAGES[1], *first.output, user]
    written = [MESSAGES[1], {"role": "assistant", "content": first.output_text}, user]
    equal(ask(client, input=following).output_text, ask(client, input=written).output_text, "output as input")


def streamed(client, _binary):
    whole = ask(client)
    events = list(ask(client, stream=True))
    equal([event.sequence_number for event in events], list(range(len(events))), "the events' numbers")
    texts = [event.delta for event in events if event.type == "response.output_text.delta"]
    equal("".join(texts), whole.output_text, "the text")
    equal(events[0].type, "response.created", "the first event")
    equal(events[-1].type, f"response.{whole.status}", "the last event")
    equal(events[-1].response.output_text, whole.output_text, "the last event's text")


def structured(client, _binary):
    form = {"format": {"type": "json_schema", "name": "found", "schema": SCHEMA, "strict": True}}
    told = ask(client, text=form, max_output_tokens=300)
    equal(told.status, "completed", f"status of {told.output_text!r}")
    Found.model_validate_json(told.output_text)
    parsed = client.responses.parse(model=client.name, text_format=Found, max_output_tokens=300, **INPUT)
    assert isinstance(parsed.output_parsed, Found), parsed
    with client.responses.stream(model=client.name, text_format=Found, max_output_tokens=300, **INPUT) as stream:
        assert isinstance(stream.get_final_response().output_parsed, Found)
    told = ask(client, text={"format": {"type": "json_object"}}, max_output_tokens=300)
    assert told.output_text.lstrip().startswith("{"), told.output_text
    if told.status == "completed":
        json.loads(told.output_text)


def log_probabilities(client, _binary):
    options = {"include": ["message.output_text.logprobs"], "top_logprobs": 3}
    part = ask(client, **options).output[0].content[0]
    expected = chatted(client, logprobs=True, top_logprobs=3).choices[0].logprobs.content
    equal([token.token for token in part.logprobs], [token.token for token in expected], "the tokens")
    close([token.logprob for token in part.logprobs], [token.logprob for token in expected], 1e-5, "log-probabilities")
    equal({len(token.top_logprobs) for token in part.logprobs}, {3}, "alternatives")
    events = ask(client, stream=True, **options)
    deltas = [event for event in events if event.type == "response.output_text.delta"]
    tokens = [token.token for event in deltas for token in event.logprobs]
    equal(tokens, [token.token for token in part.logprobs][: len(tokens)], "the tokens of the stream")


def refused(client, _binary):
    wrong = {
        "previous_response_id": "resp_1",
        "conversation": "conv_1",
        "background": True,
        "tools[0].type": ("tools", [{"type": "web_search"}]),
        "top_logprobs": 2,
        "max_output_tokens": 10**9,
        "temperature": -1,
        "input[0]": ("input", [{"type": "item_reference", "id": "a"}]),
    }
    for param, value in wrong.items():
        field, value = value if isinstance(value, tuple) else (param, value)
        try:
            ask(client, **{field: value})
        except openai.BadRequestError as error:
            equal(error.param, param, f"param of {error.message!r}")
        else:
            raise AssertionError(f"{field}={value!r} was taken")


def responses(check):
    """Adds them."""
    check("responses: the text is that of the chat completion")(same_as_chat)
    check("responses: output is input of the next request")(conversation)
    check("responses: a stream has numbered events and the whole text")(streamed)
    check("responses: text that follows a schema parses, streamed too")(structured)
    check("responses: log-probabilities are those of the chat completion")(log_probabilities)
    check("responses: what is not supported is a BadRequestError that names the parameter")(refused)
