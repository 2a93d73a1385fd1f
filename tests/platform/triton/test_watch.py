"""The watch over a Triton that is played by a transport: what a look finds, and the remedy it asks for."""

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest

from zooserve.leaf.engine import Usage
from zooserve.leaf.metrics import FAMILIES, samples
from zooserve.settings import WatchSettings
from zooserve.triton.samples import SAMPLES
from zooserve.triton.server import Addresses
from zooserve.triton.watch import Reload, Restart, Watch, backoff_s, chat_probe, content_probe, sick_model, text_probe

SICK = "in ensemble 'embed', Stub process 'embed_encoder_0_0' is not healthy."


class Server:
    """What a watch wants of a server."""

    addresses = Addresses("triton", 1, 2, 3)

    def __init__(self) -> None:
        self.pid: int | None = 1
        self.exit_code: int | None = None
        self.caches = False
        self.changed = False

    def files_changed(self) -> bool:
        return self.changed


class Triton:
    """Answers as Triton does; `answers` maps a model to how it answers."""

    def __init__(self) -> None:
        self.counts = {"embed": 0, "rerank": 0}
        self.asked: list[str] = []
        self.answers: dict[str, Callable[[], httpx.Response]] = {}
        self.silent = False
        self.statistics: httpx.Response | None = None
        self.metrics: Callable[[], httpx.Response] = lambda: httpx.Response(404)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if self.silent:
            raise httpx.ReadTimeout("silent", request=request)
        if request.url.path == "/v2/models/stats" and self.statistics is not None:
            return self.statistics
        if request.url.path == "/v2/models/stats":
            stats = [
                {"name": name, "inference_stats": {"success": {"count": count}}} for name, count in self.counts.items()
            ]
            return httpx.Response(200, json={"model_stats": stats})
        if request.url.path == "/metrics":
            return self.metrics()
        self.asked.append(request.url.path)
        model = request.url.path.split("/")[3]
        if model in self.answers:
            return self.answers[model]()
        self.counts[model] = self.counts.get(model, 0) + 1
        return httpx.Response(200, json={})


def failing(text: str) -> Callable[[], httpx.Response]:
    return lambda: httpx.Response(500, json={"error": text})


def late() -> httpx.Response:
    raise httpx.ReadTimeout("late")


@pytest.fixture
def triton() -> Triton:
    return Triton()


@pytest.fixture
async def http(triton: Triton) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(transport=httpx.MockTransport(triton)) as client:
        yield client


@pytest.fixture
def server() -> Any:
    return Server()


@pytest.fixture
def watch(server: Any) -> Watch:
    return Watch(server, [text_probe("embed"), text_probe("rerank", rows=2)], WatchSettings(patience=3))


@pytest.mark.parametrize(
    "unreadable",
    [
        httpx.Response(500, text="no memory"),
        httpx.Response(200, text="half of"),
        httpx.Response(200, json=[]),
        httpx.Response(200, json={"model_stats": [{}]}),
        httpx.Response(200, json={"model_stats": None}),
        httpx.Response(500, json={"error": "failed"}),
    ],
)
async def test_statistics_that_cannot_be_read_are_a_fault_and_every_model_is_asked(
    watch: Watch, http: httpx.AsyncClient, triton: Triton, unreadable: httpx.Response
) -> None:
    triton.statistics = unreadable
    assert await watch.look(http) == []
    assert "its statistics cannot be read" in watch.faults["(statistics)"]
    assert triton.asked == ["/v2/models/embed/infer", "/v2/models/rerank/infer"]
    triton.statistics = None
    await watch.look(http)
    assert watch.faults == {}


async def test_every_model_is_asked_and_nothing_is_done_about_the_well(
    watch: Watch, http: httpx.AsyncClient, triton: Triton
) -> None:
    assert await watch.look(http) == []
    assert triton.asked == ["/v2/models/embed/infer", "/v2/models/rerank/infer"]


async def test_a_model_that_answered_somebody_is_not_probed(
    watch: Watch, http: httpx.AsyncClient, triton: Triton
) -> None:
    await watch.look(http)
    triton.asked.clear()
    triton.counts["embed"] += 1
    assert await watch.look(http) == []
    assert triton.asked == ["/v2/models/rerank/infer"]


async def test_beside_a_response_cache_every_model_is_probed_since_the_cache_may_have_answered(
    watch: Watch, server: Any, http: httpx.AsyncClient, triton: Triton
) -> None:
    server.caches = True
    await watch.look(http)
    triton.asked.clear()
    triton.counts["embed"] += 1
    await watch.look(http)
    assert triton.asked == ["/v2/models/embed/infer", "/v2/models/rerank/infer"]


