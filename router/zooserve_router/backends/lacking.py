"""The last word on what a backend lacks: the edge refuses what a caller may not ask, this what the router would add."""

from zooserve.catalogue import Feature, Model
from zooserve.errors import Unsupported
from zooserve_router.chat.generation import Conversation, Generation, Work

__all__ = ["refuse_lacking"]


def refuse_lacking(work: Work, model: Model) -> None:
    """Raises Unsupported naming the first feature that this work takes and the model's backend does not have."""
    for feature, wanted in _wanted(work).items():
        if wanted and feature not in model.chat_backend.features:
            message = f"Unsupported parameter: '{feature}' is not available with {model.name}."
            raise Unsupported(message, param=feature)


def _wanted(work: Work) -> dict[Feature, bool]:
    sampling, constraint = work.sampling, work.constraint
    wanted: dict[Feature, bool] = {
        "completions": isinstance(work, Generation),
        "json_object": constraint is not None and constraint.schema is None,
        "json_schema": constraint is not None and constraint.schema is not None,
        "logit_bias": bool(sampling.logit_bias),
        "logprobs": sampling.logprobs is not None,
        "penalties": bool(sampling.frequency_penalty or sampling.presence_penalty),
    }
    if isinstance(work, Conversation):
        wanted["n"] = work.n > 1
        wanted["tools"] = bool(work.tools)
        wanted["tool_choice"] = bool(work.tools) and work.tool_choice.mode in ("required", "function")
    return wanted
