"""Sampling parameters: what is refused, and what llama.cpp is told."""

import math
from typing import Any

import pytest

from zooserve.errors import BadInput, Unsupported
from zooserve.leaf.sampling import Sampling


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": -0.1},
        {"temperature": math.nan},
        {"temperature": math.inf},
        {"top_p": 1.01},
        {"top_p": -0.5},
        {"top_k": -1},
        {"max_tokens": 0},
        {"max_tokens": -5},
        {"best_of": 0},
        {"frequency_penalty": math.nan},
        {"presence_penalty": math.inf},
        {"stop": ("ok", "")},
    ],
    ids=str,
)
def test_a_value_that_cannot_be_right_is_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadInput) as refused:
        Sampling(**wrong)

    assert refused.value.param == next(iter(wrong))
    assert next(iter(wrong)) in refused.value.message


def test_more_than_one_candidate_is_not_supported() -> None:
    with pytest.raises(Unsupported, match="best_of"):
        Sampling(best_of=2)


@pytest.mark.parametrize("asked", [{}, {"temperature": 0.0}, {"top_k": 1, "temperature": 2.0}, {"top_p": 0.0}], ids=str)
def test_greedy_is_what_tensorrt_llm_takes_for_greedy(asked: dict[str, Any]) -> None:
    assert Sampling(**asked).to_llama(64)["temperature"] == 0


def test_the_defaults_of_llama_cpp_are_undone() -> None:
    told = Sampling(temperature=0.7).to_llama(64)

    assert (told["top_k"], told["top_p"], told["min_p"], told["max_tokens"]) == (0, 1.0, 0.0, 32)


def test_top_p_alone_samples_at_temperature_one() -> None:
    assert Sampling(top_p=0.9).to_llama(64)["temperature"] == 1.0


def test_a_penalty_looks_at_the_whole_context() -> None:
    assert Sampling(presence_penalty=0.5).to_llama(2048)["repeat_last_n"] == 2048
    assert "repeat_last_n" not in Sampling().to_llama(2048)


@pytest.mark.parametrize("seed", [0, 7, 2**32 - 1, 2**64 - 1])
def test_no_seed_means_random_to_llama_cpp(seed: int) -> None:
    assert Sampling(seed=seed).to_llama(64)["seed"] != 2**32 - 1


def test_stop_strings_are_matched_here_and_not_sent() -> None:
    assert "stop" not in Sampling(stop=("END",)).to_llama(64)