def test_no_two_probes_of_text_are_alike_so_that_no_cache_answers_them() -> None:
    probe = text_probe("embed")
    assert probe.body() != probe.body()


@pytest.mark.parametrize(
    ("caches", "changed", "remedy"),
    [(True, True, Restart), (True, False, Reload), (False, True, Reload)],
)
async def test_a_sick_model_with_cached_answers_of_other_files_is_not_just_reloaded(
    watch: Watch,
    server: Any,
    http: httpx.AsyncClient,
    triton: Triton,
    caches: bool,
    changed: bool,
    remedy: type[Reload | Restart],
) -> None:
    server.caches, server.changed = caches, changed
    triton.answers["embed"] = failing(SICK)
    assert [type(found) for found in await watch.look(http)] == [remedy]


async def test_our_own_probe_does_not_count_as_somebody(watch: Watch, http: httpx.AsyncClient, triton: Triton) -> None:
    await watch.look(http)
    triton.asked.clear()
    await watch.look(http)
    assert len(triton.asked) == 2


async def test_a_sick_stub_of_a_member_has_the_member_reloaded(
    watch: Watch, http: httpx.AsyncClient, triton: Triton
) -> None:
    triton.answers["embed"] = failing(SICK)
    (remedy,) = await watch.look(http)
    assert isinstance(remedy, Reload)
    assert remedy.model == "embed_encoder"
    assert SICK in remedy.cause
    assert "embed" in watch.faults
    assert watch.failed == ["embed"]


async def test_a_stub_that_was_only_starved_is_left_alone(
    watch: Watch, http: httpx.AsyncClient, triton: Triton
) -> None:
    answers = iter([httpx.Response(500, json={"error": SICK}), httpx.Response(200, json={})])
    triton.answers["embed"] = lambda: next(answers)
    assert await watch.look(http) == []
    assert watch.faults == {}


async def test_a_member_shared_by_two_ensembles_is_reloaded_once(
    watch: Watch, http: httpx.AsyncClient, triton: Triton
) -> None:
    triton.answers = {"embed": failing(SICK), "rerank": failing(SICK)}
    assert len(await watch.look(http)) == 1


async def test_another_failure_is_told_and_not_treated(watch: Watch, http: httpx.AsyncClient, triton: Triton) -> None:
    triton.answers["embed"] = failing("out of luck")
    assert await watch.look(http) == []
    assert watch.faults == {"embed": '500: {"error":"out of luck"}'}
    del triton.answers["embed"]
    await watch.look(http)
    assert watch.faults == {}


async def test_a_server_that_is_late_with_every_model_is_restarted(
    watch: Watch, http: httpx.AsyncClient, triton: Triton
) -> None:
    triton.answers = {"embed": late, "rerank": late}
    assert await watch.look(http) == []
    assert await watch.look(http) == []
    (remedy,) = await watch.look(http)
    assert isinstance(remedy, Restart)
    assert remedy.cause.startswith("embed: no answer within 15 s")
    assert remedy.cause.endswith("3 times in a row")


async def test_one_late_model_among_others_gets_more_patience(
    watch: Watch, http: httpx.AsyncClient, triton: Triton
) -> None:
    triton.answers["embed"] = late
    looks = [await watch.look(http) for _ in range(12)]
    assert [bool(remedies) for remedies in looks] == [False] * 11 + [True]


async def test_lateness_is_forgiven_when_the_model_answers_anybody(
    watch: Watch, http: httpx.AsyncClient, triton: Triton
) -> None:
    triton.answers = {"embed": late, "rerank": late}
    for _ in range(5):
        assert await watch.look(http) == []
        assert await watch.look(http) == []
        triton.counts["embed"] += 1
        triton.counts["rerank"] += 1
        assert await watch.look(http) == []


async def test_a_server_that_does_not_answer_at_all_is_restarted(
    watch: Watch, http: httpx.AsyncClient, triton: Triton
) -> None:
    triton.silent = True
    assert await watch.look(http) == []
    assert await watch.look(http) == []
    (remedy,) = await watch.look(http)
    assert isinstance(remedy, Restart)


async def test_a_server_that_is_gone_is_restarted_at_once(watch: Watch, http: httpx.AsyncClient, server: Any) -> None:
    server.pid, server.exit_code = None, -9
    assert await watch.look(http) == [Restart("tritonserver ended by itself (signal 9)")]


async def test_a_restarted_server_starts_from_nothing(watch: Watch, http: httpx.AsyncClient, triton: Triton) -> None:
    triton.counts["embed"] = 1000
    await watch.look(http)
    watch.forget()
    triton.counts["embed"] = 0
    triton.asked.clear()
    triton.answers["embed"] = failing(SICK)
    assert [type(remedy) for remedy in await watch.look(http)] == [Reload]


