"""Draw the committed dashboards from a Prometheus, for the docs: what Grafana would show, without a Grafana.

    make pictures PROMETHEUS=http://127.0.0.1:9090 MINUTES=5

One picture a dashboard, its panels where they are on the grid. Its environment: requirements/docs.lock.
"""

import argparse
import io
import math
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

import httpx
import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from matplotlib.ticker import FuncFormatter, MaxNLocator
from PIL import Image

from zooserve_observability.dashboards.committed import Drawn, Target, choices, filled, read

GROUND, PANEL, EDGE, TEXT, FAINT, GRID = "#111217", "#181b1f", "#2a2d34", "#d8d9da", "#8e8e94", "#26292f"
LINES = (
    "#7eb26d", "#eab839", "#6ed0e0", "#ef843c", "#e24d42", "#1f78c1", "#ba43a9", "#705da0", "#508642", "#cca300",
    "#447ebc", "#c15c17", "#890f02", "#0a437c", "#6d1f62", "#584477",
)  # fmt: skip
STATES = {"green": "#73bf69", "yellow": "#fade2a", "red": "#f2495c"}
COLUMN_PX, LINE_PX, GAP_PX, DPI, COLUMNS = 60, 27, 4, 100, 24
MOST_NAMES, MOST_BANDS, MOST_ROWS, MOST_NUMBERS = 4, 12, 8, 3
STEPS, POINTS_PX = 110, 7
LABEL = re.compile(r"{{(\w+)}}")
TOP, BOTTOM, LEFT, RIGHT = 26, 16, 46, 10
"""Pixels of a panel around its axes; its names come below."""


@dataclass(frozen=True)
class Series:
    """What Prometheus answered, with the name that the legend gives it."""

    name: str
    labels: Mapping[str, str]
    points: Sequence[tuple[float, float]]

    @property
    def last(self) -> float:
        """Its latest value that is one."""
        return next((value for _, value in reversed(self.points) if math.isfinite(value)), math.nan)

    @property
    def largest(self) -> float:
        """Its largest value that is one."""
        return max((value for _, value in self.points if math.isfinite(value)), default=math.nan)


@dataclass(frozen=True)
class Prometheus:
    """A Prometheus, and the time of which it is asked."""

    http: httpx.Client
    began: float
    ended: float
    chosen: Mapping[str, str]

    def choosing(self, folder: Path, uid: str) -> "Prometheus":
        """The same, with what a dashboard lets one choose from."""
        found = {
            choice.name: self.http.get(f"/api/v1/label/{choice.label}/values", params={"match[]": choice.series}).json()
            for choice in choices(folder, uid)
        }
        return replace(self, chosen={name: "|".join(answer["data"]) for name, answer in found.items()})

    def series(self, target: Target) -> list[Series]:
        """What a panel's query finds."""
        step = max(2.0, (self.ended - self.began) / STEPS)
        asked = {"query": filled(target.expression, f"{max(20, round(4 * step))}s", self.chosen)}
        if target.instant:
            found = self._asked("query", {**asked, "time": self.ended})
            return [_named(target, each["metric"], [each["value"]]) for each in found]
        found = self._asked("query_range", {**asked, "start": self.began, "end": self.ended, "step": step})
        return [_named(target, each["metric"], each["values"]) for each in found]

    def _asked(self, how: str, parameters: dict[str, Any]) -> list[dict[str, Any]]:
        answer = self.http.get(f"/api/v1/{how}", params=parameters).json()
        if answer["status"] != "success":
            raise SystemExit(f"Prometheus refuses {parameters['query']}: {answer['error']}")
        return list(answer["data"]["result"])


def _named(target: Target, labels: Mapping[str, str], points: Sequence[Sequence[Any]]) -> Series:
    name = LABEL.sub(lambda found: labels.get(found[1], ""), target.legend)
    return Series(name, labels, [(at, float(value)) for at, value in points])


