"""The zoo's ensembles as committed, over stand-ins that fail when told to; the router before it, a trace log beside.

The ensembles and each member's name, version and tensors are read from the repository: a new one is covered by being
there.
"""

import asyncio
import re
import secrets
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import httpx
import numpy as np
import pytest
from google.protobuf import text_format
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry
from tritonclient.grpc import model_config_pb2

from zooserve.catalogue import Catalogue, SloClass, load_catalogue
from zooserve.processes.ports import reserved_ports
from zooserve.settings import Settings, TracingSettings
from zooserve.triton.tensors import Tensor, encode_request, text_tensor
from zooserve.triton.tracing import trace_arguments
from zooserve_observability.metrics import RouterMetrics
from zooserve_observability.trace_log import TraceLog
from zooserve_observability.trace_receiver import TRACES_PATH, TraceReceiver
from zooserve_observability.tracing import Tracing
from zooserve_router.admission import Budget
from zooserve_router.app import bare_app, wired
from zooserve_router.backends.traces import TraceSource
from zooserve_router.backends.wire import ConnectionPool
from zooserve_router.backends.zoo import HEADER_LENGTH, ZooBackend
from zooserve_router.dispatch import ZooDispatch
from zooserve_router.readiness import Readiness
from zooserve_router.stages import Ensemble, load_ensembles

ROOT = Path(__file__).parents[4]
REPOSITORY = ROOT / "model_repository" / "zoo"
STAND_IN = (Path(__file__).parent / "stand_in.py").read_text()
_DTYPES = {"TYPE_STRING": "BYTES"}
_BOUND = 2


def is_pipeline(ensemble: Ensemble) -> bool:
    """Whether it has other models as its steps."""
    return [step.stage.model for step in ensemble.steps] != [ensemble.name]


ENSEMBLES = {name: ensemble for name, ensemble in load_ensembles(REPOSITORY).items() if is_pipeline(ensemble)}
STEPS = [(name, step.stage.model) for name, ensemble in ENSEMBLES.items() for step in ensemble.steps]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests that take `ensemble` and `stage` run for every stage of every ensemble that is in the repository."""
    if {"ensemble", "stage"} <= set(metafunc.fixturenames):
        metafunc.parametrize(("ensemble", "stage"), STEPS)


@dataclass(frozen=True)
class Answer:
    """What a caller got, and the id of his trace."""

    http: httpx.Response
    trace_id: str

    @property
    def text(self) -> str:
        """The error's message."""
        return str(self.http.json()["error"])

    @property
    def failed_stage(self) -> str:
        """What the header says."""
        return self.http.headers.get("x-zooserve-failed-stage", "")


class Threaded:
    """The trace log in a loop of its own, as the supervisor has it."""

    def __init__(self) -> None:
        self.log: TraceLog
        self.port = reserved_ports(1)[0]
        self._loop = asyncio.new_event_loop()
        self._stopping: asyncio.Event
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),))

    async def _serve(self) -> None:
        self.log, self._stopping = TraceLog(2**24), asyncio.Event()
        async with TraceReceiver(self.log, "127.0.0.1", self.port).serving():
            await self._stopping.wait()

    @contextmanager
    def serving(self) -> Iterator["Threaded"]:
        self._thread.start()
        try:
            yield self
        finally:
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join()
            self._loop.close()