async def test_a_reload_unloads_first(watch: Watch, http: httpx.AsyncClient, triton: Triton) -> None:
    triton.answers["models"] = lambda: httpx.Response(200)
    assert await watch.reload(http, "embed_encoder") == ""
    assert [path.rpartition("/")[2] for path in triton.asked] == ["unload", "load"]


async def test_a_failure_inside_an_event_stream_is_a_failure(
    server: Any, http: httpx.AsyncClient, triton: Triton
) -> None:
    event = 'data: {"error":"Stub process \'tensorrt_llm_0_0\' is not healthy."}\n\n'
    triton.answers["tensorrt_llm"] = lambda: httpx.Response(200, text=event)
    watch = Watch(server, [chat_probe("tensorrt_llm")], WatchSettings())
    (remedy,) = await watch.look(http)
    assert isinstance(remedy, Reload)
    assert remedy.model == "tensorrt_llm"


@pytest.mark.parametrize(
    ("error", "model"),
    [
        (SICK, "embed_encoder"),
        ("Stub process 'classify_0_12' is not healthy.", "classify"),
        ("Stub process 'odd_1_name' is not healthy.", "odd_1_name"),
        ("Request timeout expired", None),
    ],
)
def test_the_sick_model_is_read_from_the_error(error: str, model: str | None) -> None:
    assert sick_model(error) == model


def test_the_backoff_doubles_up_to_its_bound() -> None:
    settings = WatchSettings(backoff_s=1, longest_backoff_s=10)
    assert [backoff_s(settings, remedies) for remedies in range(7)] == [0, 1, 2, 4, 8, 10, 10]
    assert backoff_s(settings, 10_000) == 10


def test_probes_are_small() -> None:
    assert len(text_probe("embed").body()) < 200
    assert json.loads(text_probe("rerank", rows=2).body())["inputs"][0]["shape"] == [2, 1]
    assert json.loads(chat_probe("tensorrt_llm").body())["sampling_param_max_tokens"] == 1
    image = content_probe("nsfw", "image")
    header = json.loads(image.body()[: int(image.headers["inference-header-content-length"])])
    assert (header["inputs"][0]["name"], header["inputs"][0]["datatype"]) == ("image", "BYTES")
    assert image.body().endswith(SAMPLES["image"])


def sample_line(name: str, value: str, number: float) -> str:
    labels = {**FAMILIES[name].labels(value), "model": "tensorrt_llm"}
    told = ",".join(f'{label}="{text}"' for label, text in labels.items())
    return f"{name}{{{told}}} {number}"


def leaf_page(live_tokens: int) -> Callable[[], httpx.Response]:
    usage = Usage(
        slots=16,
        active=1,
        in_prefill=1,
        waiting=1,
        kv_tokens=32_768,
        live_tokens=live_tokens,
        live_blocks=live_tokens // 32,
        reused_blocks=0,
        generated_tokens=0,
    )
    lines = [sample_line(name, value, number) for (name, value), number in samples(usage, 0, 32).items()]
    return lambda: httpx.Response(200, text="\n".join(lines))


@pytest.fixture
def leaf_watch(server: Any) -> Watch:
    return Watch(server, [chat_probe("tensorrt_llm")], WatchSettings(patience=2))


async def test_a_leaf_that_is_late_but_works_is_not_restarted(
    leaf_watch: Watch, http: httpx.AsyncClient, triton: Triton
) -> None:
    triton.answers["tensorrt_llm"] = late
    for live_tokens in range(256, 2048, 256):
        triton.metrics = leaf_page(live_tokens)
        assert await leaf_watch.look(http) == []
    assert "no answer" in leaf_watch.faults["tensorrt_llm"]


async def test_a_leaf_that_is_late_and_stands_still_is_hung(
    leaf_watch: Watch, http: httpx.AsyncClient, triton: Triton
) -> None:
    triton.answers["tensorrt_llm"] = late
    triton.metrics = leaf_page(256)
    looks = [await leaf_watch.look(http) for _ in range(3)]
    assert looks[:2] == [[], []]
    assert [type(remedy) for remedy in looks[2]] == [Restart]


async def test_a_leaf_without_metrics_is_judged_by_its_answers_alone(
    leaf_watch: Watch, http: httpx.AsyncClient, triton: Triton
) -> None:
    triton.answers["tensorrt_llm"] = late
    looks = [await leaf_watch.look(http) for _ in range(2)]
    assert [type(remedy) for remedy in looks[1]] == [Restart]
