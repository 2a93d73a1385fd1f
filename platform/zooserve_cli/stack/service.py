"""One service of a compose file, read from either of the forms that Compose takes. Wrong shapes read as nothing."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from zooserve_cli.stack.tree import Node
from zooserve_ensembles.checking.findings import Place

__all__ = ["Grant", "Joined", "Mount", "Need", "Published", "Service", "Word", "named", "target_of"]

_HOST_PATH = re.compile(r"^(\.|/|~|[A-Za-z]:[\\/])")
_PORT = re.compile(
    r"^(?:(?P<ip>\[[^]]*\]|[^:\[\]]+):)??(?:(?P<published>[\d-]*):)?(?P<target>[\d-]+)(?:/(?P<protocol>\w+))?$"
)


@dataclass(frozen=True)
class Word:
    """One word of a command line."""

    text: str
    place: Place
    is_block: bool = False
    """Whether its text begins on the next line, as a script's."""

    def line_of(self, offset: int) -> Place:
        """Where the character at `offset` stands."""
        return Node(self.text, self.place, self.place, self.is_block).line_of(offset)


@dataclass(frozen=True)
class Published:
    """A port of the host that leads into a container."""

    place: Place
    host: str
    """The address it is bound to; empty for all of them."""
    port: str
    target: int | None
    """None where it is a range, or no port at all."""
    is_range: bool = False

    @property
    def is_local(self) -> bool:
        """Whether only the host itself reaches it."""
        return self.host in ("127.0.0.1", "[::1]", "::1", "localhost")


@dataclass(frozen=True)
class Mount:
    """What a container sees at a path."""

    place: Place
    kind: str
    """`bind`, `volume`, `tmpfs` or another of Compose's."""
    source: str
    target: str
    is_read_only: bool = False
    creates: bool = False
    """Whether Compose makes a folder where there is no source."""


@dataclass(frozen=True)
class Joined:
    """A network that a service is in, and its other names there."""

    place: Place
    network: str
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True)
class Need:
    """A service that must be up before."""

    place: Place
    service: str
    condition: str = "service_started"
    is_required: bool = True


@dataclass(frozen=True)
class Grant:
    """A secret or configuration that a service is given, and where it sees it."""

    place: Place
    source: str
    target: str


@dataclass(frozen=True)
class Service:
    """A service and what it says, `node` with all variables replaced."""

    name: str
    node: Node

    @property
    def place(self) -> Place:
        """Where its name stands."""
        return self.node.key_place

    @property
    def profiles(self) -> frozenset[str]:
        return frozenset(profile.text for profile in _listed(self.node["profiles"]))

    @property
    def image(self) -> str:
        return self.node["image"].text

    @cached_property
    def entrypoint(self) -> tuple[Word, ...]:
        return _words(self.node["entrypoint"])

    @cached_property
    def command(self) -> tuple[Word, ...]:
        return _words(self.node["command"])

    @cached_property
    def health_test(self) -> tuple[Word, ...]:
        """The words of the health check, `CMD` or `CMD-SHELL` the first; none where there is no check."""
        check = self.node["healthcheck"]
        test = check["test"]
        if check["disable"].is_true or test.text.strip().upper() == "NONE" or test[0].text.upper() == "NONE":
            return ()
        if test.is_scalar:
            return (Word("CMD-SHELL", test.place), _word(test)) if test.text else ()
        return tuple(_word(part) for part in test.elements)

    @cached_property
    def environment(self) -> Mapping[str, Node]:
        """What is set here by name; files of `env_file` are not in it."""
        return named(self.node["environment"])

    @cached_property
    def networks(self) -> tuple[Joined, ...]:
        """The networks it is in; `default` where it names none and has no other mode."""
        node = self.node["networks"]
        if node.is_mapping:
            return tuple(
                Joined(inner.key_place, name, tuple(alias.text for alias in inner["aliases"].elements))
                for name, inner in node.entries.items()
            )
        if joined := tuple(Joined(part.place, part.text) for part in node.elements):
            return joined
        return () if self.node["network_mode"].text else (Joined(self.place, "default"),)

    @cached_property
    def names(self) -> Mapping[str, frozenset[str]]:
        """For each of its networks the names by which it is reached there."""
        own = {self.name, self.node["container_name"].text, self.node["hostname"].text} - {""}
        return {joined.network: frozenset({*own, *joined.aliases}) for joined in self.networks}

    @cached_property
    def extra_hosts(self) -> frozenset[str]:
        """Names that it is told addresses of."""
        node = self.node["extra_hosts"]
        named = (re.split(r"[:=]", part.text)[0] for part in node.elements)
        return frozenset({*node.entries, *named})

    @cached_property
    def published(self) -> tuple[Published, ...]:
        return tuple(port for part in _listed(self.node["ports"]) if (port := _published(part)))

    @cached_property
    def exposed(self) -> frozenset[int]:
        """Ports that `expose` names."""
        texts = (part.text.partition("/")[0] for part in _listed(self.node["expose"]))
        return frozenset(port for text in texts if (port := _number(text)) is not None)

    @cached_property
    def mounts(self) -> tuple[Mount, ...]:
        return tuple(_mount(part) for part in _listed(self.node["volumes"]) if part.is_there)

    @cached_property
    def needs(self) -> tuple[Need, ...]:
        node = self.node["depends_on"]
        if node.is_mapping:
            return tuple(
                Need(
                    inner.key_place,
                    name,
                    inner["condition"].text or "service_started",
                    inner["required"].text != "false",
                )
                for name, inner in node.entries.items()
            )
        return tuple(Need(part.place, part.text) for part in node.elements)

    @cached_property
    def secrets(self) -> tuple[Grant, ...]:
        return tuple(_grant(part, "/run/secrets/") for part in _listed(self.node["secrets"]))

    @cached_property
    def configs(self) -> tuple[Grant, ...]:
        return tuple(_grant(part, "/") for part in _listed(self.node["configs"]))

    def can_write(self, path: str) -> bool:
        """Whether a path is in a mount that is not read-only, or in a tmpfs."""
        mount = self.at_path(path)
        if mount is not None:
            return not mount.is_read_only
        scratch = (part.text.partition(":")[0] for part in _listed(self.node["tmpfs"]))
        return any(_is_below(path, folder) for folder in scratch if folder)

    def at_path(self, path: str) -> Mount | None:
        """The mount that holds a path of the container: the deepest one."""
        holding = [mount for mount in self.mounts if mount.target and _is_below(path, mount.target)]
        return max(holding, key=lambda mount: len(mount.target), default=None)


