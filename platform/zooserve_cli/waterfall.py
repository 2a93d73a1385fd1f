"""A trace in a terminal: its spans as a tree, each with a bar on one axis of time, and the stage that took longest.

Names and errors in spans are their exporters' words: what could steer a terminal is not printed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from rich.console import Console
from rich.table import Table
from rich.text import Text

from zooserve_observability.trace_log.portions import ROOT
from zooserve_observability.trace_log.reading import Request
from zooserve_observability.trace_log.stages import Node, Slowest, slowest_of, stage_of, trees_between

__all__ = ["draw", "duration", "list_requests", "plain"]

_MOST_ROWS = 200
_MOST_STRAYS = 50
_MOST_REQUESTS = 20
_DEEPEST = 12
_DURATION = 9
_SLACK_NS = 1_000_000_000
"""Of clocks that differ."""
_PIPED_WIDTH = 160
_WIDE = 100
_ID, _SHORT_ID = 36, 16
"""A whole id of the router's, and a beginning by which it is found, too."""


@dataclass(frozen=True)
class _Signs:
    """What bars are made of."""

    work: str
    """A span with none below."""
    around: str
    """One that others stand in."""
    queue: str
    slowest: str
    cut: str


_BLOCKS = _Signs("█", "─", "░", "◀", "…")
_ASCII = _Signs("#", "-", ".", "<", "~")


def list_requests(requests: Sequence[Request]) -> None:
    """A table, a request a line."""
    out = Console(highlight=False)
    if not out.is_terminal:
        out = Console(highlight=False, width=_PIPED_WIDTH)
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("time", no_wrap=True)
    is_wide = out.width >= _WIDE
    table.add_column(
        "request",
        no_wrap=not is_wide,
        overflow="fold" if is_wide else "ellipsis",
        max_width=_ID if is_wide else _SHORT_ID,
    )
    for name, narrow in (("model", 12), ("class", 11), ("outcome", 13)):
        table.add_column(name, no_wrap=True, overflow="ellipsis", max_width=None if is_wide else narrow)
    table.add_column("took", no_wrap=True, justify="right")
    table.add_column("spans", no_wrap=True, justify="right")
    for request in requests:
        outcome = Text(plain(request.outcome), "red" if request.failed else "")
        cells = (_clock(request.began_ns), request.request_id, _model_of(request), request.slo_class)
        # As Text: in a str Rich would find markup and emojis, of which `a:bug:1` is one.
        table.add_row(
            *(Text(plain(cell)) for cell in cells), outcome, duration(request.duration_ns), f"{request.spans:,}"
        )
    out.print(table)


def draw(request: Request | None, whole: Node | None, roots: Sequence[Node]) -> None:
    """One request's spans; without one all requests of the trace, and what belongs to none."""
    out = Console(highlight=False)
    if whole is not None and request is not None:
        _tell(out, request, whole)
        strays = trees_between(roots, whole.span.start_ns - _SLACK_NS, whole.span.end_ns + _SLACK_NS)
        _draw_trees(out, [whole], [stray for stray in strays if stray.span.name != ROOT])
        return
    requests = [root for root in roots if root.span.name == ROOT]
    strays = [root for root in roots if root.span.name != ROOT]
    out.print(f"trace {roots[0].span.trace_id}, {len(requests)} requests\n")
    for root in requests[:_MOST_REQUESTS]:
        said = root.span.attributes
        _print(out, Text(plain(f"{said.get('zooserve.request_id', '')}  {_clock(root.span.start_ns)}"), "bold"))
        _draw_trees(out, [root], [])
    if len(requests) > _MOST_REQUESTS:
        out.print(f"{len(requests) - _MOST_REQUESTS:,} more requests of this trace are not drawn\n")
    if strays:
        _draw_trees(out, [], strays)


def _tell(out: Console, request: Request, whole: Node) -> None:
    outcome = Text(plain(request.outcome or "-"), "red" if request.failed else "green")
    line = Text(f"{plain(request.request_id)}  {plain(_model_of(request))}  {plain(request.slo_class)}  ", "bold")
    _print(out, line.append(outcome).append(f"  {duration(whole.span.duration_ns)}"))
    out.print(f"trace {request.trace_id}, {request.spans:,} spans, {request.decision}", soft_wrap=True)
    when = datetime.fromtimestamp(request.began_ns / 1e9).astimezone().isoformat(" ", "milliseconds")
    first = "" if request.first_token_ns is None else f", first token after {duration(request.first_token_ns)}"
    _print(out, Text(f"{when}{plain(request.route and f', {request.route}')}{first}\n"))


def _draw_trees(out: Console, wholes: Sequence[Node], strays: Sequence[Node]) -> None:
    slowest = slowest_of(wholes[0]) if wholes else None
    nodes = [node for root in wholes for node in root.walk()]
    stray = [node for root in strays for node in root.walk()]
    drawn, drawn_stray = _worth_drawing(nodes, _MOST_ROWS), _worth_drawing(stray, _MOST_STRAYS)
    picture = _Picture(out, [*drawn, *drawn_stray], slowest)
    picture.draw(drawn)
    if stray:
        _print(out, Text("spans whose parent did not arrive:" if wholes else "spans of no request:", "dim"))
        picture.draw(drawn_stray)
    if left_out := len(nodes) + len(stray) - len(drawn) - len(drawn_stray):
        out.print(f"{left_out:,} shorter spans are left out (--json has all)")
    if slowest is not None:
        out.print()
        out.print(Text(plain(f"slowest: {_told(slowest)}"), "bold"), soft_wrap=True)
    out.print()


