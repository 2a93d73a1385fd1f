"""What the demo shows people: the corpus, each answer as it comes, and what took how long."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from zooserve_cli.rag.answering import Answer, Cited
from zooserve_cli.rag.corpus import LICENCE, NAME
from zooserve_cli.rag.ingest import Ingested

__all__ = ["Screen"]

_SHOWN_CHARACTERS = 300


class Screen:
    """Writes to one console."""

    def __init__(self, console: Console) -> None:
        self._console = console

    @contextmanager
    def embedding(self, total: int) -> Iterator[Callable[[int], None]]:
        """A bar over the passages, with their rate; without a terminal nothing until they are done."""
        columns = (TextColumn("embedding"), BarColumn(), MofNCompleteColumn(), _Rate(), TimeElapsedColumn())
        with Progress(*columns, console=self._console, transient=True) as bars:
            task = bars.add_task("embedding", total=total)
            yield lambda done: bars.update(task, completed=done)

    def corpus(self, done: Ingested, where: str) -> None:
        """What there is to ask about."""
        how = f"{done.embedded} embedded in {done.seconds:.1f} s, {done.embedded / done.seconds:.0f} passages/s"
        self._console.print(
            f"{NAME} ({LICENCE}): {done.documents} documents, {done.chunks} passages, "
            f"{'already stored' if done.reused else how}.\n"
            f"[dim]Vectors of {done.model} (space {done.space}) in Qdrant at {escape(where)}[/]"
        )

    def question(self, question: str) -> None:
        """What is being answered."""
        self._console.print(f"\n[bold]? {escape(question)}[/]")

    def passages(self, cited: Sequence[Cited]) -> None:
        """The passages that the answer may use."""
        for passage in cited:
            self._console.print(
                f"[cyan]\\[{passage.number}][/] {escape(passage.heading)} "
                f"[dim]({escape(passage.source)}, score {passage.score:.3f})[/]"
            )
            self._console.print(f"[dim]{escape(_shortened(passage.text))}[/]")
        self._console.print()

    def text(self, text: str) -> None:
        """The next part of the answer."""
        self._console.print(text, end="", markup=False, highlight=False, soft_wrap=True)

    def answered(self, answer: Answer) -> None:
        """The verdict and what took how long."""
        if answer.refused:
            self._console.print(
                f"[yellow]Not answered:[/] this looks like an attempt to take the prompt over "
                f"(probability {answer.injection:.2f}). If you mean it, ask again with --allow-flagged."
            )
        else:
            verdict = "flagged, allowed" if answer.flagged else "not flagged"
            self._console.print(f"\n\n[dim]prompt injection: {answer.injection:.3f} ({verdict})[/]")
        self._console.print(_times(answer))


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.finished_speed or task.speed or 0:.0f} passages/s")


def _times(answer: Answer) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("step")
    table.add_column("ms", justify="right")
    table.add_column("model")
    table.add_column("version")
    for ran in answer.steps:
        table.add_row(ran.step, f"{ran.milliseconds:.0f}", ran.model, ran.version)
    return table


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN_CHARACTERS else f"{line[:_SHOWN_CHARACTERS]}…"
