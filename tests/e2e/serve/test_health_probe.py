"""The containers' health check, against real servers."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from zooserve.health import answers_of

pytestmark = pytest.mark.e2e

Check = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def check() -> Check:
    """Runs it as a container does."""

    def run(*words: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "zooserve.health", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    return run


ENTRIES = "embed,embed_bulk,embed_long,rerank,rag_query,classify,language"


def test_every_kind_of_entry_model_infers(platform: Any, check: Check) -> None:
    done = check("zoo", ENTRIES, "--url", f"http://{platform.zoo_http}")
    assert (done.returncode, done.stdout) == (0, "zoo: works\n")


def test_the_leaf_writes_a_token(platform: Any, check: Check) -> None:
    done = check("leaf", "--url", f"http://{platform.leaf_http}")
    assert (done.returncode, done.stdout) == (0, "leaf: works\n")


@pytest.mark.parametrize(("kind", "model"), [("zoo", "embed"), ("leaf", "tensorrt_llm")])
def test_an_answer_shows_in_the_statistics_that_tell_busy_from_hung(
    platform: Any, check: Check, kind: str, model: str
) -> None:
    url = f"http://{platform.zoo_http if kind == 'zoo' else platform.leaf_http}"
    before = answers_of(url, model)
    assert before is not None
    assert check(kind, model, "--url", url).returncode == 0
    after = answers_of(url, model)
    assert after is not None
    assert after > before


def test_the_router_is_ready_and_embeds(platform: Any, check: Check) -> None:
    done = check("router", "embed", "--url", platform.url)
    assert (done.returncode, done.stdout) == (0, "router: works\n")


def test_what_does_not_work_is_named(platform: Any, check: Check) -> None:
    done = check("zoo", "embed,nobody", "--url", f"http://{platform.zoo_http}")
    assert done.returncode == 1
    assert done.stdout.startswith("zoo: nobody: 4")  # Triton's refusal of an unknown model
    done = check("leaf", "nobody", "--url", f"http://{platform.leaf_http}")
    assert done.returncode == 1
    assert done.stdout.startswith("leaf: nobody: 4")  # Triton's refusal of an unknown model