def _is_below(path: str, folder: str) -> bool:
    folder = folder.rstrip("/")
    return path == folder or path.startswith(f"{folder}/")


def _listed(node: Node) -> tuple[Node, ...]:
    """The parts of a list; a lone text stands for a list of one."""
    return node.elements or ((node,) if node.is_scalar and node.text else ())


def _word(node: Node) -> Word:
    return Word(node.text, node.place, node.is_block)


def _words(node: Node) -> tuple[Word, ...]:
    if node.is_list:
        return tuple(_word(part) for part in node.elements)
    try:
        return tuple(Word(part, node.place) for part in shlex.split(node.text))
    except ValueError:  # a quote that is left open
        return tuple(Word(part, node.place) for part in node.text.split())


def named(node: Node) -> dict[str, Node]:
    """The parts of a mapping, or of a list of `NAME=value`, by name."""
    if node.is_mapping:
        return dict(node.entries)
    found = {}
    for part in node.elements:
        name, equals, value = part.text.partition("=")
        if name:
            found[name] = Node(value if equals else None, part.place, part.place)
    return found


def _published(node: Node) -> Published | None:
    if node.is_mapping:
        return Published(node.place, node["host_ip"].text, node["published"].text, _number(node["target"].text))
    text = node.text
    found = _PORT.match(text)
    if found is None:
        return Published(node.place, "", text, None)
    target = found["target"]
    is_range = re.fullmatch(r"\d+-\d+", target) is not None
    return Published(node.place, found["ip"] or "", found["published"] or "", _number(target), is_range)


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) < 6 else None


def _mount(node: Node) -> Mount:
    if node.is_mapping:
        kind = node["type"].text or "volume"
        creates = kind == "bind" and node["bind"]["create_host_path"].text == "true"
        return Mount(node.place, kind, node["source"].text, node["target"].text, node["read_only"].is_true, creates)
    drive = node.text[:2] if re.match(r"[A-Za-z]:[\\/]", node.text) else ""
    source, colon, rest = node.text[len(drive) :].partition(":")
    source = drive + source
    if not colon:
        return Mount(node.place, "volume", "", source)
    target, _, options = rest.partition(":")
    kind = "bind" if _HOST_PATH.match(source) else "volume"
    return Mount(node.place, kind, source, target, "ro" in options.split(","))


def target_of(node: Node) -> str:
    """The path of the container that a mount leads to."""
    return _mount(node).target.rstrip("/")


def _grant(node: Node, folder: str) -> Grant:
    source = node["source"].text if node.is_mapping else node.text
    target = node["target"].text or source
    return Grant(node.place, source, target if target.startswith("/") else f"{folder}{target}")
