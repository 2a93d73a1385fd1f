"""Readiness: proven by probes, lost by doubt, and each model for itself."""

import asyncio
from pathlib import Path

import pytest

from zooserve.catalogue import load_catalogue
from zooserve.errors import BackendUnavailable
from zooserve_router.probes import inferences_proving
from zooserve_router.readiness import Readiness


@pytest.fixture
def catalogue():
    return load_catalogue(Path(__file__).parents[3] / "zoo.yaml")


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_required_models_decide_and_optional_ones_do_not(catalogue):
    async def works() -> None:
        return

    async def fails() -> None:
        raise BackendUnavailable("no such model")

    probes = {model.name: works if model.required else fails for model in catalogue}
    readiness = Readiness(catalogue, probes)
    assert not readiness.ready
    watch = asyncio.create_task(readiness.watch())
    await turns()
    assert readiness.ready
    assert {state.model.name: state.reason for state in readiness.states()}["rerank"] == "no such model"
    with pytest.raises(BackendUnavailable, match="no such model"):
        readiness.require(catalogue.resolve("rerank"))
    readiness.require(catalogue.resolve("embed"))
    watch.cancel()
    await asyncio.gather(watch, return_exceptions=True)


async def test_a_probe_that_hangs_or_breaks_holds_up_no_other(catalogue):
    async def hangs() -> None:
        await asyncio.Event().wait()

    async def breaks() -> None:
        raise ZeroDivisionError

    async def works() -> None:
        return

    probes = {model.name: works for model in catalogue} | {"rerank": hangs, "classify": breaks}
    readiness = Readiness(catalogue, probes)
    watch = asyncio.create_task(readiness.watch())
    await turns()
    assert [state.model.name for state in readiness.states() if not state.ready] == ["rerank", "classify"]
    watch.cancel()
    await asyncio.gather(watch, return_exceptions=True)


async def test_a_doubted_model_is_probed_again_at_once(catalogue):
    probed = asyncio.Event()

    async def works() -> None:
        probed.set()

    readiness = Readiness(catalogue, {model.name: works for model in catalogue})
    watch = asyncio.create_task(readiness.watch())
    await turns()
    probed.clear()
    readiness.doubt(catalogue.resolve("embed"), BackendUnavailable("connection refused"))
    assert not readiness.is_ready("embed")
    await turns()
    assert probed.is_set()
    assert readiness.is_ready("embed")
    watch.cancel()
    await asyncio.gather(watch, return_exceptions=True)


async def test_a_model_that_works_for_its_probes_alone_does_not_fill_the_log(catalogue, caplog):
    async def works() -> None:
        return

    readiness = Readiness(catalogue, {model.name: works for model in catalogue})
    watch = asyncio.create_task(readiness.watch())
    for _ in range(50):
        await turns()
        assert readiness.is_ready("embed")
        readiness.doubt(catalogue.resolve("embed"), BackendUnavailable("broken off"))
    readiness.doubt(catalogue.resolve("rerank"), BackendUnavailable("gone"))
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert told == ["embed is no longer ready: broken off", "rerank is no longer ready: gone"]
    watch.cancel()
    await asyncio.gather(watch, return_exceptions=True)


async def test_three_requests_in_a_row_without_an_answer_are_a_doubt(catalogue):
    async def works() -> None:
        return

    embed = catalogue.resolve("embed")
    readiness = Readiness(catalogue, {model.name: works for model in catalogue})
    watch = asyncio.create_task(readiness.watch())
    await turns()
    for _ in range(5):
        readiness.unanswered(embed, "embed", budget_s=0.9)  # too little time says nothing about the server
    readiness.unanswered(embed, "embed", budget_s=5)
    readiness.unanswered(embed, "embed", budget_s=5)
    readiness.unanswered(embed, "embed_bulk", budget_s=5)
    readiness.answered("embed")
    readiness.unanswered(embed, "embed", budget_s=5)
    readiness.unanswered(embed, "embed", budget_s=5)
    assert readiness.is_ready("embed")
    readiness.unanswered(embed, "embed", budget_s=5)
    with pytest.raises(BackendUnavailable, match="embed left 3 requests in a row without an answer"):
        readiness.require(embed)
    await turns()
    assert readiness.is_ready("embed"), "the probe was answered"
    watch.cancel()
    await asyncio.gather(watch, return_exceptions=True)


def test_every_bucket_of_every_class_and_encoder_is_asked(catalogue):
    asked = [(wanted.model, wanted.inputs[0].shape[-1]) for wanted in inferences_proving(catalogue.resolve("embed"))]
    models = [model for model, _ in asked]
    assert {model: models.count(model) for model in models} == {
        "embed": 5,
        "embed_bulk": 5,
        "embed_encoder": 5,
        "embed_bulk_encoder": 5,
    }
    assert [length for model, length in asked if model == "embed_encoder"] == [16, 32, 64, 128, 256]


async def test_a_start_waits_until_every_model_was_tried_whatever_came_of_it(catalogue):
    first = asyncio.Event()

    async def works() -> None:
        await first.wait()

    async def fails() -> None:
        raise BackendUnavailable("no such model")

    readiness = Readiness(catalogue, {model.name: works for model in catalogue} | {"rerank": fails})
    watch = asyncio.create_task(readiness.watch())
    started = asyncio.create_task(readiness.tried(within_s=30))
    await turns()
    assert not started.done()
    first.set()
    await started
    assert readiness.ready
    watch.cancel()
    await asyncio.gather(watch, return_exceptions=True)


async def test_a_start_does_not_wait_for_ever_for_a_model_that_hangs(catalogue):
    async def hangs() -> None:
        await asyncio.Event().wait()

    readiness = Readiness(catalogue, {model.name: hangs for model in catalogue})
    watch = asyncio.create_task(readiness.watch())
    await readiness.tried(within_s=0.05)
    assert not readiness.ready
    watch.cancel()
    await asyncio.gather(watch, return_exceptions=True)
