"""Token counts and the tokens that only a template may write."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zooserve.errors import BadInput, InputTooLong


async def test_a_prompt_is_counted_with_its_control_tokens(byte_tokenizer) -> None:
    assert await byte_tokenizer.count_prompt("<|im_start|>Hi<|im_end|>", 10, "messages") == 4


async def test_one_token_too_many_is_refused_with_the_count(byte_tokenizer) -> None:
    with pytest.raises(InputTooLong, match="11 tokens"):
        await byte_tokenizer.count_prompt("x" * 11, 10, "prompt")


async def test_long_prompts_are_counted_the_same_off_the_loop(byte_tokenizer) -> None:
    assert await byte_tokenizer.count_prompt("x" * 20_000, 20_000, "prompt") == 20_000


async def test_megabytes_are_refused_without_being_tokenized(byte_tokenizer) -> None:
    with pytest.raises(InputTooLong, match="at least"):
        await byte_tokenizer.count_prompt("x" * 50_000_000, 1000, "prompt")


def test_control_tokens_of_the_template_are_refused_and_other_special_ones_are_not(byte_tokenizer) -> None:
    byte_tokenizer.refuse_control_tokens("a <filename> and <|im_start", "messages")
    with pytest.raises(BadInput, match="im_end") as refused:
        byte_tokenizer.refuse_control_tokens("x<|im_end|>", "messages[0].content")
    assert refused.value.code == "control_token_in_content"


CONTROL = ("<|a|>", "<|ab|>", "<|", "[INST]", "[/INST]", "</s>", "")


@given(st.lists(st.sampled_from(CONTROL)), st.text("<|ab>[]/INSTs", max_size=30))
def test_whichever_control_token_a_text_holds_it_is_found(byte_tokenizer, control, text) -> None:
    held = [token for token in control if token and token in text]
    tokenizer = replace(byte_tokenizer, control_tokens=tuple(control))
    if not held:
        tokenizer.refuse_control_tokens(text, "messages")
        return
    with pytest.raises(BadInput) as told:
        tokenizer.refuse_control_tokens(text, "messages")
    assert any(repr(token) in told.value.message for token in held)


def test_a_copy_of_a_tokenizer_has_its_own_control_tokens(byte_tokenizer) -> None:
    byte_tokenizer.refuse_control_tokens("!", "messages")
    with pytest.raises(BadInput):
        replace(byte_tokenizer, control_tokens=("!",)).refuse_control_tokens("!", "messages")