def scaled(steps: Sequence[tuple[float, str]], zero: str = "0") -> Callable[[float], str]:
    """Numbers with the largest unit that leaves a 1 before the point."""

    def told(value: float) -> str:
        if not math.isfinite(value):
            return "-"
        if abs(value) < 1e-12:
            return zero
        size, unit = next(((size, unit) for size, unit in steps if abs(value) >= size), steps[-1])
        return f"{value / size:.3g}{unit}"

    return told


COUNT = scaled([(1e9, " G"), (1e6, " M"), (1e3, " K"), (1, "")])
TOLD: Mapping[str, Callable[[float], str]] = {
    "s": scaled([(60, " min"), (1, " s"), (1e-3, " ms"), (1e-6, " µs")], "0 s"),
    "µs": scaled([(1e6, " s"), (1e3, " ms"), (1, " µs")], "0 µs"),
    "ms": scaled([(1e3, " s"), (1, " ms")], "0 ms"),
    "bytes": scaled([(2**30, " GiB"), (2**20, " MiB"), (2**10, " KiB"), (1, " B")], "0 B"),
    "percentunit": lambda value: f"{COUNT(100 * value)}%".replace(" ", ""),
    "reqps": lambda value: f"{COUNT(value)} req/s",
    "cps": lambda value: f"{COUNT(value)} c/s",
}


def draw(figure: Figure, drawn: Drawn, top: int, prometheus: Prometheus) -> None:
    """One panel, at its place."""
    x, y, width, height = drawn.place
    box = (
        x * COLUMN_PX + GAP_PX,
        top + y * LINE_PX + GAP_PX,
        width * COLUMN_PX - 2 * GAP_PX,
        height * LINE_PX - 2 * GAP_PX,
    )
    _frame(figure, box)
    _write(figure, box[0] + 9, box[1] + 14, drawn.title, size=8.2, weight="bold")
    series = [found for target in drawn.targets for found in prometheus.series(target)]
    if not series:
        told = f"requires {drawn.requires}" if drawn.requires else "no data"
        _write(figure, box[0] + box[2] / 2, box[1] + box[3] / 2, told, colour=FAINT, align="center")
        return
    series.sort(key=lambda found: -found.largest if math.isfinite(found.largest) else math.inf)
    KINDS[drawn.kind](figure, box, drawn, series)


Box = tuple[float, float, float, float]
"""x, y, width and height in pixels, from the top left."""


def _lines(figure: Figure, box: Box, drawn: Drawn, series: Sequence[Series]) -> None:
    named = series[:MOST_NAMES]
    axes = _axes(figure, box, names_px=15 * len(named) + 4)
    told = TOLD.get(drawn.unit, COUNT)
    if drawn.stacked:
        _stack(axes, series)
    else:
        for number, one in enumerate(series):
            at, values = _apart(one)
            axes.plot(at, values, color=LINES[number % len(LINES)], linewidth=1.0)
            axes.fill_between(at, values, color=LINES[number % len(LINES)], alpha=0.07, linewidth=0)
    axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0] if any(v < 0 for one in series for _, v in one.points) else 0.0))
    if drawn.most is not None:
        axes.set_ylim(top=max(drawn.most, *(one.largest for one in series if math.isfinite(one.largest)), 0.0) * 1.02)
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: told(value)))
    for number, one in enumerate(named):
        y = box[1] + box[3] - 15 * (len(named) - number) + 5
        _write(figure, box[0] + 9, y, "▬", colour=LINES[number % len(LINES)], size=7)
        more = f"  (+{len(series) - len(named)})" if number == len(named) - 1 and len(series) > len(named) else ""
        _write(figure, box[0] + 24, y, _short(one.name, box[2] - 150) + more, size=6.8)
        _write(figure, box[0] + box[2] - 9, y, f"{told(one.last)}   max {told(one.largest)}", size=6.8, align="right")


