"""Probes of the text: cumulative, with the prompt in front unless asked not to, of whole characters."""

from itertools import pairwise

from zooserve.leaf.conformance.probe import Probe, Subject, require, text_of

__all__ = ["PROBES"]

_HALF = "\N{REPLACEMENT CHARACTER}"
_WIDE = "Repeat exactly: 🎉🎊🦄 日本語 ñ 🎉🎊🦄 日本語 ñ 🎉🎊🦄 日本語 ñ"


async def _cumulative(subject: Subject) -> str:
    whole = text_of(await subject.answer())
    texts = [text_of(response) for response in await subject.streamed()]
    require(len(texts) > 1, "the whole streamed answer came in one message")
    for earlier, later in pairwise(texts):
        require(later.startswith(earlier.rstrip(_HALF)), f"after {earlier!r} came {later!r}, which does not contain it")
    require(texts[-1] == whole, f"the stream ended as {texts[-1]!r}, the same request not streamed gave {whole!r}")
    return f"{len(texts)} messages, each the whole text so far"


async def _echo(subject: Subject) -> str:
    responses = await subject.all(sampling_param_max_tokens=4)
    require(len(responses) == 1, f"without streaming one response must come, and {len(responses)} did")
    echoed = text_of(responses[0]).strip()
    require(echoed.startswith(subject.prompt.strip()), f"the prompt is not in front of the answer: {echoed!r}")
    bare = text_of(await subject.answer(sampling_param_max_tokens=4)).strip()
    require(not bare.startswith(subject.prompt.strip()), "the prompt is echoed in spite of exclude_input_from_output")
    return "the prompt is echoed, and left out on request"


async def _first_text(subject: Subject) -> str:
    alone = text_of(await subject.answer())
    both = text_of(await subject.answer(text_input=[subject.prompt, "Count to three: one,"]))
    require(both == alone, f"a second text changed the answer from {alone!r} to {both!r}")
    return "a second text is dropped without a word: N prompts are N requests"


async def _whole_characters(subject: Subject) -> str:
    responses = await subject.streamed(text_input=_WIDE, sampling_param_max_tokens=40)
    final = text_of(responses[-1])
    require(_HALF not in final.rstrip(_HALF), f"a broken character stands inside the text: {final!r}")
    return "no broken character inside the final text"


PROBES = (
    Probe("cumulative-text", 1, "sends the whole text so far in each message of a stream", _cumulative),
    Probe("echo", None, "puts the prompt in front unless exclude_input_from_output", _echo),
    Probe("first-text-only", 6, "uses text_input[0] alone", _first_text),
    Probe("whole-characters", None, "ends with whole characters", _whole_characters),
)
