"""The official `anthropic` client against the real server.

`python tests/clients/anthropic_client.py --binary target/debug/emberlm --model RUN`, as `cargo xtask test-clients` runs it,
where RUN is of a byte tokenizer.
"""

import json
import tempfile
from pathlib import Path

import anthropic

from served import Checks, Server, arguments, equal
from tools import PARAMETERS, TEMPLATE

MESSAGES = [{"role": "user", "content": "3 and 4 make"}]
TOOLS = [
    {"name": "find", "description": "Finds an animal.", "input_schema": PARAMETERS},
    {"name": "wait", "input_schema": {"type": "object", "properties": {}, "additionalProperties": False}},
]
# The newest client has no parameter for it.
GREEDY = {"temperature": 0}

check = Checks()


def ask(client, **options):
    extra = GREEDY | options.pop("extra_body", {})
    options = {"model": client.name, "messages": MESSAGES, "max_tokens": 40} | options
    return client.messages.create(extra_body=extra, **options)


def stream(client, **options):
    extra = GREEDY | options.pop("extra_body", {})
    options = {"model": client.name, "messages": MESSAGES, "max_tokens": 40} | options
    return client.messages.stream(extra_body=extra, **options)


@check("messages: an answer is a text block, with its tokens")
def answer(client):
    message = ask(client, system="Add.")
    equal((message.type, message.role, message.model), ("message", "assistant", client.name), "the message")
    equal([block.type for block in message.content], ["text"], "the blocks")
    assert message.stop_reason in ("end_turn", "max_tokens"), message
    counted = client.messages.count_tokens(model=client.name, messages=MESSAGES, system="Add.")
    usage = message.usage
    equal(usage.input_tokens + usage.cache_read_input_tokens, counted.input_tokens, "the prompt's tokens")
    equal(ask(client, system="Add.").content[0].text, message.content[0].text, "the text again")


@check("messages: a stream adds up to the answer")
def streamed(client):
    whole = ask(client)
    with stream(client) as events:
        text = "".join(events.text_stream)
        final = events.get_final_message()
    equal(text, whole.content[0].text, "the text")
    equal(final.content[0].text, text, "the final message")
    equal((final.stop_reason, final.usage.output_tokens), (whole.stop_reason, whole.usage.output_tokens), "the end")


@check("messages: a stop sequence ends the text and is named")
def stops(client):
    text = ask(client).content[0].text
    message = ask(client, stop_sequences=["never there", text[5:8]])
    equal(message.content[0].text, text[: text.index(text[5:8])], "the text")
    equal((message.stop_reason, message.stop_sequence), ("stop_sequence", text[5:8]), "the end")


@check("messages: tools are called, streamed or not, and their results are answered")
def tools(client):
    for choice in [{"type": "any", "disable_parallel_tool_use": True}, {"type": "tool", "name": "find"}]:
        options = {"tools": TOOLS, "tool_choice": choice, "max_tokens": 300}
        message = ask(client, **options)
        equal(message.stop_reason, "tool_use", "stop_reason")
        with stream(client, **options) as events:
            final = events.get_final_message()
        calls = lambda told: [(block.name, block.input) for block in told.content if block.type == "tool_use"]
        equal(calls(final), calls(message), "the streamed calls")
        assert calls(message), message
        for name, given in calls(message):
            if name == "find":
                assert given["animal"] in ("🐢", "hare") and 0 <= given["steps"] <= 99, given
            else:
                equal((name, given), ("wait", {}), "the other tool")
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": "there"}
            for block in message.content
            if block.type == "tool_use"
        ]
        rounds = [*MESSAGES, {"role": "assistant", "content": message.content}, {"role": "user", "content": results}]
        second = ask(client, messages=rounds, tools=TOOLS, tool_choice={"type": "none"})
        equal(second.content[0].type, "text", "the second round")


@check("messages: structured output follows its schema")
def structured(client):
    schema = {"type": "json_schema", "schema": PARAMETERS}
    message = ask(client, output_config={"format": schema}, max_tokens=100)
    found = json.loads(message.content[0].text)
    assert found["animal"] in ("🐢", "hare") and 0 <= found["steps"] <= 99, found


@check("messages: errors are the client's")
def errors(client):
    for kind, options in [
        (anthropic.NotFoundError, {"model": "nobody"}),
        (anthropic.BadRequestError, {"messages": []}),
        (anthropic.BadRequestError, {"extra_body": {"max_token": 5}}),
    ]:
        try:
            ask(client, **options)
        except kind as error:
            assert error.body["error"]["message"], error.body
        else:
            raise AssertionError(f"{options}: no {kind.__name__}")


def main():
    args = arguments(__doc__).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        (folder / "template.jinja").write_text(TEMPLATE)
        (folder / "key").write_text("turtle")
        options = ["--chat-template", folder / "template.jinja", "--api-key-file", folder / "key"]
        with Server(args.binary, args.model, *options) as server:
            connect = lambda key: anthropic.Anthropic(base_url=server.url, api_key=key, max_retries=0, timeout=60)
            client = connect("turtle")
            client.name = Path(args.model).name
            check.run(client)
            try:
                connect("hare").messages.create(model=client.name, messages=MESSAGES, max_tokens=1)
            except anthropic.AuthenticationError:
                print("ok      messages: a wrong key is an AuthenticationError")
            else:
                raise AssertionError("a wrong key was accepted")
    check.finish()


if __name__ == "__main__":
    main()