def _stack(axes: Axes, series: Sequence[Series]) -> None:
    times = sorted({at for one in series for at, _ in one.points})
    values = [[dict(one.points).get(at, 0.0) for at in times] for one in series]
    finite = [[value if math.isfinite(value) else 0.0 for value in each] for each in values]
    colours = [LINES[number % len(LINES)] for number in range(len(series))]
    axes.stackplot([datetime.fromtimestamp(at, UTC) for at in times], finite, colors=colours, alpha=0.75, linewidth=0)


def _bands(figure: Figure, box: Box, drawn: Drawn, series: Sequence[Series]) -> None:
    shown = sorted(series, key=lambda one: one.name)[:MOST_BANDS]
    axes = _axes(figure, box, names_px=6, left=min(150, box[2] / 3))
    colours = list(STATES.values())
    coloured = {0.0: colours[2], 1.0: colours[0]} if "ready" in drawn.mappings.values() else dict(enumerate(colours))
    for number, one in enumerate(shown):
        at, values = _apart(one)
        for value, run in groupby(zip(at, values, strict=True), key=lambda point: point[1]):
            moments = [moment for moment, _ in run]
            until = next((moment for moment in at if moment > moments[-1]), moments[-1])
            axes.fill_betweenx(
                [number - 0.36, number + 0.36],
                moments[0],
                until,
                color=coloured.get(value, FAINT),
                alpha=0.8,
                linewidth=0,
            )
    axes.set_ylim(len(shown) - 0.5, -0.5)
    axes.set_yticks(range(len(shown)), [_short(one.name, 150) for one in shown])


def _numbers(figure: Figure, box: Box, drawn: Drawn, series: Sequence[Series]) -> None:
    shown, told = series[: -MOST_NUMBERS - 1 : -1], TOLD.get(drawn.unit, COUNT)
    for number, one in enumerate(shown):
        x = box[0] + box[2] * (number + 0.5) / len(shown)
        _write(
            figure,
            x,
            box[1] + box[3] * 0.55,
            told(one.last),
            size=13,
            colour=STATES["green" if one.last >= 0 else "red"],
            align="center",
        )
        _write(figure, x, box[1] + box[3] * 0.82, one.name, size=6.8, align="center")


def _table(figure: Figure, box: Box, drawn: Drawn, series: Sequence[Series]) -> None:
    columns = sorted({label for one in series for label in one.labels}, key=lambda label: (label != "model", label))
    told = TOLD.get(drawn.unit, COUNT)
    rows = [
        columns,
        *([one.labels.get(column, "") for column in columns] for one in sorted(series, key=lambda one: one.name)),
    ]
    values = ["now", *(told(one.last) for one in sorted(series, key=lambda one: one.name))]
    for line, (cells, value) in enumerate(zip(rows[: MOST_ROWS + 1], values, strict=False)):
        y = box[1] + 38 + 19 * line
        for number, cell in enumerate((*cells, value)):
            x = box[0] + 10 + (box[2] - 20) * number / (len(columns) + 1)
            _write(figure, x, y, cell, size=7, colour=FAINT if line == 0 else TEXT)


KINDS: Mapping[str, Callable[[Figure, Box, Drawn, Sequence[Series]], None]] = {
    "timeseries": _lines, "state-timeline": _bands, "stat": _numbers, "table": _table,
}  # fmt: skip


def _apart(one: Series) -> tuple[list[datetime], list[float]]:
    return [datetime.fromtimestamp(at, UTC) for at, _ in one.points], [value for _, value in one.points]


def _short(name: str, width_px: float) -> str:
    most = max(12, int(width_px / 5.4))
    return name if len(name) <= most else name[: most - 1] + "…"


def _axes(figure: Figure, box: Box, names_px: float, left: float = LEFT) -> Axes:
    width, height = figure.get_size_inches() * DPI
    inner = (box[0] + left, box[1] + TOP, box[2] - left - RIGHT, box[3] - TOP - BOTTOM - names_px)
    axes = figure.add_axes((inner[0] / width, 1 - (inner[1] + inner[3]) / height, inner[2] / width, inner[3] / height))
    axes.set_facecolor(PANEL)
    axes.set_axisbelow(True)
    axes.grid(color=GRID, linewidth=0.7)
    axes.tick_params(colors=FAINT, labelsize=6.4, length=0, pad=2)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.xaxis.set_major_formatter(mpl.dates.DateFormatter("%H:%M"))
    axes.xaxis.set_major_locator(mpl.dates.AutoDateLocator(minticks=2, maxticks=5))
    return axes


