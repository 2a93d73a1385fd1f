"""The public conformance suite against the embedded leaf, over both protocols, and through the command line."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from zooserve.leaf.conformance import PROBES, check_leaf, opened_endpoint, wire_of
from zooserve_cli.main import app

pytestmark = pytest.mark.e2e

QUESTION = "Write a very long story about a dragon."
PRODUCTION = Path(__file__).parents[3] / "model_repository" / "trtllm"


async def probed(leaf: Any, scheme: str, *, metrics: bool = True) -> Any:
    addresses = leaf.server.addresses
    wire = wire_of(f"{scheme}://{addresses.grpc if scheme == 'grpc' else addresses.http}")
    async with opened_endpoint(wire, "tensorrt_llm", f"http://{addresses.metrics}" if metrics else None) as endpoint:
        return await check_leaf(endpoint, leaf.prompt(QUESTION))


@pytest.mark.parametrize("scheme", ["grpc", "http"])
async def test_the_embedded_leaf_passes_every_probe(leaf: Any, scheme: str) -> None:
    report = await probed(leaf, scheme)

    assert [(result.probe, result.why) for result in report.results if result.outcome != "pass"] == []
    assert {result.trap for result in report.results} >= set(range(1, 11))
    assert len(report.results) == len(PROBES)


async def test_without_metrics_nobody_claims_that_a_slot_is_free(leaf: Any) -> None:
    report = await probed(leaf, "grpc", metrics=False)

    unknown = [result for result in report.results if result.outcome == "not applicable"]
    assert [result.probe for result in unknown] == ["cancel-frees-the-slot"]
    assert report.passes


def test_the_command_says_so_too(leaf: Any) -> None:
    addresses = leaf.server.addresses
    target = ["leaf", "check", f"grpc://{addresses.grpc}", "--metrics", f"http://{addresses.metrics}/metrics", "--json"]
    done = CliRunner().invoke(app, [*target, "--prompt", leaf.prompt(QUESTION)])

    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["passes"]


def test_a_model_that_is_not_there_is_told_with_those_that_are(leaf: Any) -> None:
    done = CliRunner().invoke(app, ["leaf", "check", f"grpc://{leaf.server.addresses.grpc}", "--model", "chatty"])

    assert done.exit_code == 1
    assert "does not serve chatty; it has tensorrt_llm" in str(done.exception)


@pytest.mark.parametrize(("variant", "release"), [("llama_8b", "1.2.1"), ("lora", "1.3.0")])
async def test_a_production_configuration_loads_and_declares_its_releases_tensors(
    start_leaf: Callable[..., Any], variant: str, release: str
) -> None:
    """The production pbtxt in a real Triton, with the embedded leaf's code in place of NVIDIA's."""
    leaf = await asyncio.to_thread(start_leaf, variant, PRODUCTION / variant / "tensorrt_llm" / "config.pbtxt")

    report = await probed(leaf, "grpc")

    results = {result.probe: result for result in report.results}
    assert results["tensors"].why == f"tensor for tensor those of release {release}"
    assert report.passes
    leaf.server.stop(15)
