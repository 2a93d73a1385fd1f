"""`zooserve reembed`: a collection into the embedding space of another model, and back."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zooserve.errors import NotRunning
from zooserve.processes.state import StateFolder
from zooserve.sdk.index import require_name
from zooserve.settings import Settings

if TYPE_CHECKING:
    from zooserve_cli.reembedding.course import Summary
    from zooserve_cli.reembedding.planning import Plan, Request
    from zooserve_cli.reembedding.rollback import RolledBack
    from zooserve_cli.reembedding.store import Address

__all__ = ["reembed"]

_TIMEOUT_S = 300.0
"""For a probe, and for a sample of the result, on a platform that is busy with everything else."""


def reembed(
    collection: Annotated[str, typer.Argument(help="The alias that is searched, as `docs`.")],
    to: Annotated[str | None, typer.Option("--to", metavar="MODEL[@VERSION]", help="The model to embed with.")] = None,
    source: Annotated[
        list[Path] | None,
        typer.Option("--from", metavar="PATH", help="Read these instead: .jsonl, .parquet, or a folder of them."),
    ] = None,
    store: Annotated[Path | None, typer.Option(help="Folder of a local Qdrant.")] = None,
    qdrant: Annotated[str | None, typer.Option(help="URL of a Qdrant server.", envvar="QDRANT_URL")] = None,
    qdrant_key_variable: Annotated[
        str, typer.Option(help="The environment variable that holds the server's API key.")
    ] = "QDRANT_API_KEY",
    router: Annotated[
        str | None, typer.Option(help="The router's URL; left out: the running platform's.", envvar="ZOOSERVE_URL")
    ] = None,
    rollback: Annotated[bool, typer.Option("--rollback", help="Lead the alias back to the collection before.")] = False,
    restart: Annotated[bool, typer.Option("--restart", help="Delete what an unfinished job made; begin anew.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")] = False,
    alias: Annotated[
        str | None, typer.Option(help="The alias to make, where COLLECTION is a collection and no alias.")
    ] = None,
    adopt: Annotated[bool, typer.Option("--adopt", help="Read a collection that zooserve did not make.")] = False,
    text_field: Annotated[str | None, typer.Option(help="The payload's key of the texts, `text` left out.")] = None,
    id_field: Annotated[str, typer.Option(help="In files, the key of the ids.")] = "id",
    vector: Annotated[str | None, typer.Option(help="Of several dense vectors the one to make anew.")] = None,
    sparse: Annotated[str | None, typer.Option(help="The sparse model; left out: the collection's, if any.")] = None,
    rate: Annotated[float, typer.Option(min=0, help="Texts per second at most; 0 is what the platform takes.")] = 0,
    workers: Annotated[int, typer.Option(min=1, max=1024, help="Parts that are embedded at a time.")] = 2,
    part_rows: Annotated[int, typer.Option("--part", min=1, max=4096, help="Texts in a part.")] = 256,
    patience: Annotated[float, typer.Option(min=0, help="Seconds that the platform may be away.")] = 300,
    niceness: Annotated[
        int, typer.Option(min=0, max=19, help="How far it and its Ray stand back from others on this machine.")
    ] = 10,
    accept_dead: Annotated[
        bool, typer.Option("--accept-dead", help="Switch although most rows are dead letters.")
    ] = False,
    ray: Annotated[str | None, typer.Option(metavar="ADDRESS", help="Join this Ray cluster.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Embed a collection's texts with another model, into a new collection, and switch the alias to it.

    After any end the same command goes on where it was. The old collection stays for --rollback.
    """
    from zooserve_cli.reembedding.endings import end_in_order
    from zooserve_cli.reembedding.planning import Request

    require_name(collection if rollback else alias or collection)  # before it is a part of paths
    address = _address(store, qdrant, qdrant_key_variable)
    settings = Settings().resolved()
    end_in_order()
    if rollback:
        if to is not None or source or restart or alias is not None:
            raise typer.BadParameter("--rollback is asked alone: it takes no --to, --from, --alias or --restart.")
        with _told_endings(f"{collection} leads either there or here: look with --rollback --dry-run."):
            _roll_back(settings, address, collection, dry_run=dry_run, as_json=as_json)
        return
    if to is None:
        raise typer.BadParameter("Say which model to embed with, as --to embed@1, or give --rollback.")
    request = Request(
        collection=collection, to=to, address=address, files=tuple(source or ()), alias=alias, text_field=text_field,
        id_field=id_field, vector=vector, sparse=sparse, part_rows=part_rows, adopt=adopt, restart=restart,
        accept_dead=accept_dead, texts_per_s=rate, workers=workers, ray=ray, patience_s=patience,
    )  # fmt: skip
    at = router or _running_router(settings)
    with _told_endings("Nothing is lost: the same command goes on from here."):
        if dry_run:
            _show(_intended(settings, request, at), as_json=as_json)
        else:
            _stand_back(niceness)
            _run(settings, request, at, as_json=as_json)