def _told(slowest: Slowest) -> str:
    share = f"{slowest.spent_ns / slowest.whole_ns:.0%}" if slowest.whole_ns else "all"
    times = f" in {slowest.spans:,} spans" if slowest.spans > 1 else ""
    return f"{slowest}, {duration(slowest.spent_ns)} of {duration(slowest.whole_ns)} ({share}){times}"


def _worth_drawing(nodes: Sequence[Node], most: int) -> list[Node]:
    """The longest spans, and those that they stand in, in their order."""
    worth: set[str] = set()
    for node in sorted(nodes, key=lambda node: node.span.duration_ns, reverse=True):
        chain = []
        above: Node | None = node
        while above is not None and above.span.span_id not in worth:
            chain.append(above.span.span_id)
            above = above.above
        if len(worth) + len(chain) > most:
            worth.update(chain[-most:] if not worth else ())  # one chain alone is longer than the picture
            break
        worth.update(chain)
    return [node for node in nodes if node.span.span_id in worth]


class _Picture:
    """Rows of one width, over one axis."""

    def __init__(self, out: Console, nodes: Sequence[Node], slowest: Slowest | None) -> None:
        self._out = out
        self._signs = _ASCII if out.options.ascii_only else _BLOCKS
        self._slowest = slowest
        self._began = min(node.span.start_ns for node in nodes)
        self._extent = max(1, max(node.span.end_ns for node in nodes) - self._began)
        longest = max(_label(node).cell_len for node in nodes)
        self._label = min(longest, max(16, int(out.width * 0.48)))
        self._bar = max(10, out.width - self._label - _DURATION - 5)

    def draw(self, nodes: Iterable[Node]) -> None:
        """A row for each, and one for what went wrong in it."""
        for node in nodes:
            label = _label(node)
            label.truncate(self._label, overflow="ellipsis", pad=True)
            row = label.append(" ").append(self._drawn_bar(node))
            row.append(f" {duration(node.span.duration_ns):>{_DURATION}}")
            if self._is_slowest(node):
                row.append(f" {self._signs.slowest}", "bold red")
            _print(self._out, row)
            if trouble := _trouble(node):
                _print(self._out, Text(f"{' ' * _indent(node)}  {plain(trouble)}", "red"))

    def _is_slowest(self, node: Node) -> bool:
        if self._slowest is None:
            return False
        phases = {"compute"} if node.span.name == "compute" else {"queue", "around its computing", "itself", ""}
        if node.queue is None:
            phases -= {"queue", "around its computing"}
        return stage_of(node) == self._slowest.stage and self._slowest.phase in phases

    def _drawn_bar(self, node: Node) -> Text:
        span = node.span
        sign = self._signs.around if node.below else self._signs.work
        style = "dim" if node.below else "cyan"
        cells = [" "] * self._bar
        began, ended = self._columns(span.start_ns, span.end_ns)
        cells[began:ended] = sign * (ended - began)
        if node.queue is not None:
            began, ended = self._columns(*node.queue)
            cells[began:ended] = self._signs.queue * (ended - began)
        return Text("".join(cells), "red" if span.error else style)

    def _columns(self, began_ns: int, ended_ns: int) -> tuple[int, int]:
        """The cells of a bar: one at least."""
        began = (began_ns - self._began) * self._bar // self._extent
        ended = -((self._began - max(began_ns, ended_ns)) * self._bar // self._extent)
        began = min(max(0, began), self._bar - 1)
        return began, min(max(began + 1, ended), self._bar)


def _label(node: Node) -> Text:
    name, _, version = node.model.partition("@")
    label = Text(" " * _indent(node))
    if name == node.span.name:
        return label.append(plain(f"{name}@{version}" if version else name))
    return label.append(plain(node.span.name)).append(plain(f" {node.model}" if node.model else ""), "dim")


def _indent(node: Node) -> int:
    return min(node.depth, _DEEPEST)


def _trouble(node: Node) -> str:
    said = node.span.attributes
    kind = said.get("error.type", "")
    stage = said.get("zooserve.failed_stage", "")
    if node.span.error:
        words = "" if node.span.error == "failed" else f": {node.span.error}"
        where = f" in {stage}@{said.get('zooserve.failed_version', '')}" if stage else ""
        return f"error {kind}{where}{words}" if kind or where else f"error{words}"
    outcome = said.get("zooserve.outcome", "ok")
    return "" if outcome in ("ok", "") else f"outcome {outcome}"


def plain(text: str) -> str:
    """The text without what could steer a terminal: control codes, line breaks, marks that turn the direction."""
    return "".join(character if character.isprintable() else "�" for character in text)


def duration(nanoseconds: int) -> str:
    """As people read it."""
    ms = nanoseconds / 1e6
    if ms < 10:
        return f"{ms:.2f} ms"
    return f"{ms:,.0f} ms" if ms < 10_000 else f"{ms / 1000:,.1f} s"


def _print(out: Console, text: Text) -> None:
    out.print(text, no_wrap=True, overflow="ellipsis", crop=True)


def _model_of(request: Request) -> str:
    return f"{request.model}@{request.version}" if request.version else request.model


def _clock(at_ns: int) -> str:
    at = datetime.fromtimestamp(at_ns / 1e9).astimezone()
    today = at.date() == datetime.now().astimezone().date()
    return at.strftime("%H:%M:%S" if today else "%m-%d %H:%M")
