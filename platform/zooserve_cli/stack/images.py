"""Rules of images: each is pinned, and what is built has its container file, its arguments and its stage."""

import re
from collections.abc import Iterator
from difflib import get_close_matches

from zooserve_cli.stack.container_file import ContainerFile, Stage, read_container_file
from zooserve_cli.stack.interpolation import interpolated
from zooserve_cli.stack.invocation import image_program, repository_of
from zooserve_cli.stack.service import Service
from zooserve_cli.stack.stack import Stack
from zooserve_cli.stack.tree import Node
from zooserve_ensembles.checking.findings import Finding, Rule, Severity
from zooserve_ensembles.checking.reading import did_you_mean

__all__ = ["RULES", "image_findings", "tag_of"]

UNPINNED = Rule("unpinned-image", Severity.ERROR, "An image, also one that is built upon, has no tag, or `latest`")
REFERENCE = Rule("image-reference", Severity.ERROR, "An image's name cannot be one: an empty part, a space, capitals")
MISSPELT = Rule(
    "image-misspelt", Severity.ERROR, "An image's name is all but that of a recorded program, or one that is built"
)
CONTEXT = Rule("build-context", Severity.ERROR, "What is to be built from has no folder, or no container file there")
ARGUMENT = Rule(
    "build-argument", Severity.ERROR, "The container file declares no such argument, or needs one that is not given"
)
TARGET = Rule("build-target", Severity.ERROR, "The container file has no stage of this name")
OUTDATED = Rule(
    "record-outdated",
    Severity.WARNING,
    "The tag of an image, also one that is built upon, is not the one that its program was recorded at",
)

RULES = (UNPINNED, REFERENCE, MISSPELT, CONTEXT, ARGUMENT, TARGET, OUTDATED)

_REFERENCE = re.compile(
    r"[a-z0-9]+(?:[._/:-]+[A-Za-z0-9]+|__[a-z0-9]+)*(?::[A-Za-z0-9_][\w.-]*)?(?:@sha256:[0-9a-f]{64})?"
)
_GIVEN_BY_BUILDKIT = re.compile(r"(TARGET|BUILD)(PLATFORM|OS|ARCH|VARIANT)|\w+_PROXY|\w+_proxy")

_RENEW = "its flags and keys may be others there; renew its record, or pin what is recorded (docs/stack-check.md)"


def image_findings(stack: Stack) -> Iterator[Finding]:
    """The image of every service, and what it is built from."""
    for service in stack.services.values():
        if service.node["image"].is_there:
            yield from _image(stack, service)
        if service.node["build"].is_there:
            yield from _build(stack, service)


def tag_of(image: str) -> str:
    """The tag of an image; empty where it has none."""
    return image.partition("@")[0].rpartition("/")[2].partition(":")[2]


def _image(stack: Stack, service: Service) -> Iterator[Finding]:
    node, image = service.node["image"], service.image
    if not _REFERENCE.fullmatch(image.removesuffix(":")):
        yield REFERENCE.at(node.place, f"{image or 'nothing'} is no image's name: write registry/name:tag")
        return
    if service.node["build"].is_there:  # the name that it is built under
        return
    yield from _built_elsewhere(stack, service)
    if "@" not in image and tag_of(image) in ("", "latest"):
        yield UNPINNED.at(
            node.place, f"{image} has no fixed tag: write the one that was tried, as {_named(image)}:1.2.3"
        )
        return
    program = image_program(stack, service)
    if program is None and (near := _recorded_near(stack, repository_of(image))):
        yield MISSPELT.at(node.place, f"nobody knows {repository_of(image)}. Did you mean {near}?")
    if program is not None and not _is_release(tag_of(image), program.release):
        yield OUTDATED.at(
            node.place,
            f"{program.program} is held to {program.release}, and {tag_of(image)} is pinned: {_RENEW}",
        )


def _built_elsewhere(stack: Stack, service: Service) -> Iterator[Finding]:
    """An image that no registry is asked for has to be one that a service builds, if it is all but one."""
    built = [other.image for other in stack.everything.values() if other.node["build"].is_there and other.image]
    if service.node["pull_policy"].text != "never" or service.image in built:
        return
    if near := get_close_matches(service.image, built, 1, 0.85):
        yield MISSPELT.at(service.node["image"].place, f"no service builds {service.image}. Did you mean {near[0]}?")


