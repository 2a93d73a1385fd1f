"""What a request to /v1/responses asks for: every field served, passed on, or refused with the reason.

Nothing is stored here, so what refers to something stored is refused.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from zooserve.catalogue import Catalogue, Model
from zooserve.errors import BadInput, Unsupported
from zooserve_router.chat.ask import Ask
from zooserve_router.chat.asking import ask_of_conversation
from zooserve_router.chat.generation import Conversation, Message, Sampling, Tool
from zooserve_router.chat.service import ChatService
from zooserve_router.endpoints.asked import parallel_calls_asked
from zooserve_router.endpoints.extras import bookkeeping_asked, forwarded_headers, passed_on
from zooserve_router.endpoints.features import needs_of, refuse_lacking
from zooserve_router.endpoints.responses.input import input_in
from zooserve_router.endpoints.responses.refusals import refuse_foreign, refuse_stored
from zooserve_router.endpoints.responses.text import TextForm
from zooserve_router.endpoints.responses.tools import chosen_tool, offered_tools, told_tool
from zooserve_router.endpoints.sampling import sampling_asked, stream_options_asked
from zooserve_router.lineup import Lineup
from zooserve_router.payload import Fields, kind_of, shown

__all__ = ["ResponseRequest", "in_own_words"]

_LOGPROBS = "message.output_text.logprobs"
_OF_HOSTED_TOOLS = (
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    "web_search_call.action.sources",
    "web_search_call.results",
)
"""What `include` may name of items that never come to be here."""
_MAX_TOP_LOGPROBS = 20
_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")

_NEVER: Mapping[str, Any] = {
    "background": False,
    "previous_response_id": None,
    "store": False,
    "truncation": "disabled",
}
"""What every response says of what is not to be had here."""

_NAMED = {
    "logprobs": "include",
    "reasoning_effort": "reasoning.effort",
    "response_format": "text.format",
    "verbosity": "text.verbosity",
}
"""What parameters of /v1/chat/completions are called here."""

_MESSAGES = re.compile(r"messages(\[(?P<index>\d{1,5})\])?(?P<rest>.*)", re.DOTALL)


@dataclass(frozen=True)
class ResponseRequest:
    """One parsed and checked request."""

    model: Model
    conversation: Conversation
    origins: tuple[str, ...]
    """The field of the request that each message came from."""
    max_output_tokens: int | None
    stream: bool
    asked: Mapping[str, Any]
    """What the response repeats of it, defaults filled in."""

    @classmethod
    def parse(cls, fields: Fields, lineup: Lineup, headers: Mapping[str, str]) -> "ResponseRequest":
        """Raises BadInput or ModelNotFound, naming the field at fault."""
        refuse_foreign(fields)
        refuse_stored(fields)
        model = lineup.find_model(fields.required_text("model"), "chat")
        read = input_in(fields.required("input"), fields.text("instructions"))
        text, tools = TextForm.asked(fields), offered_tools(fields)
        conversation = replace(
            _conversation(fields, read.messages, text, tools),
            passed_on=_passed_on(fields, model, text),
            headers=forwarded_headers(headers, model.chat_backend),
            cache_key=fields.text("prompt_cache_key"),
        )
        parsed = cls(
            model=model,
            conversation=conversation,
            origins=read.origins,
            max_output_tokens=fields.integer("max_output_tokens", low=1),
            stream=_streamed(fields),
            asked=_told(fields, model, conversation, text, tools),
        )
        fields.refuse_unknown()
        return parsed

    async def ask(self, service: ChatService, catalogue: Catalogue) -> Ask:
        """The request in tokens. Raises Unsupported for what the model's backend lacks."""
        with in_own_words(self.origins):
            refuse_lacking(needs_of(self.conversation), self.model, catalogue)
            chat = service.ready_model(self.model)
            return await ask_of_conversation(chat, self.conversation, self.max_output_tokens)


@contextmanager
def in_own_words(origins: Sequence[str] = ()) -> Iterator[None]:
    """Refusals in the terms of chat become those of this API.

    `origins` are the fields that the messages came from; without them it was `input`, as far as can be told.
    """
    try:
        yield
    except BadInput as error:
        given = error.param or ""
        own = _own_param(given, origins)
        if own == given:
            raise
        message = error.message.replace(f"'{given}'", f"'{own}'").replace(f"`{given}`", f"`{own}`")
        raise type(error)(message, param=own, code=error.code) from error


def _own_param(given: str, origins: Sequence[str]) -> str:
    found = _MESSAGES.fullmatch(given)
    if not found:
        return _NAMED.get(given, given)
    index = int(found["index"] or len(origins))
    if index >= len(origins):
        return "input"
    has_content = origins[index].startswith("input[") and found["rest"].startswith(".content")
    return origins[index] + found["rest"] if has_content else origins[index]


