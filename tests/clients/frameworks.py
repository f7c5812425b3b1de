"""Frameworks over OpenAI's API against the real server: LiteLLM, LangChain, Instructor and LlamaIndex.

`python tests/clients/frameworks.py --binary target/debug/emberlm --model RUN`, as `cargo xtask test-clients` runs it,
where RUN is of a byte tokenizer. Each chats, streams, calls tools in two rounds or returns an object, and meets an error.
"""

import json
import os
import tempfile
from pathlib import Path
from typing import Literal

# The list of prices that LiteLLM would download.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import instructor
import litellm
import openai
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from llama_index.core.llms import ChatMessage
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel, ConfigDict, Field

from served import Checks, Server, arguments, equal
from tools import PARAMETERS, TEMPLATE, TOOLS

QUESTION = "3 and 4 make"
MESSAGES = [{"role": "user", "content": QUESTION}]

check = Checks()


class Found(BaseModel):
    """Finds an animal."""

    # The small model would write other properties until its tokens end.
    model_config = ConfigDict(extra="forbid")
    animal: Literal["🐢", "hare"]
    steps: int = Field(ge=0, le=99)


@tool(args_schema=Found)
def find(animal, steps):
    """Finds an animal."""
    return f"{animal} is {steps} steps away"


def complete(server, **options):
    given = {"model": f"openai/{server.name}", "api_base": f"{server.url}/v1", "api_key": "none", "timeout": 60}
    given |= {"messages": MESSAGES, "temperature": 0, "max_tokens": 30, "num_retries": 0}
    return litellm.completion(**given | options)


@check("litellm: a chat, streamed or not")
def litellm_chat(server):
    whole = complete(server)
    text = whole.choices[0].message.content
    parts = list(complete(server, stream=True))
    equal("".join(part.choices[0].delta.content or "" for part in parts), text, "the streamed text")
    assert whole.usage.completion_tokens > 0, whole


@check("litellm: tools in two rounds")
def litellm_tools(server):
    options = {"tools": TOOLS, "max_tokens": 200}
    told = complete(server, tool_choice="required", parallel_tool_calls=False, **options)
    call = told.choices[0].message.tool_calls[0]
    json.loads(call.function.arguments)
    result = {"role": "tool", "tool_call_id": call.id, "content": "there"}
    rounds = [*MESSAGES, told.choices[0].message.model_dump(), result]
    second = complete(server, messages=rounds, tool_choice="none", **options)
    assert isinstance(second.choices[0].message.content, str), second


@check("litellm: Anthropic's API")
def litellm_anthropic(server):
    told = complete(server, model=f"anthropic/{server.name}", api_base=server.url)
    equal(told.choices[0].message.content, complete(server).choices[0].message.content, "the text")


@check("litellm: Ollama's API")
def litellm_ollama(server):
    told = complete(server, model=f"ollama_chat/{server.name}", api_base=server.url)
    equal(told.choices[0].message.content, complete(server).choices[0].message.content, "the text")


@check("litellm: errors are LiteLLM's")
def litellm_errors(server):
    try:
        complete(server, model="openai/nobody")
    except litellm.NotFoundError as error:
        assert "nobody" in str(error), error
    else:
        raise AssertionError("no NotFoundError")


def chain(server, **options):
    given = {"model": server.name, "base_url": f"{server.url}/v1", "api_key": "none", "max_retries": 0}
    return ChatOpenAI(**given | {"temperature": 0, "max_tokens": 60} | options)


@check("langchain: a chat, streamed or not")
def langchain_chat(server):
    model = chain(server)
    whole = model.invoke(QUESTION)
    equal("".join(part.content for part in model.stream(QUESTION)), whole.content, "the streamed text")


@check("langchain: tools in two rounds")
def langchain_tools(server):
    bound = chain(server, max_tokens=200).bind_tools(
        [find], tool_choice="any", parallel_tool_calls=False, strict=True
    )
    told = bound.invoke(QUESTION)
    call = told.tool_calls[0]
    equal(call["name"], "find", "the tool")
    assert call["args"]["animal"] in ("🐢", "hare"), call
    result = ToolMessage(find.invoke(call["args"]), tool_call_id=call["id"])
    second = chain(server).bind_tools([find]).invoke([HumanMessage(QUESTION), told, result])
    assert isinstance(second, AIMessage), second


@check("langchain: structured output in its default mode and with function calling")
def langchain_structured(server):
    for method in ["json_schema", "function_calling"]:
        model = chain(server, max_tokens=200).with_structured_output(Found, method=method)
        found = model.invoke(QUESTION)
        assert isinstance(found, Found), (method, found)


@check("langchain: embeddings")
def langchain_embeddings(server):
    # The tokenizer of the client is OpenAI's: texts are sent as they are.
    model = OpenAIEmbeddings(
        model=server.name, base_url=f"{server.url}/v1", api_key="none", check_embedding_ctx_length=False
    )
    vectors = model.embed_documents([QUESTION, "said the"])
    equal([len(vector) for vector in vectors], [64, 64], "the lengths")


@check("instructor: an object in the default mode")
def instructor_default(server):
    client = instructor.from_openai(openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0))
    options = {"model": server.name, "messages": MESSAGES, "max_tokens": 200, "temperature": 0}
    found = client.chat.completions.create(response_model=Found, max_retries=0, **options)
    assert isinstance(found, Found), found


@check("llama-index: a chat and a completion, streamed or not")
def llama_index(server):
    options = {"model": server.name, "api_base": f"{server.url}/v1", "api_key": "none", "max_retries": 0}
    model = OpenAILike(is_chat_model=True, context_window=512, temperature=0, max_tokens=30, **options)
    message = ChatMessage(role="user", content=QUESTION)
    whole = model.chat([message]).message.content
    parts = [part.delta or "" for part in model.stream_chat([message])]
    equal("".join(parts), whole, "the streamed chat")
    model = OpenAILike(is_chat_model=False, context_window=512, temperature=0, max_tokens=30, **options)
    text = model.complete(QUESTION).text
    parts = [part.delta or "" for part in model.stream_complete(QUESTION)]
    equal("".join(parts), text, "the streamed completion")


def main():
    args = arguments(__doc__).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        template = Path(folder) / "template.jinja"
        template.write_text(TEMPLATE)
        with Server(args.binary, args.model, "--chat-template", template) as server:
            server.name = Path(args.model).name
            check.run(server)
    check.finish()


if __name__ == "__main__":
    main()
