"""The checks of `openai_client.py` that are of function calling, on a server whose template writes tools as Hermes does."""

import json
import tempfile
from pathlib import Path
from types import SimpleNamespace

from served import Server, equal

# Short, since the model has a context of 512 bytes.
TEMPLATE = """{% for tool in tools or [] %}{{ tool.function.name }}: {{ tool.function.description or '' }}
{% endfor %}{% for m in messages %}[{{ m.role }}]{{ m.content or '' }}{% for call in m.tool_calls or [] %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}
{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"""

MESSAGES = [{"role": "user", "content": "Where is the turtle?"}]
PARAMETERS = {
    "type": "object",
    "properties": {"animal": {"enum": ["🐢", "hare"]}, "steps": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["animal", "steps"],
    "additionalProperties": False,
}
TOOLS = [
    {"type": "function", "function": {"name": "find", "description": "Finds an animal.", "parameters": PARAMETERS, "strict": True}},
    {"type": "function", "function": {"name": "wait"}},
]


def checked(call):
    """The name of a call whose arguments are what its function takes."""
    found = json.loads(call.function.arguments)
    if call.function.name == "find":
        assert found["animal"] in ("🐢", "hare") and 0 <= found["steps"] <= 99 and len(found) == 2, call
    else:
        equal((call.function.name, found), ("wait", {}), "the other function")
    return call.function.name


def ask(client, **options):
    options = {"model": client.name, "messages": MESSAGES, "tools": TOOLS, "max_completion_tokens": 300} | options
    return client.chat.completions.create(**options)


FLAT = [{"type": "function"} | tool["function"] for tool in TOOLS]


def respond(client, **options):
    options = {"model": client.name, "input": MESSAGES, "tools": FLAT, "max_output_tokens": 300} | options
    return client.responses.create(**options)


def checked_item(item):
    """The name of an output item that is a valid call."""
    equal((item.type, item.status), ("function_call", "completed"), "type and status")
    return checked(SimpleNamespace(function=item))


def serving(connect):
    """A check with a client of a server with the template."""

    def with_server(function):
        def run(client, binary):
            with tempfile.TemporaryDirectory() as folder:
                template = Path(folder) / "tools.jinja"
                template.write_text(TEMPLATE)
                with Server(binary.path, binary.model, "--chat-template", template) as server:
                    function(connect(server, client.name))

        return run

    return with_server


def required(client):
    for seed in range(6):
        options = {"tool_choice": "required", "parallel_tool_calls": False, "temperature": 1.5, "seed": seed}
        choice = ask(client, **options).choices[0]
        equal((choice.finish_reason, choice.message.content), ("tool_calls", None), "finish_reason and content")
        equal(len(choice.message.tool_calls), 1, "calls")
        checked(choice.message.tool_calls[0])


def conversation(client):
    named = {"type": "function", "function": {"name": "find"}}
    message = ask(client, tool_choice=named).choices[0].message
    equal([checked(call) for call in message.tool_calls], ["find"], "what is called")
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "At the end of the garden."}
    # The client's own message goes back as it came.
    answer = ask(client, messages=[*MESSAGES, message, result], tool_choice="none", max_completion_tokens=20).choices[0]
    assert answer.message.tool_calls is None and isinstance(answer.message.content, str), answer


def streamed(client):
    options = {"tool_choice": "required", "parallel_tool_calls": False, "seed": 3}
    whole = ask(client, **options).choices[0].message.tool_calls[0].function
    with client.chat.completions.stream(
        model=client.name, messages=MESSAGES, tools=TOOLS[:1], max_completion_tokens=300, **options
    ) as stream:
        final = stream.get_final_completion()
    checked(final.choices[0].message.tool_calls[0])
    parts = [part.choices[0] for part in ask(client, stream=True, **options)]
    calls = [call for part in parts for call in part.delta.tool_calls or []]
    equal([call.function.name for call in calls if call.function.name], [whole.name], "the name, once")
    equal("".join(call.function.arguments for call in calls), whole.arguments, "the arguments, joined")
    equal(parts[-1].finish_reason, "tool_calls", "finish_reason")


def as_it_likes(client):
    for seed in range(4):
        choice = ask(client, seed=seed, temperature=1.2, max_completion_tokens=60).choices[0]
        for call in choice.message.tool_calls or []:
            if choice.finish_reason == "tool_calls":
                checked(call)
        assert choice.finish_reason in ("stop", "length", "tool_calls"), choice


def responses_required(client):
    for seed in range(6):
        options = {"tool_choice": "required", "parallel_tool_calls": False, "temperature": 1.5, "extra_body": {"seed": seed}}
        response = respond(client, **options)
        equal(response.status, "completed", "status")
        equal(len(response.output), 1, "items")
        checked_item(response.output[0])
    named = respond(client, tool_choice={"type": "function", "name": "find"})
    equal([checked_item(item) for item in named.output], ["find"], "what is called")


def responses_conversation(client):
    first = respond(client, tool_choice={"type": "function", "name": "find"})
    result = {"type": "function_call_output", "call_id": first.output[0].call_id, "output": "At the end of the garden."}
    # The output goes back as it came.
    options = {"input": [*MESSAGES, *first.output, result], "tool_choice": "none", "max_output_tokens": 20}
    answer = respond(client, **options)
    equal([item.type for item in answer.output], ["message"], "the output")


def responses_streamed(client):
    options = {"tool_choice": "required", "parallel_tool_calls": False, "extra_body": {"seed": 3}}
    whole = respond(client, **options).output[0]
    events = list(respond(client, stream=True, **options))
    equal([event.sequence_number for event in events], list(range(len(events))), "the events' numbers")
    deltas = [event.delta for event in events if event.type == "response.function_call_arguments.delta"]
    equal("".join(deltas), whole.arguments, "the arguments, joined")
    done = next(event for event in events if event.type == "response.function_call_arguments.done")
    equal((done.name, done.arguments), (whole.name, whole.arguments), "the call")
    equal(checked_item(events[-1].response.output[0]), whole.name, "the last event's call")
    with client.responses.stream(model=client.name, input=MESSAGES, tools=FLAT[:1], max_output_tokens=300, **options) as stream:
        final = stream.get_final_response()
    equal([checked_item(item) for item in final.output], ["find"], "the call of the client's own stream")


def tools(check, connect):
    """Adds them."""
    serve = serving(connect)
    check("tools: a required call is valid, whatever the model wants")(serve(required))
    check("tools: a call and its result go back into the conversation")(serve(conversation))
    check("tools: streamed parts make the whole call")(serve(streamed))
    check("tools: the model chooses between text and calls")(serve(as_it_likes))
    check("tools: responses have required calls as items")(serve(responses_required))
    check("tools: a response's call and its result are input")(serve(responses_conversation))
    check("tools: a streamed response has the events of a call")(serve(responses_streamed))
