"""Toy models and ensembles for what Triton does with queues; servers that are thrown away where it loses its mind."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

SECONDS = 0.4
"""How long the slow toy takes for a request, one at a time."""
PATIENCE_S = 8.0
"""A caller who waits longer got no answer: sixteen slow requests take 6.4 s."""

TOY = """
import json, time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.seconds = float(json.loads(args["model_config"])["parameters"]["seconds"]["string_value"])

    def execute(self, requests):
        time.sleep(self.seconds)
        xs = [pb_utils.get_input_tensor_by_name(request, "x").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", x + 1)]) for x in xs]
"""


@dataclass(frozen=True)
class Queue:
    """A queue policy as a configuration has it."""

    size: int = 0
    default_us: int = 600_000_000
    override: bool = True

    def __str__(self) -> str:
        return (
            f"timeout_action: REJECT default_timeout_microseconds: {self.default_us} "
            f"allow_timeout_override: {str(self.override).lower()} max_queue_size: {self.size}"
        )


Steps = Sequence[tuple[str, str, str]]
"""Model, the edge it takes, the edge it gives."""


class Toys:
    """A repository of toys that each add one."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def model(self, name: str, seconds: float = 0.0, queue: Queue | None = None) -> None:
        """One toy, which takes one request at a time."""
        self._write(
            name,
            f'backend: "python"\nparameters {{ key: "seconds" value {{ string_value: "{seconds}" }} }}\n'
            "instance_group [ { kind: KIND_CPU count: 1 } ]\n"
            f"dynamic_batching {{ default_queue_policy {{ {queue or Queue()} }} }}\n",
            inputs=("x",),
            outputs=("y",),
        )
        (self.root / name / "1" / "model.py").write_text(TOY)

    def ensemble(self, name: str, outputs: Sequence[str], steps: Steps) -> None:
        """An ensemble whose input is `x`."""
        rendered = ", ".join(
            f'{{ model_name: "{model}" model_version: 1 input_map {{ key: "x" value: "{takes}" }} '
            f'output_map {{ key: "y" value: "{gives}" }} }}'
            for model, takes, gives in steps
        )
        scheduled = f'platform: "ensemble"\nensemble_scheduling {{ step [ {rendered} ] }}\n'
        self._write(name, scheduled, inputs=("x",), outputs=outputs)

    def _write(self, name: str, more: str, *, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        (self.root / name / "1").mkdir(parents=True)
        tensors = {"input": inputs, "output": outputs}
        declared = "".join(
            f"{kind} [ {', '.join(_tensor(tensor) for tensor in names)} ]\n" for kind, names in tensors.items()
        )
        (self.root / name / "config.pbtxt").write_text(f'name: "{name}"\nmax_batch_size: 1\n{declared}{more}')


def _tensor(name: str) -> str:
    return f'{{ name: "{name}" data_type: TYPE_FP32 dims: [ 1 ] }}'


@dataclass(frozen=True)
class Outcome:
    """What became of one request: `answered`, `full`, `expired`, or `nothing` when no answer came."""

    kind: str
    took_s: float = 0.0


class Pond:
    """A running server over toys."""

    def __init__(self, zoo: Any) -> None:
        self.zoo = zoo

    def ask(
        self,
        model: str,
        outputs: Sequence[str] = ("y",),
        timeout_us: int | None = None,
        patience_s: float = PATIENCE_S,
    ) -> Outcome:
        """One request."""
        body: dict[str, Any] = {
            "inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [0.0]}],
            "outputs": [{"name": name} for name in outputs],
        }
        if timeout_us is not None:
            body["parameters"] = {"timeout": timeout_us}
        url = f"http://{self.zoo.server.addresses.http}/v2/models/{model}/infer"
        try:
            answer = httpx.post(url, content=json.dumps(body), timeout=patience_s)
        except httpx.TransportError:
            return Outcome("nothing")
        kinds = {"xceeds maximum queue size": "full", "timeout expired": "expired"}
        kind = next((kind for text, kind in kinds.items() if text in answer.text), f"{answer.status_code}")
        return Outcome("answered" if answer.status_code == 200 else kind, answer.elapsed.total_seconds())

    def at_once(self, count: int, model: str, outputs: Sequence[str]) -> Mapping[str, int]:
        """What became of so many requests, sent together."""
        outcomes = self.zoo.at_once([lambda: self.ask(model, outputs)] * count)
        return Counter(outcome.kind for outcome in outcomes)


@pytest.fixture
def thrown_away(
    start_zoo: Callable[..., Any], tmp_path: Path
) -> Iterator[Callable[[str, Callable[[Toys], None]], Any]]:
    """Starts a server over toys, and kills it after the test: it may hang for good."""
    started = []

    def start(name: str, dig: Callable[[Toys], None]) -> Pond:
        dig(Toys(tmp_path))
        started.append(Pond(start_zoo(name, tmp_path)))
        return started[-1]

    yield start
    for pond in started:
        pond.zoo.server.stop(0.1)


@pytest.fixture(scope="module")
def pond(start_zoo: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pond]:
    """A server over toys with queues of every policy."""
    toys = Toys(tmp_path_factory.mktemp("policies"))
    toys.model("quick")
    toys.model("obeys", SECONDS)
    toys.model("no_default", SECONDS, Queue(default_us=0))
    toys.model("no_override", SECONDS, Queue(override=False))
    toys.model("short_default", SECONDS, Queue(default_us=100_000))
    toys.ensemble("through", ["out"], [("quick", "x", "middle"), ("obeys", "middle", "out")])
    zoo = start_zoo("policies", toys.root)
    yield Pond(zoo)
    zoo.server.stop(15)


@pytest.fixture(name="queue")
def _queue() -> type[Queue]:
    return Queue
