"""Probes of what the server declares: the contract's tensors, and none of what it lacks."""

from collections.abc import Iterator, Mapping

from zooserve.leaf.conformance.endpoint import TensorShape
from zooserve.leaf.conformance.probe import NotApplicable, Probe, Subject, Violation, require
from zooserve.leaf.contract import INPUTS, OUTPUTS, Tensor
from zooserve.leaf.release import known_releases, load_release

__all__ = ["PROBES"]

# What clients of other servers send, and this contract has no tensor for.
_LACKED = frozenset(
    {"n", "num_return_sequences", "logprobs", "top_logprobs", "return_log_probs", "logit_bias"}
    | {"guided_json", "guided_decoding_guide", "guided_decoding_guide_type", "response_format", "json_schema"}
    | {"input_ids", "prompt_token_ids", "messages", "chat_template", "tools", "priority"}
    | {"prompt_tokens", "completion_tokens"}
)
# What Triton's own OpenAI frontend sends to a TensorRT-LLM model, and its engine path reads.
_FRONTENDS = frozenset(
    {"max_tokens", "min_length", "stop_words", "bad_words", "stream", "end_id", "pad_id", "random_seed", "beam_width"}
    | {"temperature", "top_k", "top_p", "presence_penalty", "frequency_penalty", "repetition_penalty"}
)


async def _tensors(subject: Subject) -> str:
    outputs = list(_differences("output", OUTPUTS, subject.shape.outputs))
    for release in reversed(known_releases()):
        if not outputs and not list(_differences("input", load_release(release).inputs, subject.shape.inputs)):
            return f"tensor for tensor those of release {release}"
    raise Violation("; ".join([*_differences("input", INPUTS, subject.shape.inputs), *outputs]))


def _differences(side: str, wanted: Mapping[str, Tensor], found: Mapping[str, TensorShape]) -> Iterator[str]:
    for name, tensor in wanted.items():
        if name not in found:
            yield f"{side} {name} is missing"
        elif (found[name].datatype, found[name].dims) != (tensor.datatype, tensor.dims):
            has = f"{found[name].datatype} {list(found[name].dims)}"
            yield f"{side} {name} is {has}, the contract has {tensor.datatype} {list(tensor.dims)}"
        elif found[name].optional != tensor.optional:
            yield f"{side} {name} must {'' if tensor.optional else 'not '}be optional"
    yield from (f"the contract has no {side} {name}" for name in found if name not in wanted)


async def _decoupled(subject: Subject) -> str:
    require(subject.shape.decoupled, "the model is not decoupled: nothing can be streamed")
    size = subject.shape.max_batch_size
    require(size == 0, f"max_batch_size is {size}: the wrapper takes one prompt a request, it must be 0")
    return "decoupled, max_batch_size 0"


async def _lacks(subject: Subject) -> str:
    offered = sorted(_LACKED & (set(subject.shape.inputs) | set(subject.shape.outputs)))
    require(not offered, f"the contract has no {', '.join(offered)}: the router would never send or read it")
    return "no n, logprobs, guided decoding, token ids, messages or counts, as the contract"


async def _names(subject: Subject) -> str:
    shared = sorted(_FRONTENDS & set(subject.shape.inputs))
    require(not shared, f"inputs named as Triton's OpenAI frontend names them: {', '.join(shared)}")
    if not subject.endpoint.refuses_unknown_inputs:
        return "none of the frontend's names is an input; over HTTP they would be ignored without a word"
    responses = await subject.all(max_tokens=4)
    refused = [response for response in responses if response.error is not None]
    require(bool(refused), "an input called max_tokens is taken without a word, and the model has none")
    return f"the frontend's max_tokens is refused: {refused[0].error}"


async def _lora(subject: Subject) -> str:
    if "lora_path" not in subject.shape.inputs:
        raise NotApplicable("this release has no lora_path")
    # A plain answer would mean that adapters are ignored, and that any path of the server's disk is taken.
    nowhere = "/nonexistent/zooserve-leaf-check"
    responses = await subject.all(
        lora_id=2**63, lora_name="zooserve-leaf-check", lora_path=nowhere, sampling_param_max_tokens=2
    )
    errors = [response.error for response in responses if response.error is not None]
    require(bool(errors), "an adapter whose folder is not there was ignored: the answer came from the base model")
    return f"an adapter that is not there is an error: {errors[0]}"


PROBES = (
    Probe("tensors", None, "declares exactly the tensors of a known release", _tensors),
    Probe("decoupled", None, "is decoupled, and leaves batching to the engine", _decoupled),
    Probe("lacks", 3, "has no n, logprobs, guided decoding or token ids", _lacks),
    Probe("names-unlike-the-frontend", 10, "has other names than Triton's OpenAI frontend sends", _names),
    Probe("lora-path", 9, "does not ignore an adapter that is not there", _lora),
)
