"""Requests in OpenAI's words: a conversation or a rendered prompt as the body that an upstream is sent.

Only what the model's features allow is ever asked, and what asks for nothing is left out.
"""

from collections.abc import Mapping
from typing import Any

from zooserve.catalogue import Model
from zooserve.errors import Unsupported
from zooserve_router.backends.lacking import refuse_lacking
from zooserve_router.backends.servers import DIALECTS, Dialect
from zooserve_router.chat.generation import Constraint, Conversation, Generation, Sampling, Tool

__all__ = ["chat_body", "completion_body"]


def chat_body(work: Conversation, model: Model) -> dict[str, Any]:
    """For /chat/completions. Raises Unsupported for what this model's backend lacks."""
    refuse_lacking(work, model)
    dialect = DIALECTS[model.chat_backend.server]
    return {
        **work.passed_on,
        **_common(work.sampling, model, dialect),
        "messages": list(work.messages),
        dialect.limit: work.sampling.max_tokens,
        **({} if work.n == 1 else {"n": work.n}),
        **_chat_logprobs(work.sampling),
        **_response_format(work.constraint),
        **_tools(work),
    }


def completion_body(work: Generation, model: Model) -> dict[str, Any]:
    """For /completions. Raises Unsupported for what this model's backend lacks."""
    if work.lora is not None:
        raise Unsupported(f"{model.name} has no adapters: over OpenAI's API each is a model of its own.", param="model")
    refuse_lacking(work, model)
    logprobs = work.sampling.logprobs
    return {
        **work.passed_on,
        **_common(work.sampling, model, DIALECTS[model.chat_backend.server]),
        "prompt": list(work.ids) or work.prompt,
        "max_tokens": work.sampling.max_tokens,
        **({} if logprobs is None else {"logprobs": logprobs}),
        **_response_format(work.constraint),
    }


def _common(sampling: Sampling, model: Model, dialect: Dialect) -> dict[str, Any]:
    features, biased = model.chat_backend.features, sampling.logit_bias
    return {
        **dialect.extras,
        "model": model.chat_backend.model or model.name,
        "stream": True,
        "stream_options": {"include_usage": True},
        **({"temperature": sampling.temperature} if dialect.states_defaults or sampling.temperature != 1.0 else {}),
        **({"top_p": sampling.top_p} if dialect.states_defaults or sampling.top_p != 1.0 else {}),
        **_penalties(sampling, model, dialect),
        **({"seed": sampling.seed % dialect.seeds} if "seed" in features else {}),
        **({"stop": list(sampling.stop)} if sampling.stop else {}),
        **({"logit_bias": {str(token): bias for token, bias in biased.items()}} if biased else {}),
    }


def _penalties(sampling: Sampling, model: Model, dialect: Dialect) -> dict[str, Any]:
    named = {"frequency_penalty": sampling.frequency_penalty, "presence_penalty": sampling.presence_penalty}
    asked: dict[str, Any] = {name: value for name, value in named.items() if value}
    if asked and dialect.penalty_window is not None:
        asked[dialect.penalty_window] = model.limits.max_tokens
    return asked


def _chat_logprobs(sampling: Sampling) -> dict[str, Any]:
    if sampling.logprobs is None:
        return {}
    return {"logprobs": True, **({"top_logprobs": sampling.logprobs} if sampling.logprobs else {})}


def _response_format(constraint: Constraint | None) -> dict[str, Any]:
    if constraint is None:
        return {}
    if constraint.schema is None:
        return {"response_format": {"type": "json_object"}}
    schema: dict[str, Any] = {"name": constraint.name, "schema": constraint.schema, "strict": constraint.strict}
    if constraint.description is not None:
        schema["description"] = constraint.description
    return {"response_format": {"type": "json_schema", "json_schema": schema}}


def _tools(work: Conversation) -> dict[str, Any]:
    if not work.tools:
        return {}
    return {
        "tools": [{"type": "function", "function": _function(tool)} for tool in work.tools],
        **_tool_choice(work),
        **({} if work.parallel_tool_calls else {"parallel_tool_calls": False}),
    }


def _tool_choice(work: Conversation) -> dict[str, Any]:
    choice = work.tool_choice
    if choice.mode == "auto":
        return {}
    if choice.mode == "function":
        return {"tool_choice": {"type": "function", "function": {"name": choice.name}}}
    return {"tool_choice": choice.mode}


def _function(tool: Tool) -> Mapping[str, Any]:
    return {
        "name": tool.name,
        **({} if tool.description is None else {"description": tool.description}),
        "parameters": tool.parameters,
        **({"strict": True} if tool.strict else {}),
    }
