"""Requests in Anthropic's words: an OpenAI conversation as the body of POST /messages.

There the system prompt stands apart, turns alternate, a tool's result is a part of the user's turn, and arguments are
objects instead of text.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from zooserve.catalogue import Model
from zooserve.errors import BadInput
from zooserve_router.backends.lacking import refuse_lacking
from zooserve_router.chat.generation import Conversation, Message, Sampling, Tool

__all__ = ["messages_body"]

_DATA_URL = re.compile(r"data:(?P<media>[\w.+-]+/[\w.+-]+);base64,(?P<data>.+)", re.S)
_SYSTEM = ("system", "developer")
_EFFORTS = ("low", "medium", "high", "xhigh", "max")

Block = dict[str, Any]


def messages_body(work: Conversation, model: Model) -> dict[str, Any]:
    """The whole body. Raises BadInput for what Anthropic's API cannot be told, Unsupported for what it lacks."""
    refuse_lacking(work, model)
    system = "\n\n".join(filter(None, (_plain(message) for message in work.messages if message["role"] in _SYSTEM)))
    return {
        "model": model.chat_backend.model or model.name,
        "max_tokens": work.sampling.max_tokens,
        "stream": True,
        **({"system": system} if system else {}),
        "messages": _turns(work),
        **_sampling(work.sampling),
        **_tools(work),
        **_output(work),
        **({"metadata": {"user_id": work.passed_on["user"]}} if work.passed_on.get("user") else {}),
    }


def _turns(work: Conversation) -> list[dict[str, Any]]:
    """Turns that alternate: messages of one side that follow each other are one turn."""
    turns: list[dict[str, Any]] = []
    for index, message in enumerate(work.messages):
        if message["role"] in _SYSTEM:
            continue
        role = "assistant" if message["role"] == "assistant" else "user"
        blocks = list(_blocks(message, f"messages[{index}]"))
        if blocks and turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        elif blocks:
            turns.append({"role": role, "content": blocks})
    if not turns or turns[0]["role"] != "user":
        raise BadInput("This model wants a conversation that begins with a user's message.", param="messages")
    return turns


def _blocks(message: Message, where: str) -> Iterator[Block]:
    if message["role"] == "tool":
        content = list(_content(message, where))
        yield {
            "type": "tool_result",
            "tool_use_id": message["tool_call_id"],
            **({"content": content} if content else {}),
        }
        return
    yield from _content(message, where)
    for index, call in enumerate(message.get("tool_calls") or ()):
        yield _tool_use(call, f"{where}.tool_calls[{index}].function.arguments")


def _content(message: Message, where: str) -> Iterator[Block]:
    """The parts of a message; empty texts are left out, which Anthropic refuses."""
    content = message.get("content") or message.get("refusal") or ""
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    for index, part in enumerate(parts):
        if part["type"] == "image_url":
            yield {
                "type": "image",
                "source": _image(part["image_url"]["url"], f"{where}.content[{index}].image_url.url"),
            }
        elif text := part.get("text") or part.get("refusal"):
            yield {"type": "text", "text": text}


def _image(url: str, where: str) -> Mapping[str, str]:
    if found := _DATA_URL.fullmatch(url):
        return {"type": "base64", "media_type": found["media"], "data": found["data"]}
    if url.startswith(("https://", "http://")):
        return {"type": "url", "url": url}
    raise BadInput("An image is a `data:` URL in base64, or an https address.", param=where)


def _tool_use(call: Mapping[str, Any], where: str) -> Block:
    function = call["function"]
    try:
        arguments = orjson.loads(function.get("arguments") or "{}")
    except orjson.JSONDecodeError:
        arguments = None
    if not isinstance(arguments, dict):
        raise BadInput("The arguments of a call must be a JSON object for this model.", param=where)
    return {"type": "tool_use", "id": call["id"], "name": function["name"], "input": arguments}


def _plain(message: Message) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def _sampling(sampling: Sampling) -> dict[str, Any]:
    if sampling.temperature > 1:
        raise BadInput(f"`temperature` is {sampling.temperature:g}; this model takes 0 to 1.", param="temperature")
    return {
        **({} if sampling.temperature == 1 else {"temperature": sampling.temperature}),
        **({} if sampling.top_p == 1 else {"top_p": sampling.top_p}),
        **({"stop_sequences": list(sampling.stop)} if sampling.stop else {}),
    }


def _tools(work: Conversation) -> dict[str, Any]:
    if not work.tools:
        return {}
    return {"tools": [_tool(tool) for tool in work.tools], "tool_choice": _tool_choice(work)}


def _tool(tool: Tool) -> Mapping[str, Any]:
    return {
        "name": tool.name,
        **({} if tool.description is None else {"description": tool.description}),
        "input_schema": {"type": "object", **tool.parameters},
        **({"strict": True} if tool.strict else {}),
    }


def _tool_choice(work: Conversation) -> Mapping[str, Any]:
    mode = work.tool_choice.mode
    if mode == "none":
        return {"type": "none"}
    one_call = {} if work.parallel_tool_calls else {"disable_parallel_tool_use": True}
    if mode == "function":
        return {"type": "tool", "name": work.tool_choice.name, **one_call}
    return {"type": "any" if mode == "required" else "auto", **one_call}


def _output(work: Conversation) -> dict[str, Any]:
    """How the answer is to be written: its schema, and how much thought goes into it."""
    config: dict[str, Any] = {}
    if work.constraint is not None:
        config["format"] = {"type": "json_schema", "schema": work.constraint.schema}
    if work.passed_on.get("reasoning_effort") in _EFFORTS:
        config["effort"] = work.passed_on["reasoning_effort"]
    return {"output_config": config} if config else {}