def _recorded_near(stack: Stack, repository: str) -> str:
    """The recorded image whose name is all but this one."""
    known = [image for program in stack.programs.values() for image in program.images]
    return next(iter(get_close_matches(repository, known, 1, 0.85)), "")


def _is_release(tag: str, release: str) -> bool:
    """Whether a tag is the recorded one, or a patch of it."""
    return tag in ("", release) or tag.startswith((f"{release}.", f"{release}-"))


def _named(image: str) -> str:
    return image.removesuffix(":latest").removesuffix(":")


def _build(stack: Stack, service: Service) -> Iterator[Finding]:
    build = service.node["build"]
    context = build["context"].text or build.text or "."
    if "://" in context or build["dockerfile_inline"].is_there:
        return
    folder = stack.path(context)
    place = build["context"].place if build["context"].text else build.key_place
    if not folder.is_dir():
        yield CONTEXT.at(place, f"there is no folder {folder} to build {service.name} from")
        return
    name = build["dockerfile"].text or "Dockerfile"
    file = read_container_file(folder / name)
    if file is None:
        at = build["dockerfile"].place if build["dockerfile"].text else place
        yield CONTEXT.at(at, f"there is no container file {folder / name}")
        return
    yield from _arguments(stack, build, file)
    target = build["target"]
    stages = [stage.name for stage in file.stages if stage.name]
    if target.text and target.text not in stages:
        yield TARGET.at(
            target.place, f"{file.file} has no stage {target.text}. {did_you_mean(target.text, stages)}".strip()
        )


def _arguments(stack: Stack, build: Node, file: ContainerFile) -> Iterator[Finding]:
    given = _given(build["args"])
    for name, node in given.items():
        if name not in file.arguments and not name.startswith("BUILDKIT_"):
            near = did_you_mean(name, sorted(file.arguments))
            yield ARGUMENT.at(node.key_place, f"{file.file} declares no argument {name}. {near}".strip())
    values = {name: default or "" for name, default in file.arguments.items()}
    values |= {name: node.text for name, node in given.items()}
    stages = {stage.name for stage in file.stages}
    for stage in file.stages:
        if stage.image not in stages and stage.image != "scratch":
            yield from _base(stack, build, stage, values)


def _base(stack: Stack, build: Node, stage: Stage, values: dict[str, str]) -> Iterator[Finding]:
    found = interpolated(stage.image, {name: value for name, value in values.items() if value})
    missing = [use.name for use in found.uses if not use.may_be_missing and not values.get(use.name)]
    for name in missing:
        if not _GIVEN_BY_BUILDKIT.fullmatch(name):
            yield ARGUMENT.at(build.key_place, f"{stage.place} needs the argument {name}: give it under args")
    if missing or found.faults:
        return
    if "@" not in found.text and tag_of(found.text) in ("", "latest"):
        yield UNPINNED.at(stage.place, f"{found.text} has no fixed tag: write the one that was tried")
        return
    yield from _outdated_base(stack, build, stage, found.text)


def _outdated_base(stack: Stack, build: Node, stage: Stage, image: str) -> Iterator[Finding]:
    """A base of a recorded program at another release; told where its tag is given."""
    name, tag = repository_of(image), tag_of(image)
    place = next((node.place for node in _given(build["args"]).values() if node.text == tag), stage.place)
    for program in stack.programs.values():
        if any(name.endswith(one) for one in program.images) and tag and tag not in (program.release, *program.tags):
            yield OUTDATED.at(
                place, f"{program.program} is held to {program.release}, and {tag} is built upon: {_RENEW}"
            )


def _given(node: Node) -> dict[str, Node]:
    if node.is_mapping:
        return dict(node.entries)
    pairs = ((part.text.partition("="), part) for part in node.elements)
    return {
        name: Node(value if equals else None, part.place, part.place) for (name, equals, value), part in pairs if name
    }