def _frame(figure: Figure, box: Box) -> None:
    width, height = figure.get_size_inches() * DPI
    place = (box[0] / width, 1 - (box[1] + box[3]) / height)
    figure.add_artist(
        FancyBboxPatch(
            place,
            box[2] / width,
            box[3] / height,
            boxstyle="square,pad=0",
            facecolor=PANEL,
            edgecolor=EDGE,
            linewidth=0.8,
            zorder=-1,
        )
    )


def _write(
    figure: Figure,
    x: float,
    y: float,
    words: str,
    *,
    size: float = 7.5,
    colour: str = TEXT,
    align: str = "left",
    weight: str = "normal",
) -> None:
    width, height = figure.get_size_inches() * DPI
    # A dollar sign would begin a formula.
    figure.text(
        x / width,
        1 - y / height,
        words.replace("$", r"\$"),
        size=size,
        color=colour,
        ha=align,
        va="center",
        weight=weight,
    )


def picture(panels: Sequence[Drawn], title: str, prometheus: Prometheus) -> bytes:
    """One dashboard as PNG."""
    top = 2 * LINE_PX
    height = top + LINE_PX * max(panel.place[1] + panel.place[3] for panel in panels) + 2 * GAP_PX
    figure = Figure(figsize=(COLUMNS * COLUMN_PX / DPI, height / DPI), dpi=DPI, facecolor=GROUND)
    day = datetime.fromtimestamp(prometheus.ended, UTC).strftime("%Y-%m-%d, UTC")
    _write(figure, 2 * GAP_PX, LINE_PX, title, size=12, weight="bold")
    _write(figure, COLUMNS * COLUMN_PX - 2 * GAP_PX, LINE_PX, day, size=8, colour=FAINT, align="right")
    for row, below in groupby(panels, key=lambda panel: panel.row):
        members = list(below)
        _write(figure, 2 * GAP_PX, top + (members[0].place[1] - 0.5) * LINE_PX, row, size=9, weight="bold")
        for panel in members:
            draw(figure, panel, top, prometheus)
    return _small(figure)


def _small(figure: Figure) -> bytes:
    whole, small = io.BytesIO(), io.BytesIO()
    figure.savefig(whole, format="png", facecolor=GROUND)
    Image.open(whole).convert("RGB").quantize(96, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE).save(
        small, "png", optimize=True
    )
    return small.getvalue()


def main() -> None:
    """Draw every dashboard, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("prometheus", help="its base URL")
    parser.add_argument("dashboards", nargs="*", help="uids; all of them unless given")
    parser.add_argument("--minutes", type=float, default=5.0, help="how far to look back (%(default)s)")
    parser.add_argument("--until", type=float, default=time.time(), help="in seconds since 1970; now unless given")
    parser.add_argument("--folder", type=Path, default=Path("observability/grafana/dashboards"))
    parser.add_argument("--into", type=Path, default=Path("docs/pictures"))
    asked = parser.parse_args()
    with httpx.Client(base_url=asked.prometheus, timeout=60) as http:
        prometheus = Prometheus(http, asked.until - 60 * asked.minutes, asked.until, {})
        for (uid, title), panels in groupby(read(asked.folder), key=lambda panel: (panel.dashboard, panel.page)):
            if not asked.dashboards or uid in asked.dashboards:
                name = uid.removeprefix("zooserve-")
                png = picture(list(panels), title, prometheus.choosing(asked.folder, uid))
                (asked.into / f"{name}.png").write_bytes(png)
                sys.stderr.write(f"{name}.png: {len(png) // 1000} kB\n")


if __name__ == "__main__":
    mpl.use("agg")
    main()