def _stand_back(niceness: int) -> None:
    """This thread, its later threads and children yield to whoever answers requests on the same cores.

    Of Ray's processes that is all; its workers add Ray's own 15. Beside a command that did not stand back, the p95 of
    interactive requests was 1.6 to 1.7 times that of requests alone, on two cores.
    """
    os.setpriority(os.PRIO_PROCESS, 0, max(niceness, os.getpriority(os.PRIO_PROCESS, 0)))


@contextmanager
def _told_endings(what_now: str) -> Iterator[None]:
    """For the block, an ending that was asked for is one line and the exit code that a shell knows it by."""
    from zooserve_cli.reembedding.endings import Left, signals_kept_from_threads

    try:
        with signals_kept_from_threads():
            import qdrant_client  # noqa: F401 (numpy's threads begin here)
        yield
    except Left as exc:
        typer.echo(f"\nInterrupted. {what_now}", err=True)
        sys.exit(exc.exit_code)


def _address(folder: Path | None, url: str | None, key_variable: str) -> "Address":
    from zooserve_cli.reembedding.store import Address

    if folder is not None:  # QDRANT_URL may be set for everything else
        return Address(folder=str(folder.expanduser().resolve()))
    if url is None:
        raise typer.BadParameter("Say where Qdrant is: --qdrant URL (or QDRANT_URL), or --store FOLDER.")
    return Address(url=url, api_key=os.environ.get(key_variable))


def _running_router(settings: Settings) -> str:
    state = StateFolder(settings.state_dir).read_state()
    if state is None or not state.is_running or not state.router:
        raise NotRunning(
            f"No platform runs from {settings.state_dir}. Start one with `zooserve up`, or name its router with "
            "--router URL."
        )
    return f"http://{state.router}"


def _run(settings: Settings, request: "Request", router: str, *, as_json: bool) -> None:
    from zooserve.sdk.blocking.client import Zoo
    from zooserve_cli.reembedding.course import Course
    from zooserve_cli.reembedding.display import screen_for
    from zooserve_cli.reembedding.embedding import Orders
    from zooserve_cli.reembedding.job import JobFolder
    from zooserve_cli.reembedding.planning import planned
    from zooserve_cli.reembedding.store import Store

    folder = JobFolder(settings.state_dir, request.address.shown, request.name)
    with (
        folder.held(),
        Zoo(router, timeout_s=_TIMEOUT_S) as zoo,
        Store.opened(request.address, create=bool(request.files)) as store,
    ):
        plan = planned(zoo, store, request)
        orders = Orders(
            base_url=router,
            api_key=os.environ.get("ZOOSERVE_API_KEY"),
            model=plan.index.release,
            space=plan.index.space,
            dimensions=plan.index.dimensions,
            sparse_model=_sparse_release(plan),
            sparse_space=plan.index.sparse.space if plan.index.sparse else "",
            texts_per_s=request.texts_per_s / request.workers,
            patience_s=request.patience_s,
        )
        with screen_for(sys.stderr) as screen:
            summary = Course(zoo, store, plan, request, folder, orders, screen).run()
    _show(summary.as_json() if as_json else _told(summary), as_json=as_json)