def _conversation(
    fields: Fields, messages: tuple[Message, ...], text: TextForm, tools: tuple[Tool, ...]
) -> Conversation:
    callable_tools, choice = chosen_tool(fields, tools)
    return Conversation(
        messages,
        _sampling(fields),
        constraint=text.constraint,
        tools=callable_tools,
        tool_choice=choice,
        parallel_tool_calls=parallel_calls_asked(fields),
    )


def _sampling(fields: Fields) -> Sampling:
    """How to sample: of the fields that other routes read, those that this API has."""
    own = Fields({name: fields.raw(name) for name in ("temperature", "top_p")})
    return replace(sampling_asked(own), logprobs=_logprobs(fields))


def _logprobs(fields: Fields) -> int | None:
    """`include` asks for those of the tokens said, `top_logprobs` also for the alternatives."""
    top = fields.integer("top_logprobs", low=0, high=_MAX_TOP_LOGPROBS)
    value = fields.raw("include")
    if not isinstance(value, list | None):
        raise BadInput(f"`include` is {kind_of(value)}; it must be an array.", param="include", code="invalid_type")
    included = [_includable(name, f"include[{index}]") for index, name in enumerate(value or ())]
    return (top or 0) if top or _LOGPROBS in included else None


def _includable(name: Any, path: str) -> str:
    if name == "reasoning.encrypted_content":
        raise Unsupported(f"`{path}`: reasoning is not encrypted here; leave it out.", param="include")
    if not isinstance(name, str) or name not in (_LOGPROBS, *_OF_HOSTED_TOOLS):
        known = ", ".join((_LOGPROBS, *_OF_HOSTED_TOOLS))
        raise BadInput(f"`{path}` is {shown(name)}; it must be one of: {known}.", param="include")
    return name


def _effort(fields: Fields) -> str | None:
    """`reasoning.effort`. Raises Unsupported for anything else about reasoning, since nobody here sums it up."""
    value = fields.raw("reasoning")
    if value is None:
        return None
    reasoning = Fields.of(value, "reasoning")
    for name in ("context", "generate_summary", "mode", "summary"):
        if reasoning.raw(name) is not None:
            path = reasoning.path(name)
            raise Unsupported(f"Unsupported parameter: '{path}' is not available here; leave it out.", param=path)
    effort = None if reasoning.raw("effort") is None else reasoning.choice("effort", _EFFORTS, default="none")
    reasoning.refuse_unknown()
    return effort


def _passed_on(fields: Fields, model: Model, text: TextForm) -> dict[str, Any]:
    """What the upstream gets: nothing about storing, and `metadata` is for what is stored.

    Raises Unsupported for what another backend would have to drop.
    """
    labels = bookkeeping_asked(fields)
    extras = {name: value for name, value in labels.items() if name not in ("metadata", "store")}
    verbosity = None if text.verbosity == "medium" else text.verbosity
    return passed_on(model, {**extras, "reasoning_effort": _effort(fields), "verbosity": verbosity}, _NAMED)


def _told(
    fields: Fields, model: Model, wanted: Conversation, text: TextForm, tools: tuple[Tool, ...]
) -> dict[str, Any]:
    """The request as its response repeats it: of the tools all that were offered, also where not all may be called."""
    return {
        "instructions": fields.raw("instructions"),
        "max_output_tokens": fields.raw("max_output_tokens"),
        "max_tool_calls": fields.integer("max_tool_calls", low=1),
        "model": model.public_name,
        "parallel_tool_calls": wanted.parallel_tool_calls,
        "reasoning": {"effort": _effort(fields), "summary": None},
        # As it was asked: the lowest ones are sampled greedily, which is no other number.
        "temperature": fields.number("temperature", low=0, high=2, default=1.0),
        "text": text.told(),
        "tool_choice": fields.raw("tool_choice") or "auto",
        "tools": [told_tool(tool) for tool in tools],
        "top_logprobs": wanted.sampling.logprobs or 0,
        "top_p": wanted.sampling.top_p,
        **_told_labels(bookkeeping_asked(fields), model),
        **_NEVER,
    }


def _told_labels(labels: Mapping[str, Any], model: Model) -> dict[str, Any]:
    """Here every request is served alike; an upstream does as it is asked, and does not say."""
    names = ("prompt_cache_key", "prompt_cache_retention", "safety_identifier", "user")
    tier = labels.get("service_tier", "auto") if model.chat_backend.is_upstream else "default"
    return {
        **{name: labels.get(name) for name in names},
        "metadata": labels.get("metadata", {}),
        "service_tier": tier,
    }


def _streamed(fields: Fields) -> bool:
    stream = fields.boolean("stream", default=False)
    if (options := stream_options_asked(fields, stream=stream)) is not None:
        options.refuse_unknown()
    return stream
