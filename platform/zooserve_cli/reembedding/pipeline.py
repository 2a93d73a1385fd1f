"""Staged parts through Ray Data: as many at a time as there are workers, in waves, each a dataset of its own.

A row of the dataset is a part, so that a block is never half of one. Waves bound what Ray keeps: its bookkeeping of a
dataset grows with its blocks. Between two waves the workers idle for about a second (measured on two cores).
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from zooserve_cli.reembedding.worker import Made, PartWorker, read_made

__all__ = ["embedded", "wave_parts"]

_PARTS_PER_WORKER = 24
_WAVE_BYTES = 64 << 20


def wave_parts(workers: int) -> int:
    """How many parts one wave has at most."""
    return _PARTS_PER_WORKER * workers


def embedded(
    waiting: Mapping[int, int], rows_of: Callable[[int], bytes], worker: PartWorker, workers: int
) -> Iterator[Made]:
    """What became of the waiting parts, in the order in which they are finished."""
    for wave in _waves(sorted(waiting), rows_of, workers):
        yield from _run(wave, worker, workers)


def _waves(parts: list[int], rows_of: Callable[[int], bytes], workers: int) -> Iterator[list[dict[str, Any]]]:
    wave: list[dict[str, Any]] = []
    size = 0
    for part in parts:
        rows = rows_of(part)
        if wave and (len(wave) == wave_parts(workers) or size + len(rows) > _WAVE_BYTES):
            yield wave
            wave, size = [], 0
        wave.append({"part": part, "rows": rows})
        size += len(rows)
    if wave:
        yield wave


def _run(wave: list[dict[str, Any]], worker: PartWorker, workers: int) -> Iterator[Made]:
    import ray.data

    def embed(parts: Any) -> Any:
        return worker(parts)

    made = ray.data.from_items(wave, override_num_blocks=len(wave)).map_batches(
        embed,
        batch_size=1,
        batch_format="pyarrow",
        compute=ray.data.TaskPoolStrategy(size=workers),
        num_cpus=1,
    )
    for block in made.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=1):
        for part, report, vectors in zip(
            *(block[name].to_pylist() for name in ("part", "report", "vectors")), strict=True
        ):
            yield read_made(part, report, vectors)