def _sparse_release(plan: "Plan") -> str:
    sparse = plan.index.sparse
    return f"{sparse.model}@{sparse.version}" if sparse else ""


def _roll_back(settings: Settings, address: "Address", collection: str, *, dry_run: bool, as_json: bool) -> None:
    from zooserve_cli.reembedding.job import JobFolder
    from zooserve_cli.reembedding.rollback import roll_back, way_back
    from zooserve_cli.reembedding.store import Store

    if dry_run:
        with Store.opened(address, trace=False) as store:
            back = way_back(store, collection)
        _show({**back.as_json(), "outcome": "nothing was done"}, as_json=as_json)
        return
    with JobFolder(settings.state_dir, address.shown, collection).held(), Store.opened(address) as store:
        done = roll_back(store, collection)
    _show(done.as_json() if as_json else _told_back(done), as_json=as_json)


def _intended(settings: Settings, request: "Request", router: str) -> dict[str, Any]:
    """What would be done, found without a trace: no folder, no lock."""
    from zooserve.sdk.blocking.client import Zoo
    from zooserve_cli.reembedding.job import JobFolder
    from zooserve_cli.reembedding.planning import planned
    from zooserve_cli.reembedding.store import Store

    job = JobFolder(settings.state_dir, request.address.shown, request.name).read()
    with (
        Zoo(router, timeout_s=_TIMEOUT_S) as zoo,
        Store.opened(request.address, create=bool(request.files), trace=False) as store,
    ):
        plan = planned(zoo, store, request)
        is_made = plan.target in store.collections()
    said = plan.definition
    return {
        "outcome": "nothing was done",
        "collection": said.collection,
        "read from": said.source or [file.path for file in said.files],
        "rows": plan.rows,
        "model": plan.index.release,
        "space": plan.index.space,
        "dimensions": plan.index.dimensions,
        "sparse": said.sparse or None,
        "vectors carried over": list(plan.kept),
        "target": plan.target,
        "target is there already": is_made,
        "alias leads to": plan.led_to or None,
        "previous": plan.previous or None,
        "goes on with an unfinished job": job is not None and not job.done and job.definition == said,
    }


def _told(summary: "Summary") -> str:
    if summary.outcome != "switched":
        return f"{summary.collection} leads to {summary.target} already, which is of {summary.model}: nothing to do."
    lines = [
        f"{summary.collection} leads to {summary.target} now: {summary.points:,} points of {summary.model}, in "
        f"{summary.seconds:.0f} s."
    ]
    if summary.proof is not None:
        lines.append(
            f"Of {summary.proof.sampled} points drawn {summary.proof.found:.0%} find themselves; least cosine "
            f"{summary.proof.least_cosine:.5f}."
        )
    if summary.dead:
        lines.append(f"{summary.dead:,} of {summary.rows:,} rows could not be embedded: {summary.dead_letters}")
    if summary.added_meanwhile or summary.removed_meanwhile:
        lines.append(
            f"Caught up with what was written meanwhile: {summary.added_meanwhile:,} points, and "
            f"{summary.removed_meanwhile:,} removed."
        )
    if summary.written_since:
        lines.append(
            f"{summary.written_since:,} points were added to {summary.previous} between the beginning of the last "
            "comparison and the switch: they may not be in the new collection. Add them again."
        )
    if summary.removed_since:
        lines.append(
            f"{summary.removed_since:,} points were removed from {summary.previous} since the last comparison began: "
            "they may be in the new collection still."
        )
    if summary.previous:
        lines.append(f"{summary.previous} stays: zooserve reembed {summary.collection} --rollback leads back to it.")
    return "\n".join(lines)


def _told_back(done: "RolledBack") -> str:
    return (
        f"{done.collection} leads to {done.restored} again ({done.points_restored:,} points). {done.left} stays "
        f"({done.points_left:,} points); what was added to it since is not in {done.restored}."
    )


def _show(said: Any, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(said, indent=1, ensure_ascii=False))
    elif isinstance(said, dict):
        for name, value in said.items():
            typer.echo(f"{name}: {', '.join(map(str, value)) if isinstance(value, list) else value}")
    else:
        typer.echo(said)
