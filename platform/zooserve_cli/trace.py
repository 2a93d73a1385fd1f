"""`zooserve trace`: which requests there were, and where the time of one of them went."""

import json
import re
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Annotated, TypeVar

import typer

from zooserve.errors import NoSuchTrace
from zooserve.processes.state import StateFolder
from zooserve.settings import Settings
from zooserve_observability.spans import Span
from zooserve_observability.trace_log.reading import NoTraceLog, Request, Selection, TraceReader
from zooserve_observability.trace_log.stages import Node, slowest_of, trees

__all__ = ["trace"]

T = TypeVar("T")
_LISTED = 20
_ARRIVES_WITHIN_S = 3.0
"""A request that ended just now: its spans come within 0.2 s, settle for a second, and are written within 0.25 s."""
_SETTLES_WITHIN_S = 2.0
_POLL_S = 0.1
_TRACE_ID = re.compile(r"[0-9a-fA-F]{32}")
_IDS = (
    "A request's id stands in its answer's x-request-id header, and six characters of its beginning will do; a trace's "
    "has 32 hexadecimal digits."
)


def trace(
    request: Annotated[str, typer.Argument(metavar="[REQUEST-ID|TRACE-ID]", help="Draw this one.")] = "",
    last: Annotated[bool, typer.Option("--last", help="Draw the newest.")] = False,
    slow: Annotated[bool, typer.Option("--slow", help="Draw the slowest; with --limit list the slowest.")] = False,
    errors: Annotated[bool, typer.Option("--errors", help="Of those that failed only.")] = False,
    limit: Annotated[int | None, typer.Option(min=1, max=10_000, help="List that many [default: 20].")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """List the newest requests, or draw where the time of one went."""
    if sum((bool(request), last, slow)) > 1:
        raise typer.BadParameter("Give one of: an id, --last, --slow.")
    folder = StateFolder(Settings().resolved().state_dir)
    log = _Log(folder)
    if request:
        _draw(*log.found(request.rstrip("…")), as_json=as_json)  # as a narrow list cuts it
    elif last or (slow and limit is None):
        _draw(*log.first("slowest" if slow else "newest", errors=errors, newest=last), as_json=as_json)
    else:
        _list(log.requests("slowest" if slow else "newest", limit or _LISTED, errors=errors), as_json=as_json)


class _Log:
    """The trace log of one platform, that runs or has ended."""

    def __init__(self, folder: StateFolder) -> None:
        self._reader = TraceReader(folder.traces_file)
        state = folder.read_state()
        self._is_running = state is not None and state.is_running

    def requests(self, selection: Selection, limit: int, *, errors: bool) -> list[Request]:
        """That many. Raises NoSuchTrace where there is no log, or nothing in it."""
        found = self._read(lambda: self._reader.requests(selection, limit, errors=errors))
        if not found:
            raise NoSuchTrace("No request that failed is known." if errors else "No request has been traced yet.")
        return found

    def first(self, selection: Selection, *, errors: bool, newest: bool) -> tuple[Request, list[Span]]:
        """The first of them, with its trace. The newest may be on its way still."""
        if newest and self._is_running:
            time.sleep(_SETTLES_WITHIN_S)
        request = self.requests(selection, 1, errors=errors)[0]
        spans = self._read(lambda: self._reader.spans(request.trace_id))
        if not spans:
            raise NoSuchTrace(f"{_shown(request.request_id)} has just been forgotten: the log is full. Ask again.")
        return request, spans

    def found(self, name: str) -> tuple[Request | None, list[Span]]:
        """The newest request of this id, or a whole trace. Raises NoSuchTrace."""
        until = time.monotonic() + (_ARRIVES_WITHIN_S if self._is_running else 0)
        while True:
            is_late = time.monotonic() > until
            try:
                request, trace_id = self._known(name)
                spans = self._read(partial(self._reader.spans, trace_id)) if trace_id else []
            except NoSuchTrace:  # the log is made when its first trace settles
                if is_late:
                    raise
                request, spans = None, []
            if spans:
                return request, spans
            if is_late:
                raise NoSuchTrace(
                    f"No request or trace {_shown(name)!r} is known. {_IDS} The log keeps the last ones as long as "
                    "there is room for them: ordinary ones are forgotten first, slow and failed ones last."
                )
            time.sleep(_POLL_S)

    def _known(self, name: str) -> tuple[Request | None, str]:
        if not name.isprintable():  # no id is like that, and SQLite takes no half of a character
            return None, ""
        if requests := self._read(lambda: self._reader.of_request(name)):
            return requests[0], requests[0].trace_id
        if not _TRACE_ID.fullmatch(name):
            return None, ""
        of_trace = self._read(lambda: self._reader.of_trace(name.lower()))
        return (of_trace[0] if len(of_trace) == 1 else None), name.lower()

    def _read(self, look: Callable[[], T]) -> T:
        try:
            return look()
        except NoTraceLog as exc:
            raise NoSuchTrace(
                f"There is no trace log: {exc}. Start a platform with `zooserve up`, and send it a request."
            ) from exc


def _list(requests: list[Request], *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps([asdict(request) for request in requests], indent=1))
        return
    from zooserve_cli.waterfall import list_requests

    list_requests(requests)


def _draw(request: Request | None, spans: list[Span], *, as_json: bool) -> None:
    """The request's own spans, or all of its trace."""
    roots = trees(spans)
    nodes = {node.span.span_id: node for root in roots for node in root.walk()}
    whole = nodes.get(request.span_id) if request is not None else None
    if as_json:
        slowest = asdict(slowest_of(whole)) if whole is not None else None
        body = {
            "request": asdict(request) if request is not None else None,
            "slowest": slowest,
            "spans": [_told(node) for node in nodes.values()],
        }
        typer.echo(json.dumps(body, indent=1))
        return
    from zooserve_cli.waterfall import draw

    draw(request, whole, roots)


def _told(node: Node) -> dict[str, object]:
    events = [event._asdict() for event in node.span.events]
    return {**asdict(node.span), "events": events, "model": node.model, "depth": node.depth}


def _shown(name: str) -> str:
    return "".join(character if character.isprintable() else "�" for character in name[:80])
