"""Our directories for NVIDIA's container in the real Triton, with a wrapper that completes the configuration as its."""

import asyncio
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from zooserve.leaf.conformance import Shape, opened_endpoint, wire_of
from zooserve.processes.ports import reserved_ports
from zooserve.triton.installation import find_installation
from zooserve.triton.server import Addresses, TritonServer

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[3]
PRODUCTION = ROOT / "model_repository" / "trtllm"
# NVIDIA's launch script starts Triton with this.
PLAIN, INCOMPLETE = (), ("--disable-auto-complete-config",)
WRAPPER = """
from pathlib import Path

import triton_python_backend_utils as pb_utils
from ruamel.yaml import YAML


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        knobs = YAML(typ="safe").load(Path(__file__).with_name("model.yaml").read_text())["triton_config"]
        config.set_model_transaction_policy({"decoupled": knobs["decoupled"]})
        config.set_max_batch_size(knobs["max_batch_size"])
        return config

    def execute(self, requests):
        for request in requests:
            request.get_response_sender().send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""


@pytest.fixture
def declared(tmp_path: Path) -> Iterator[Callable[..., Shape]]:
    """What a Triton declares of a variant, started with these arguments, its config.pbtxt edited."""
    with ExitStack() as stack:

        def start(variant: str, arguments: tuple[str, ...], edited: Callable[[str], str] = str) -> Shape:
            folder = tmp_path / variant / "tensorrt_llm"
            shutil.copytree(PRODUCTION / variant / "tensorrt_llm", folder)
            (folder / "1" / "model.py").write_text(WRAPPER)
            (folder / "config.pbtxt").write_text(edited((folder / "config.pbtxt").read_text()))
            installation = find_installation(tmp_path / "cache", ROOT / "platform" / "triton-backends")
            addresses = Addresses("127.0.0.1", *reserved_ports(3))
            log = tmp_path / "triton.log"
            server = TritonServer(variant, installation, folder.parent, addresses, log, arguments=arguments)
            stack.callback(server.stop, 15)
            server.start()
            server.wait_until_loaded(120)
            return asyncio.run(_shape(addresses.grpc))

        yield start


async def _shape(address: str) -> Shape:
    async with opened_endpoint(wire_of(f"grpc://{address}"), "tensorrt_llm") as endpoint:
        return await endpoint.shape()


@pytest.mark.parametrize("arguments", [PLAIN, INCOMPLETE], ids=["completed", "not-completed"])
def test_what_stands_in_both_files_holds_however_triton_is_started(
    declared: Callable[..., Shape], arguments: tuple[str, ...]
) -> None:
    shape = declared("llama_8b", arguments)
    assert (shape.decoupled, shape.max_batch_size) == (True, 0)


def test_without_it_in_the_pbtxt_the_launch_script_would_make_a_leaf_that_cannot_stream(
    declared: Callable[..., Shape],
) -> None:
    shape = declared("llama_8b", INCOMPLETE, lambda text: re.sub(r"model_transaction_policy \{.*\}\n", "", text))
    assert not shape.decoupled


def test_two_instances_load(declared: Callable[..., Shape]) -> None:
    assert declared("instances", PLAIN).decoupled
