"""24 chats at once: do 95 of 100 see their first token, and their whole answer, in time? Each is judged by itself.

    python benchmarks/chat_slo.py [--first-ms 900] [--whole-s 5] [--record FILE]
    python benchmarks/chat_slo.py --judge FILE [--first-ms 900] [--whole-s 5]

24 clients ask the model `chat` through the router, streamed, each its next question once the last is answered. A
percentile is by rank: the 95th of 100 sorted values, no mean of two. A chat that fails counts as one that takes for
ever. The exit code is 1 if either target is missed, 2 if there is nothing to judge.
"""

import argparse
import asyncio
import sys
from datetime import UTC, datetime
from pathlib import Path

from chat_judging import Finding, Run, Targets, Timing, judged
from chat_streams import EventClient, StreamFailed, distinct_questions
from load import add_addresses


async def measured(router: str, model: str, chats: int, concurrency: int, words: int, max_tokens: int) -> Run:
    """So many chats, that many at once, after one each that is not counted."""
    client = EventClient(router.removeprefix("http://"), model)
    questions = distinct_questions(chats + concurrency, words, seed=datetime.now(UTC).microsecond)
    try:
        await _all(client, questions[chats:], concurrency, max_tokens=4)
        timings = await _all(client, questions[:chats], concurrency, max_tokens)
    finally:
        await client.close()
    about = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "model": model,
        "concurrency": concurrency,
        "words": words,
        "max_tokens": max_tokens,
    }
    return Run(about, tuple(timings))


async def _all(client: EventClient, questions: list[str], concurrency: int, max_tokens: int) -> list[Timing]:
    upcoming = iter(questions)
    timings: list[Timing] = []

    async def one() -> None:
        timings.extend([await _timed(client, question, max_tokens) for question in upcoming])

    await asyncio.gather(*(one() for _ in range(concurrency)))
    return timings


async def _timed(client: EventClient, question: str, max_tokens: int) -> Timing:
    try:
        heard = await client.ask(question, max_tokens)
    except (StreamFailed, OSError) as exc:
        return Timing(None, None, error=str(exc)[:200])
    return Timing(round(heard.first_s * 1000, 1), round(heard.whole_s * 1000, 1), heard.completion_tokens)


def table(run: Run, findings: tuple[Finding, ...]) -> str:
    """What was run and found, as a Markdown table."""
    failed = [chat.error for chat in run.chats if chat.whole_ms is None]
    tokens = sum(chat.completion_tokens for chat in run.chats)
    about = ", ".join(f"{name} {value}" for name, value in run.about.items())
    return "\n".join(
        [
            f"{len(run.chats)} chats ({about}), {tokens} tokens, {len(failed)} failed{failed[:1] or ''}",
            "",
            "| | p50, ms | p95, ms | target, ms | |",
            "|---|---|---|---|---|",
            *(
                f"| {finding.what} | {finding.p50_ms:,.0f} | {finding.p95_ms:,.0f} | {finding.target_ms:,.0f} "
                f"| {'kept' if finding.kept else '**MISSED**'} |"
                for finding in findings
            ),
        ]
    )


def options() -> argparse.Namespace:
    """The command line; a platform is needed only to measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--judge", type=Path, metavar="FILE", help="judge a recorded run instead of measuring one")
    parser.add_argument("--first-ms", type=float, default=Targets.first_ms, help="p95 of the first visible token")
    parser.add_argument("--whole-s", type=float, default=Targets.whole_ms / 1000, help="p95 of the complete answer")
    parser.add_argument("--record", type=Path, metavar="FILE", help="keep the timings")
    parser.add_argument("--model", default="chat")
    parser.add_argument("--chats", type=int, default=120)
    parser.add_argument("--concurrency", type=int, default=24)
    parser.add_argument("--words", type=int, default=40, help="length of a question")
    parser.add_argument("--max-tokens", type=int, default=32)
    add_addresses(parser, needed=False)
    return parser.parse_args()


def run_of(given: argparse.Namespace) -> Run:
    """The recorded run, or a new one. Raises ValueError or OSError without either."""
    if given.judge is not None:
        return Run.from_json(given.judge.read_text(encoding="utf-8"))
    if given.router is None:
        raise ValueError("no platform runs: `zooserve up` first, name one with --router, or --judge a recorded run")
    how = (given.model, given.chats, given.concurrency, given.words, given.max_tokens)
    run = asyncio.run(measured(given.router, *how))
    if given.record is not None:
        given.record.write_text(run.to_json(), encoding="utf-8")
    return run


def main() -> None:
    given = options()
    try:
        run = run_of(given)
    except (ValueError, OSError) as exc:
        print(exc, file=sys.stderr)
        sys.exit(2)
    findings = judged(run.chats, Targets(given.first_ms, given.whole_s * 1000))
    print(table(run, findings))
    sys.exit(not all(finding.kept for finding in findings))


if __name__ == "__main__":
    main()
