"""A repository of which a part is broken, each model in one way, and a real Triton over it."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

ROWS = 16
"""Rows of the encoders' word table."""
WIDTH = 4
ECHO = """import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        arrays = [pb_utils.get_input_tensor_by_name(request, "a").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("b", array)]) for array in arrays]
"""
TENSOR = '{ name: "%s" data_type: TYPE_FP32 dims: [ 1 ] }'
STAGE = 'from zooserve_ensembles.stages.tokenizer import TritonPythonModel\n\n__all__ = ["TritonPythonModel"]\n'
CPU = "instance_group [ { count: 1 kind: KIND_CPU } ]\n"


class Orchard:
    """Writes models below one folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def echo(self, name: str, rows: int = 8, more: str = "") -> None:
        """A model that gives its input back."""
        tensors = f"input [ {TENSOR % 'a'} ]\noutput [ {TENSOR % 'b'} ]\n"
        config = f'backend: "python"\nmax_batch_size: {rows}\n{tensors}{CPU}{more}'
        self._write(name, config, {"model.py": ECHO.encode()})

    def chain(self, name: str, steps: Sequence[str], rows: int = 8, more: str = "", inputs: str = "x") -> None:
        """An ensemble of steps, each given as `model version input=edge > output=edge`."""
        told = ",\n".join(map(_step, steps))
        tensors = f"input [ {', '.join(TENSOR % each for each in inputs.split())} ]\noutput [ {TENSOR % 'y'} ]\n"
        scheduling = f"ensemble_scheduling {{\n step [\n{told}\n ]\n}}\n"
        self._write(name, f'platform: "ensemble"\nmax_batch_size: {rows}\n{tensors}{scheduling}{more}', {})

    def tokenizer(self, name: str, words: int) -> None:
        """Our tokenizer's stage, over so many words: w0, w1, …"""
        made = Tokenizer(WordLevel({f"w{number}": number for number in range(words)}, unk_token="w0"))
        made.pre_tokenizer = Whitespace()
        config = (
            'backend: "python"\nmax_batch_size: 8\n'
            'input [ { name: "text" data_type: TYPE_STRING dims: [ 1 ] } ]\n'
            'output [\n  { name: "input_ids" data_type: TYPE_INT64 dims: [ -1 ] },\n'
            '  { name: "attention_mask" data_type: TYPE_INT64 dims: [ -1 ] },\n'
            f'  {{ name: "tokens" data_type: TYPE_INT32 dims: [ 1 ] }}\n]\n{CPU}'
        )
        self._write(name, config, {"model.py": STAGE.encode(), "tokenizer.json": made.to_str().encode()})

    def encoder(self, name: str, content: bytes) -> None:
        """An ONNX model's file over its configuration."""
        config = (
            'backend: "onnxruntime"\nmax_batch_size: 8\n'
            'input [ { name: "input_ids" data_type: TYPE_INT64 dims: [ -1 ] } ]\n'
            f'output [ {{ name: "vector" data_type: TYPE_FP32 dims: [ {WIDTH} ] }} ]\n{CPU}'
        )
        self._write(name, config, {"model.onnx": content})

    def embed(self, name: str, tokenizer: str, encoder: str) -> None:
        """The ensemble of both."""
        self._write(
            name,
            'platform: "ensemble"\nmax_batch_size: 8\ninput [ { name: "text" data_type: TYPE_STRING dims: [ 1 ] } ]\n'
            f'output [ {{ name: "vector" data_type: TYPE_FP32 dims: [ {WIDTH} ] }} ]\nensemble_scheduling {{\n step [\n'
            f"{_step(f'{tokenizer} 1 text=text > input_ids=ids')},\n"
            f"{_step(f'{encoder} 1 input_ids=ids > vector=vector')}\n ]\n}}\n",
            {},
        )

    def _write(self, name: str, config: str, files: dict[str, bytes]) -> None:
        (self.root / name / "1").mkdir(parents=True)
        (self.root / name / "config.pbtxt").write_text(f'name: "{name}"\n{config}')
        for file, content in files.items():
            (self.root / name / "1" / file).write_bytes(content)


def _step(told: str) -> str:
    maps, _, gives = told.partition(" > ")
    model, version, *takes = maps.split()
    ends = [("input_map", each) for each in takes] + [("output_map", each) for each in gives.split()]
    mapped = " ".join(
        f'{side} {{ key: "{each.partition("=")[0]}" value: "{each.partition("=")[2]}" }}' for side, each in ends
    )
    pinned = "" if version == "-" else f"model_version: {version} "
    return f'  {{ model_name: "{model}" {pinned}{mapped} }}'


