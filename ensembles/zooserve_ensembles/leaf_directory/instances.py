"""Rules of several instances: GPUs of their own for each, and a launch without MPI."""

from collections.abc import Iterator

from tritonclient.grpc import model_config_pb2

from zooserve.leaf.release import Release
from zooserve_ensembles.checking.findings import Finding, Place, Rule, Severity
from zooserve_ensembles.leaf_directory.reading import LeafDirectory

__all__ = ["RULES", "instance_findings"]

GPU_IDS = Rule(
    "gpu-device-ids",
    Severity.ERROR,
    'gpu_device_ids ("0,1;2,3") has not as many sets as instances, or a set is not as large as the world size',
)
NO_MPI = Rule(
    "instances-need-no-mpi", Severity.ERROR, "Several instances, and the launch has no --no-mpi, or nothing says how"
)
KIND = Rule("instance-kind", Severity.ERROR, "The instances are not KIND_CPU: the engine takes its GPUs itself")
ONE_ONLY = Rule("one-instance-only", Severity.ERROR, "The release's wrapper gives all instances the same GPUs")

RULES = (GPU_IDS, NO_MPI, KIND, ONE_ONLY)

_PARAMETER = ("parameters", "gpu_device_ids")


def instance_findings(leaf: LeafDirectory, release: Release | None) -> Iterator[Finding]:
    """The instance groups, their GPUs and their launch."""
    for index, group in enumerate(leaf.config.instance_group):
        kind = model_config_pb2.ModelInstanceGroup.Kind.Name(group.kind)
        if kind != "KIND_CPU":
            yield KIND.at(leaf.source.place(("instance_group", index), "kind"), f"the kind is {kind}: make it KIND_CPU")
    yield from _gpu_ids(leaf)
    if leaf.instances > 1:
        if release is not None and not release.wrapper.several_instances:
            place = leaf.source.place(("instance_group", 0), "count")
            yield ONE_ONLY.at(place, f"the wrapper of {release.release} has one instance: make the count 1")
        yield from _launch(leaf)


def _gpu_ids(leaf: LeafDirectory) -> Iterator[Finding]:
    place = leaf.source.place(_PARAMETER)
    if "gpu_device_ids" not in leaf.config.parameters:
        if leaf.instances > 1:
            group = leaf.source.place(("instance_group", 0), "count")
            yield GPU_IDS.at(group, f"{leaf.instances} instances need a gpu_device_ids parameter with a set for each")
        return
    written = leaf.config.parameters["gpu_device_ids"].string_value
    sets = [[gpu.strip() for gpu in part.split(",")] for part in written.split(";")]
    if len(sets) != leaf.instances:
        yield GPU_IDS.at(
            place, f'"{written}" has {len(sets)} sets for {leaf.instances} instances: one for each, by ";"'
        )
    for gpus in sets:
        yield from _set(leaf, place, gpus)
    every = [gpu for gpus in sets for gpu in gpus]
    if len(set(every)) < len(every):
        yield GPU_IDS.at(place, f'"{written}" gives one GPU twice')


def _set(leaf: LeafDirectory, place: Place, gpus: list[str]) -> Iterator[Finding]:
    shown = ",".join(gpus)
    if not all(gpu.isdecimal() for gpu in gpus):
        yield GPU_IDS.at(place, f'"{shown}" is no list of GPU numbers with commas between')
    elif leaf.world_size is not None and len(gpus) != leaf.world_size:
        yield GPU_IDS.at(
            place, f'"{shown}" is {len(gpus)} GPUs, the world size (tensor x pipeline x context) is {leaf.world_size}'
        )


def _launch(leaf: LeafDirectory) -> Iterator[Finding]:
    if leaf.launch is None:
        place = leaf.source.place(("instance_group", 0), "count")
        yield NO_MPI.at(place, "nothing says how it is started: put the command into launch.sh, or give --launch FILE")
        return
    commands = [line.partition("#")[0] for line in leaf.launch_text.splitlines()]
    if not any("--no-mpi" in command.split() for command in commands):
        starts = (number for number, command in enumerate(commands, start=1) if "triton" in command)
        place = Place(leaf.launch.file, next(starts, 1))
        yield NO_MPI.at(place, f"{leaf.instances} instances are started without --no-mpi: they would share MPI ranks")
