"""Are greedy answers the same alone and beside others? How many are not, where they part, and by what margin.

    python benchmarks/chat_greedy.py [--questions 64] [--max-tokens 48] [--concurrency 16] [--json]

Every question is asked through the router with temperature 0, alone and with others beside it; some are asked alone
twice. Where two answers part, llama.cpp itself is asked in this process, alone, for the two likeliest tokens after what
both have in common: a batch of another shape adds its sums in another order, which turns an answer where two tokens
were as good as equally likely. The same margin at places taken at random says how rare that is. The exit code is 1 if
an answer parts where the margin is wide.
"""

import argparse
import asyncio
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from chat_prompts import chat_models, greedy_generation
from chat_streams import EventClient, Heard, closed_loop, distinct_questions

from zooserve.leaf.llama import Llama, load_engine_settings
from zooserve.processes.state import StateFolder
from zooserve.settings import Settings
from zooserve_router.chat.models import ChatModel

NARROW = 0.5
"""Logits that differ by less may change places by rounding: with this engine's 8-bit activations answers parted at
margins below 0.075 on a processor with AVX-512, and below 0.34 with AVX2 alone. Half of all places have more than 1."""
SAMPLED_PLACES = 32


@dataclass(frozen=True)
class Parting:
    """Where the two answers to one question part."""

    question: str
    token: int
    """How many tokens they have in common."""
    common: str
    alone: str
    """The next token of the answer that was given alone."""
    beside: str
    margin: float
    """Between the two likeliest tokens there, in logits: log probabilities differ by the same amount."""


@dataclass(frozen=True)
class Found:
    """What the run gave."""

    questions: int
    concurrency: int
    tokens: int
    asked_twice: int
    differ_alone: int
    """Of those asked alone twice, how many got another answer."""
    partings: tuple[Parting, ...]
    usual_margins: tuple[float, ...]


class Model:
    """The leaf's model in this process, with one slot, asked for what it would say next."""

    def __init__(self, settings: Settings, chat: ChatModel) -> None:
        assert chat.tokenizer is not None
        knobs = settings.repository / "leaf" / chat.model.triton_model("interactive") / "1" / "model.yaml"
        self._llama = Llama(load_engine_settings(knobs).model_copy(update={"slots": 1}))
        self._chat = chat
        self._tokenizer = chat.tokenizer.tokenizer

    def tokens_of(self, text: str) -> list[int]:
        """The text in tokens."""
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def text_of(self, tokens: Sequence[int]) -> str:
        """The tokens as text."""
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=False))

    async def margin(self, question: str, beginning: str) -> float:
        """Between the two likeliest tokens after this beginning of an answer."""
        prompt = (await greedy_generation(self._chat, question, 1)).prompt + beginning
        chunks: list[dict[str, Any]] = []

        def keep(chunk: dict[str, Any]) -> bool:
            chunks.append(chunk)
            return False

        fields = {"max_tokens": 1, "temperature": 0.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "logprobs": 2}
        await asyncio.to_thread(self._llama.complete, prompt, fields, keep)
        choices = [choice for chunk in chunks for choice in chunk.get("choices", ())]
        likeliest = next(choice["logprobs"]["content"][0]["top_logprobs"] for choice in choices if choice["logprobs"])
        return float(likeliest[0]["logprob"] - likeliest[1]["logprob"])

    async def parting(self, question: str, alone: str, beside: str) -> Parting:
        """Where these two answers part."""
        one, other = self.tokens_of(alone), self.tokens_of(beside)
        shared = next((at for at, pair in enumerate(zip(one, other, strict=False)) if len(set(pair)) > 1), None)
        shared = min(len(one), len(other)) if shared is None else shared
        common = self.text_of(one[:shared])
        after = (self.text_of(tokens[shared : shared + 1]) for tokens in (one, other))
        return Parting(question, shared, common, *after, await self.margin(question, common))

    async def margin_somewhere(self, question: str, answer: str, chance: random.Random) -> float:
        """The margin at a place of this answer taken at random."""
        tokens = self.tokens_of(answer)
        return await self.margin(question, self.text_of(tokens[: chance.randrange(len(tokens))]))

    def close(self) -> None:
        """Free the model."""
        self._llama.close()


async def measured(router: str, settings: Settings, chat: ChatModel, given: argparse.Namespace) -> Found:
    """Ask alone, alone again, and beside others; then look at where answers part."""
    questions = distinct_questions(given.questions, given.words, seed=given.seed)
    client = EventClient(router, chat.model.name)
    try:
        alone = await closed_loop(client, questions, 1, given.max_tokens)
        again = await closed_loop(client, questions[: given.twice], 1, given.max_tokens)
        beside = await closed_loop(client, questions, given.concurrency, given.max_tokens)
    finally:
        await client.close()
    model = Model(settings, chat)
    try:
        partings = [
            await model.parting(question, one.text, other.text)
            for question, one, other in zip(questions, alone, beside, strict=True)
            if one.text != other.text
        ]
        usual = await _usual_margins(model, questions, alone, random.Random(given.seed))
    finally:
        model.close()
    return Found(
        questions=len(questions),
        concurrency=given.concurrency,
        tokens=sum(heard.completion_tokens for heard in alone),
        asked_twice=len(again),
        differ_alone=sum(one.text != other.text for one, other in zip(alone, again, strict=False)),
        partings=tuple(partings),
        usual_margins=tuple(usual),
    )


async def _usual_margins(
    model: Model, questions: Sequence[str], answers: Sequence[Heard], chance: random.Random
) -> list[float]:
    places = [chance.randrange(len(questions)) for _ in range(SAMPLED_PLACES)]
    return [await model.margin_somewhere(questions[at], answers[at].text, chance) for at in places]


def table(found: Found) -> str:
    """The figures as Markdown."""
    same = found.questions - len(found.partings)
    head = ["", "| parts after | alone | beside others | margin of logits |", "|---|---|---|---|"]
    rows = [f"| {at.token} tokens | {at.alone!r} | {at.beside!r} | {at.margin:.3f} |" for at in found.partings]
    lines = [
        f"{found.questions} greedy answers, {found.tokens} tokens: {same} the same alone and at concurrency "
        f"{found.concurrency}, **{len(found.partings)} part** "
        f"({100 * len(found.partings) / found.questions:.1f}% of answers). "
        f"Asked alone twice: {found.differ_alone} of {found.asked_twice} differ.",
        *(head + rows if rows else ()),
        "",
        f"At {len(found.usual_margins)} places taken at random the margin has the median "
        f"{statistics.median(found.usual_margins):.2f}; "
        f"{sum(margin < NARROW for margin in found.usual_margins)} of them are below {NARROW}.",
    ]
    return "\n".join(lines)


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="chat")
    parser.add_argument("--questions", type=int, default=64)
    parser.add_argument("--twice", type=int, default=16, help="how many are asked alone a second time")
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--words", type=int, default=40)
    parser.add_argument("--max-tokens", type=int, default=48)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**32)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def main() -> None:
    os.environ.setdefault(
        "GOMP_SPINCOUNT", "100"
    )  # llama.cpp decodes ten times slower beside a busy process without it
    given = options()
    settings = Settings().resolved()
    state = StateFolder(settings.state_dir).read_state()
    if state is None or not state.is_running:
        sys.exit("No platform runs from the state folder: `zooserve up` first.")
    found = asyncio.run(measured(state.router, settings, chat_models(settings)[given.model], given))
    print(json.dumps(asdict(found)) if given.json else table(found))
    sys.exit(any(parting.margin >= NARROW for parting in found.partings))


if __name__ == "__main__":
    main()