def table() -> onnx.ModelProto:
    """Rows of a table, looked up and summed."""
    graph = helper.make_graph(
        [
            helper.make_node("Gather", ["table", "input_ids"], ["found"]),
            helper.make_node("ReduceSum", ["found", "axes"], ["vector"], keepdims=0),
        ],
        "encoder",
        [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "length"])],
        [helper.make_tensor_value_info("vector", TensorProto.FLOAT, ["batch", WIDTH])],
        [
            numpy_helper.from_array(np.arange(ROWS * WIDTH, dtype=np.float32).reshape(ROWS, WIDTH), "table"),
            numpy_helper.from_array(np.array([1]), "axes"),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def plant(orchard: Orchard) -> None:
    """The sound models, the files that are broken, and the ensembles that are wired wrongly."""
    whole = table().SerializeToString()
    orchard.tokenizer("tokenizer", ROWS)
    orchard.tokenizer("foreign_tokenizer", ROWS + 4)
    orchard.encoder("encoder", whole)
    orchard.encoder("not_onnx", b"this is no model")
    orchard.encoder("cut_off", whole[: len(whole) // 2])
    orchard.encoder("without_data", b"")
    at = orchard.root / "without_data" / "1" / "model.onnx"
    onnx.save(table(), at, save_as_external_data=True, location="model.onnx_data", size_threshold=0)
    at.with_name("model.onnx_data").unlink()
    orchard.embed("sound", "tokenizer", "encoder")
    orchard.embed("foreign", "foreign_tokenizer", "encoder")
    orchard.echo("one")
    orchard.echo("small", rows=4)
    orchard.echo("edited", more="dynamic_batching { max_queue_delay_us: 5 }\n")
    (orchard.root / "stray").mkdir()
    wire(orchard)
    scatter(orchard, random.Random(7))


def wire(orchard: Orchard) -> None:
    """Ensembles of `one` and `small`: two sound ones, the others with a fault each."""
    orchard.chain("straight", ["one 1 a=x > b=t", "one 1 a=t > b=y"])
    orchard.chain("backwards", ["one 1 a=t > b=y", "one 1 a=x > b=t"])
    orchard.chain("unknown_model", ["won 1 a=x > b=y"])
    orchard.chain("unknown_input", ["one 1 aa=x > b=y"])
    orchard.chain("unknown_output", ["one 1 a=x > bb=y"])
    orchard.chain("no_producer", ["one 1 a=t > b=y"])
    orchard.chain("no_output", ["one 1 a=x > b=z"])
    orchard.chain("no_reader", ["one 1 a=x > b=y", "one 1 a=x > b=t"])
    orchard.chain("unread_input", ["one 1 a=x > b=y"], inputs="x z")
    orchard.chain("twice", ["one 1 a=x > b=y", "one 1 a=x > b=y"])
    orchard.chain("round", ["one 1 a=x > b=y", "one 1 a=u > b=t", "one 1 a=t > b=u"])
    orchard.chain("unpinned", ["one - a=x > b=y"])
    orchard.chain("future", ["one 2 a=x > b=y"])
    orchard.chain("too_large", ["small 1 a=x > b=y"])
    orchard.chain("warmed", ["one 1 a=x > b=y"], more='model_warmup [ { name: "w" batch_size: 1 } ]\n')
    orchard.chain("inside_itself", ["inside_itself 1 x=x > y=y"])


def scatter(orchard: Orchard, chance: random.Random) -> None:
    """Ensembles wired by chance: some sound, most not."""
    for number in range(60):
        steps, source = [], "x"
        for last in range(chance.randint(1, 3), 0, -1):
            edge = "y" if last == 1 else f"t{last}"
            steps.append(
                f"{chance.choice(('one', 'one', 'small'))} {chance.choice((1, 1, 1, 1, 2))} "
                f"{_mostly(chance, 'a', 'q')}={_mostly(chance, source, 't2')} > "
                f"{_mostly(chance, 'b', 'q')}={_mostly(chance, edge, 't2')}"
            )
            source = edge
        chance.shuffle(steps)
        orchard.chain(f"chance_{number}", steps, chance.choice((1, 4, 8)), inputs=_mostly(chance, "x", "x z"))


def _mostly(chance: random.Random, usual: str, other: str) -> str:
    return chance.choices((usual, other), (12, 1))[0]


@pytest.fixture(scope="session")
def orchard(start_zoo: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The server, with `root`, where its repository is."""
    root = tmp_path_factory.mktemp("orchard")
    plant(Orchard(root))
    server = start_zoo("orchard", root)
    server.root = root
    return server
