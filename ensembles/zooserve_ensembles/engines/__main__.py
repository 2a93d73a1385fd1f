"""`python3 -m zooserve_ensembles.engines`: plans inside NVIDIA's container, without `zooserve`'s dependencies."""

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from zooserve.errors import ZooserveError
from zooserve_ensembles.engines.building import Options
from zooserve_ensembles.engines.command import (
    Checked,
    build,
    checked,
    described,
    machine_of,
    models_with_plans,
    used,
)

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code."""
    given = _parser().parse_args(arguments)
    try:
        return int(given.run(given))
    except ZooserveError as exc:
        sys.stderr.write(f"{exc}\n")
        return 1


def _build(given: argparse.Namespace) -> int:
    options = Options(given.tf32, given.opt_batch, given.workspace_mb << 20)
    path, manifest = build(
        given.repository, given.model, given.version, given.golden, options, given.module, os.environ, _say
    )
    for line in described(path, manifest):
        _say(line)
    return 0


def _check(given: argparse.Namespace) -> int:
    return _told(checked(given.repository, _models(given), machine_of(os.environ, given.module)))


def _use(given: argparse.Namespace) -> int:
    return _told(used(given.repository, _models(given), machine_of(os.environ, given.module)))


def _told(results: Iterable[Checked]) -> int:
    code = 0
    for result in results:
        (sys.stdout if result.good else sys.stderr).write(f"{result.line}\n")
        code = code if result.good else 1
    return code


def _models(given: argparse.Namespace) -> list[str]:
    return given.models or models_with_plans(given.repository)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="zooserve_ensembles.engines", description=__doc__)
    commands = parser.add_subparsers(required=True)
    making = commands.add_parser("build", help="build a model's plan on this GPU, prove it, write it")
    making.set_defaults(run=_build)
    making.add_argument("model")
    making.add_argument("--version", help="of the model; the newest if left out")
    making.add_argument("--golden", type=Path, help="golden vectors: a file, or a folder of them")
    making.add_argument("--tf32", action="store_true", help="let matrix products round their inputs to 19 bits")
    making.add_argument("--opt-batch", type=int, help="the batch to choose kernels for; the largest if left out")
    making.add_argument("--workspace-mb", type=int, default=4096, help="GPU memory that the build may take")
    checking = commands.add_parser("check", help="which plans this machine may serve, and which is in place")
    checking.set_defaults(run=_check)
    using = commands.add_parser("use", help="put the fitting plan where Triton looks, or see that none is there")
    using.set_defaults(run=_use)
    for command in (checking, using):
        command.add_argument("models", nargs="*", help="all with configs/plan.pbtxt if left out")
    for command in (making, checking, using):
        command.add_argument(
            "--repository", type=Path, default=Path("/models/zoo"), help="of Triton; /models/zoo if left out"
        )
        command.add_argument("--module", help="the Python module that is TensorRT")
    return parser


if __name__ == "__main__":
    sys.exit(main())