class FailingZoo:
    """A running Triton whose stages can be made to fail, behind the router."""

    def __init__(self, zoo: Any, repository: Path, log: Threaded) -> None:
        self.zoo = zoo
        self.log = log
        self._repository = repository
        self._ensembles = load_ensembles(repository)
        self._catalogue = load_catalogue(ROOT / "zoo.yaml").enabling("all")

    def revive(self) -> None:
        """Start the server anew where it is gone, so that only the test that lost it fails."""
        if self.zoo.server.pid is None:
            self.zoo.server.start()
            self.zoo.server.wait_until_loaded(180)

    @contextmanager
    def failing(self, stage: str, fault: str) -> Iterator[None]:
        """For the block this stage fails so."""
        file = self._repository / stage / "fault"
        file.write_text(fault)
        try:
            yield
        finally:
            file.unlink(missing_ok=True)

    def public_name(self, ensemble: str) -> str:
        """The model of the catalogue that this ensemble runs for."""
        return next(model.name for model in self._catalogue if ensemble in model.triton_models())

    @property
    def names(self) -> list[str]:
        """Every ensemble."""
        return list(ENSEMBLES)

    async def until_running(self, stage: str) -> None:
        """Until the stage works on a request."""
        await _until(lambda: (self._repository / stage / "running").exists())

    async def until_waiting(self, stage: str) -> None:
        """Until a request waits in the stage's queue."""
        await _until(lambda: self._waiting(stage) > 0)

    def _waiting(self, stage: str) -> int:
        text = httpx.get(f"http://{self.zoo.server.addresses.metrics}/metrics").text
        found = re.search(rf'nv_inference_pending_request_count{{model="{stage}",version="\d+"}} (\d+)', text)
        return int(found[1]) if found else 0

    def ensemble(self, name: str) -> Ensemble:
        """What the repository says of it."""
        return ENSEMBLES[name]

    def branches(self, name: str) -> bool:
        """Whether two of its stages may run at once."""
        ensemble = ENSEMBLES[name]
        return any(len(ensemble.followers_of(step)) > 1 for step in ensemble.steps)

    @asynccontextmanager
    async def router(self, *, traced: bool = True) -> AsyncIterator["FailingRouter"]:
        """The router over this zoo, every model ready; without a trace log if it is not `traced`."""
        pools = [ConnectionPool("127.0.0.1", port) for port in (self.zoo.server.addresses.http_port, self.log.port)]
        backend = ZooBackend(
            pools[0],
            ensembles=self._ensembles,
            traces=TraceSource(pools[1], within_s=5) if traced else None,  # a busy machine exports late
        )
        readiness = Readiness(self._catalogue, dict.fromkeys((model.name for model in self._catalogue), _proven))
        watch = asyncio.create_task(readiness.watch())
        try:
            while not all(state.ready for state in readiness.states()):  # noqa: ASYNC110 (the probes' turns)
                await asyncio.sleep(0)
            yield FailingRouter(self._catalogue, backend, readiness, "tail" if traced else "off")
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)
            for pool in pools:
                pool.close()
            await asyncio.sleep(0.01)  # the connections' own turn to end


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110 (another process' turn)
            await asyncio.sleep(0.02)


async def _proven() -> None:
    """A probe that finds every model well."""


class FailingRouter:
    """The router's KServe route over the failing zoo: it reaches every ensemble, whatever its task."""

    def __init__(
        self, catalogue: Catalogue, backend: ZooBackend, readiness: Readiness, sampling: Literal["tail", "off"]
    ) -> None:
        self.exporter = InMemorySpanExporter()
        self.metrics = RouterMetrics(CollectorRegistry())
        budgets: dict[SloClass, Budget] = {"interactive": Budget("a", 10**6), "bulk": Budget("b", 10**6)}
        services = wired(Settings(), catalogue, {}, {}, {}, backend, self.metrics)
        dispatch = ZooDispatch(backend, budgets, readiness, self.metrics)
        tracing = Tracing.by(TracingSettings(sampling=sampling), SimpleSpanProcessor(self.exporter))
        self._app = bare_app(Settings().router, self.metrics, tracing=tracing)
        self._app.state.services = replace(services, dispatch=dispatch, readiness=readiness)

    def blamed(self, trace_id: str) -> dict[str, str]:
        """The stages that a trace's spans say have failed, by the span's name."""
        spans = [span for span in self.exporter.get_finished_spans() if span.context.trace_id == int(trace_id, 16)]
        return {
            span.name: span.attributes["zooserve.failed_stage"]
            for span in spans
            if "zooserve.failed_stage" in span.attributes
        }

    def counted(self, model: str, stage: str, version: str, reason: str) -> bool:
        """Whether the metric has this failure, once."""
        labels = f'model="{model}",reason="{reason}",stage="{stage}",version="{version}"'
        return f"zooserve_stage_failures_total{{{labels}}} 1.0" in self.metrics.exposition().decode()

    async def ask(self, ensemble: str, timeout_ms: int | None = None) -> Answer:
        """One request to an ensemble, as a KServe client with a trace of his own sends it."""
        config = _config(ensemble)
        body, length = encode_request(
            [_some(tensor) for tensor in config.input],
            [output.name for output in config.output],
            request_id="req_1",
            timeout_us=None if timeout_ms is None else timeout_ms * 1000,
        )
        trace_id = secrets.token_hex(16)
        headers = {HEADER_LENGTH: str(length), "traceparent": f"00-{trace_id}-{'cd' * 8}-01"}
        transport = httpx.ASGITransport(self._app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://router") as http:
            return Answer(await http.post(f"/v2/models/{ensemble}/infer", content=body, headers=headers), trace_id)


def _config(name: str) -> Any:
    return text_format.Parse((REPOSITORY / name / "config.pbtxt").read_text(), model_config_pb2.ModelConfig())


def _some(tensor: Any) -> Tensor:
    rows = 2  # a query and a document, for rerankers
    kind = model_config_pb2.DataType.Name(tensor.data_type)
    if kind == "TYPE_STRING":
        return text_tensor(tensor.name, ["hi"] * rows)
    shape = (rows, *(16 if size == -1 else size for size in tensor.dims))
    size = np.dtype(kind.removeprefix("TYPE_").replace("FP", "float").lower()).itemsize
    return Tensor(tensor.name, _DTYPES.get(kind, kind.removeprefix("TYPE_")), shape, bytes(size * int(np.prod(shape))))


@pytest.fixture
def failing_zoo(one_triton: FailingZoo) -> FailingZoo:
    """It, alive: Triton 2.51 now and then dies of signal 11 when one branch fails beside another that still runs."""
    one_triton.revive()
    return one_triton


@pytest.fixture(scope="session")
def one_triton(start_zoo: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[FailingZoo]:
    """One Triton for all failures."""
    repository = tmp_path_factory.mktemp("failing")
    members = {step.stage.model for ensemble in ENSEMBLES.values() for step in ensemble.steps}
    for name in ENSEMBLES:
        _copy(repository, name)
    for name in members:
        _stand_in(repository, name)
    with Threaded().serving() as log:
        arguments = trace_arguments(f"http://127.0.0.1:{log.port}{TRACES_PATH}")
        zoo = start_zoo("failing", repository, arguments=arguments)
        yield FailingZoo(zoo, repository, log)
        # Triton would wait: a request that failed beside a branch that still ran is never released.
        zoo.server.stop(1)


def _copy(repository: Path, name: str) -> None:
    (repository / name / "1").mkdir(parents=True)
    (repository / name / "config.pbtxt").write_text((REPOSITORY / name / "config.pbtxt").read_text())


def _stand_in(repository: Path, name: str) -> None:
    config = _config(name)
    config.backend = "python"
    for field in ("parameters", "model_warmup", "optimization", "instance_group", "response_cache"):
        config.ClearField(field)
    config.instance_group.add(kind=model_config_pb2.ModelInstanceGroup.KIND_CPU, count=1)
    policy = config.dynamic_batching.default_queue_policy
    if policy.max_queue_size:
        policy.max_queue_size = _BOUND
    config.dynamic_batching.preferred_batch_size[:] = []
    for version in (entry.name for entry in (REPOSITORY / name).iterdir() if entry.name.isdecimal()):
        (repository / name / version).mkdir(parents=True)
        (repository / name / version / "model.py").write_text(STAND_IN)
    (repository / name / "config.pbtxt").write_text(text_format.MessageToString(config))
