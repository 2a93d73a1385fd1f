"""Functions, and the calls and results of the conversation so far, told to the model in words that its family knows.

As text, not as `tools` of the request: a template that does not know functions drops them without a word, and calls
gone by with them (measured with llama.cpp's server and a ChatML template), and nothing says which template is over
there.
"""

from collections.abc import Sequence
from typing import Any

from zooserve_router.chat.generation import Message, Tool, ToolChoice
from zooserve_router.chat.tools.families import Family, parsed_arguments

__all__ = ["with_history_told", "with_tools_told"]


def with_tools_told(
    messages: Sequence[Message], family: Family, tools: Sequence[Tool], choice: ToolChoice
) -> list[Message]:
    """The messages with the functions at the end of the system message, which is put in front if there is none."""
    told = f"You can call these functions:\n{family.tools_text(tools)}\n{_rule(family, choice)}"
    if messages and messages[0]["role"] == "system":
        first = messages[0]
        return [{**first, "content": f"{first['content']}\n\n{told}"}, *messages[1:]]
    return [{"role": "system", "content": told}, *messages]


def _rule(family: Family, choice: ToolChoice) -> str:
    if choice.mode == "auto":
        return (
            f"To call one, answer with the JSON {family.shape} alone. "
            'To answer in words, write {"message": <your answer>}.'
        )
    return f"Answer with the JSON {family.shape} alone."


def with_history_told(messages: Sequence[Message], family: Family) -> list[Message]:
    """The messages with calls in the assistant's words, and the results of functions in the user's.

    Results that follow one another, and what the user says after them, are one message: templates want turns.
    """
    told: list[Message] = []
    names: dict[str, str] = {}
    waiting: list[tuple[str | None, str]] = []
    for message in messages:
        if message["role"] == "tool":
            waiting.append((names.get(str(message.get("tool_call_id"))), str(message.get("content") or "")))
            continue
        names.update({str(call["id"]): str(call["function"]["name"]) for call in _calls_of(message)})
        told += _results_before(message, waiting, family)
        waiting = []
    return told + _results(waiting, family)


def _results_before(message: Message, waiting: Sequence[tuple[str | None, str]], family: Family) -> list[Message]:
    """The message, after the results that came before it."""
    if waiting and message["role"] == "user" and isinstance(message["content"], str):
        return [{**message, "content": f"{family.results_text(waiting)}\n{message['content']}"}]
    return [*_results(waiting, family), _with_calls_told(message, family)]


def _results(waiting: Sequence[tuple[str | None, str]], family: Family) -> list[Message]:
    return [{"role": "user", "content": family.results_text(waiting)}] if waiting else []


def _with_calls_told(message: Message, family: Family) -> Message:
    calls = _calls_of(message)
    if not calls:
        return message
    made = [call["function"] for call in calls]
    text = family.calls_text((function["name"], parsed_arguments(function["arguments"])) for function in made)
    content = f"{message['content']}\n{text}" if message.get("content") else text
    return {**{name: value for name, value in message.items() if name != "tool_calls"}, "content": content}


def _calls_of(message: Message) -> Sequence[dict[str, Any]]:
    return message.get("tool_calls") or ()
