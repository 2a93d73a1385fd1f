"""Probes of how an answer is sampled and ended."""

from zooserve.leaf.conformance.endpoint import Response
from zooserve.leaf.conformance.probe import Probe, Subject, Violation, output_of, require, text_of
from zooserve.leaf.contract import DEFAULT_MAX_TOKENS

__all__ = ["PROBES"]

_SEEDS = (7, 8, 9)


async def _one_response(subject: Subject) -> str:
    await subject.answer()
    return "one response without streaming"


async def _max_tokens(subject: Subject) -> str:
    short, long = [
        await subject.streamed(sampling_param_max_tokens=count, return_finish_reason=True) for count in (2, 8)
    ]
    for count, responses in ((2, short), (8, long)):
        require(len(responses) <= count + 1, f"max_tokens {count} gave {len(responses)} messages, one a token at most")
        reason = output_of(responses[-1], "finish_reason")
        require(reason in ("length", "stop"), f"an answer cut at {count} tokens ended with {reason}, not length")
    require(text_of(long[-1]).startswith(text_of(short[-1])), "two tokens are not the beginning of eight")
    default = await subject.all(streaming=True, sampling_param_exclude_input_from_output=True)
    most = DEFAULT_MAX_TOKENS + 1
    require(len(default) <= most, f"without max_tokens {len(default)} messages came: the default is {most - 1} tokens")
    return f"2, 8 and the default of {DEFAULT_MAX_TOKENS} are kept"


async def _finish_reasons(subject: Subject) -> str:
    responses = await subject.streamed(return_finish_reason=True, sampling_param_max_tokens=8)
    reasons = [output_of(response, "finish_reason") for response in responses]
    early = sorted({reason for reason in reasons[:-1] if reason != "None"})
    require(not early, f"a message before the last says finish_reason {', '.join(early)}")
    require(reasons[-1] in ("stop", "length"), f"the last message says finish_reason {reasons[-1]}")
    return f"None until the last message, then {reasons[-1]}"


async def _stop_strings(subject: Subject) -> str:
    whole = text_of(await subject.answer())
    stop = whole[len(whole) // 3 : len(whole) // 3 + 8]
    if not stop.strip():
        raise Violation(f"the answer {whole!r} is too short to be stopped: give a --prompt that is answered at length")
    responses = await subject.streamed(
        sampling_param_stop=["never to be written \N{SNOWMAN}", stop],
        return_finish_reason=True,
        return_stop_reason=True,
    )
    leaked = [text_of(response) for response in responses if stop in text_of(response)]
    require(not leaked, f"the stop string {stop!r} is in the text: {leaked[-1:]!r}")
    expected = whole[: whole.index(stop)]
    require(text_of(responses[-1]) == expected, f"the text ended as {text_of(responses[-1])!r}, not as {expected!r}")
    ended = output_of(responses[-1], "finish_reason"), output_of(responses[-1], "stop_reason")
    require(ended == ("stop", stop), f"finish_reason and stop_reason are {ended}, not stop and the stop string")
    return f"{stop!r} is found over tokens, told, and not in the text"


async def _seed(subject: Subject) -> str:
    texts = {seed: text_of(await _sampled(subject, seed)) for seed in _SEEDS}
    again = text_of(await _sampled(subject, _SEEDS[0]))
    require(again == texts[_SEEDS[0]], f"seed {_SEEDS[0]} gave {texts[_SEEDS[0]]!r}, and then {again!r}")
    require(len(set(texts.values())) > 1, "three seeds at temperature 1 all give the same text")
    return "the same seed gives the same text, another seed another"


async def _sampled(subject: Subject, seed: int) -> Response:
    return await subject.answer(sampling_param_temperature=1.0, sampling_param_seed=seed)


PROBES = (
    Probe("one-response", None, "sends one response where nothing is streamed", _one_response),
    Probe("max-tokens", None, "keeps max_tokens, 32 where none is named", _max_tokens),
    Probe("finish-reasons", None, "says why it ended in the last message alone", _finish_reasons),
    Probe("stop-strings", None, "ends before a stop string and does not leak it", _stop_strings),
    Probe("seed", None, "repeats an answer by its seed", _seed),
)
