"""Pieces of JSON become content and calls, each choice for itself, whatever ends them."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

import pytest

from zooserve.errors import BackendFailed
from zooserve_router.chat.generation import Piece, Usage
from zooserve_router.chat.tools.families import FAMILIES
from zooserve_router.chat.tools.reading import ToolReader


class Source:
    """A backend's answer that notices when nobody wants the rest."""

    def __init__(self, script: Sequence[Piece]) -> None:
        self.script = script
        self.given = 0
        self.closed = False

    async def pieces(self) -> AsyncGenerator[Piece, None]:
        try:
            for piece in self.script:
                self.given += 1
                yield piece
        finally:
            self.closed = True


def script(*texts: str, finish_reason: str = "stop", choice: int = 0) -> list[Piece]:
    return [*(Piece(text, choice=choice) for text in texts), Piece("", finish_reason, choice=choice)]


async def read(pieces: Sequence[Piece], choices: int = 1, **options: Any) -> list[Piece]:
    reader = ToolReader(FAMILIES["hermes"], **options)
    return [piece async for piece in reader(Source(pieces).pieces(), choices)]


def text_of(pieces: Sequence[Piece], choice: int = 0) -> str:
    return "".join(piece.text for piece in pieces if piece.choice == choice)


def arguments_of(pieces: Sequence[Piece], choice: int = 0) -> str:
    return "".join(call.arguments for piece in pieces if piece.choice == choice for call in piece.tool_calls)


async def test_a_message_streams_as_content() -> None:
    came = await read(script('{"mess', 'age": "Hel', 'lo"', "}"))
    assert [piece.text for piece in came] == ["", "Hel", "lo", "", ""]
    assert came[-1].finish_reason == "stop"


async def test_a_call_streams_its_name_then_its_arguments_and_ends_as_a_call() -> None:
    came = await read(script('{"name": "f",', ' "arguments": {"a"', ": 1}}"))
    first = came[0].tool_calls[0]
    assert first.name == "f"
    assert first.id is not None
    assert first.id.startswith("call_")
    assert arguments_of(came) == '{"a": 1}'
    assert text_of(came) == ""
    assert came[-1].finish_reason == "tool_calls"


async def test_a_call_that_is_cut_off_says_so() -> None:
    came = await read(script('{"name": "f", "arguments": {"a": ', finish_reason="length"))
    assert arguments_of(came) == '{"a": '
    assert came[-1].finish_reason == "length"


async def test_a_whole_call_is_one_even_where_the_tokens_ran_out_behind_it() -> None:
    came = await read(script('{"name": "f", "arguments": {}}\n', finish_reason="length"))
    assert came[-1].finish_reason == "tool_calls"


async def test_choices_that_come_mixed_are_kept_apart() -> None:
    call, words = script('{"name": "f", ', '"arguments": {}}'), script('{"message"', ': "Hi"}', choice=1)
    mixed = [piece for pair in zip(call, words, strict=True) for piece in pair]
    came = await read(mixed, choices=2)
    assert arguments_of(came) == "{}"
    assert text_of(came, 1) == "Hi"
    assert {piece.choice: piece.finish_reason for piece in came if piece.finish_reason} == {0: "tool_calls", 1: "stop"}


async def test_two_calls_never_have_one_id() -> None:
    ids = [(await read(script('{"name": "f", "arguments": {}}')))[0].tool_calls[0].id for _ in range(2)]
    assert len(set(ids)) == 2


async def test_a_stop_string_ends_the_message_and_what_the_backend_still_says() -> None:
    source = Source(script('{"message": "one, t', 'wo, three", ', "and so on"))
    reader = ToolReader(FAMILIES["hermes"], stop=(", two",))
    came = [piece async for piece in reader(source.pieces(), 1)]
    assert text_of(came) == "one"
    assert came[-1].finish_reason == "stop"
    assert source.closed
    assert source.given == 2


async def test_a_choice_that_a_stop_string_ended_says_nothing_while_the_others_go_on() -> None:
    pieces = [Piece('{"message": "a.b'), Piece('{"message": "c', choice=1), *script('d"}'), *script('d"}', choice=1)]
    came = await read(pieces, choices=2, stop=(".",))
    assert (text_of(came), text_of(came, 1)) == ("a", "cd")
    assert [piece.finish_reason for piece in came if piece.choice == 0 and piece.finish_reason] == ["stop"]


async def test_a_stop_string_is_no_part_of_arguments() -> None:
    came = await read(script('{"name": "f", "arguments": {"a": "b"}}'), stop=("a",))
    assert arguments_of(came) == '{"a": "b"}'


async def test_what_else_a_piece_carries_is_passed_on() -> None:
    usage = Usage(3, 4)
    came = await read([*script('{"message": ""}'), Piece(usage=usage)])
    assert came[-1].usage == usage


@pytest.mark.parametrize("texts", [["Sure! "], ['{"message": "cut']])
async def test_an_answer_that_no_grammar_held_is_a_failure_of_the_backend(texts) -> None:
    with pytest.raises(BackendFailed):
        await read(script(*texts))


async def test_leaving_early_closes_the_backends_answer() -> None:
    source = Source(script('{"message": "a', "b", "c"))
    async with aclosing(ToolReader(FAMILIES["hermes"])(source.pieces(), 1)) as pieces:
        await anext(pieces)
    assert source.closed
