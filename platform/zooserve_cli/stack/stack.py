"""A compose file as the rules see it: services of the chosen profiles, networks, volumes, secrets, variables."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from zooserve_cli.stack.env_file import EnvFile
from zooserve_cli.stack.interpolation import Fault, Use
from zooserve_cli.stack.recorded import Program
from zooserve_cli.stack.service import Joined, Service
from zooserve_cli.stack.tree import Node
from zooserve_ensembles.checking.findings import Place

__all__ = ["Placed", "Stack"]


@dataclass(frozen=True)
class Placed:
    """A use of a variable, and where it stands."""

    use: Use
    place: Place


@dataclass(frozen=True)
class Stack:
    """What a compose file declares, with the variables of one env file and some of its profiles chosen."""

    file: Path
    """As findings name it."""
    root: Node
    everything: Mapping[str, Service]
    """Services of all profiles."""
    env: EnvFile
    example: EnvFile | None
    uses: tuple[Placed, ...] = ()
    faults: tuple[tuple[Place, Fault], ...] = ()
    profiles: frozenset[str] = frozenset()
    programs: Mapping[str, Program] = field(default_factory=dict)
    """What was recorded of foreign programs, by name."""
    sources: tuple[Node, ...] = ()
    """Each file by itself, as it is written, its variables replaced."""

    @property
    def folder(self) -> Path:
        """What relative paths start at."""
        return self.file.parent

    @cached_property
    def services(self) -> Mapping[str, Service]:
        """Those that the chosen profiles start."""
        return {name: service for name, service in self.everything.items() if self.is_active(service)}

    @cached_property
    def declared_profiles(self) -> tuple[str, ...]:
        """Every profile that a service names, in the file's order."""
        named = (part.text for one in self.everything.values() for part in one.node["profiles"].elements)
        return tuple(dict.fromkeys(name for name in named if name))

    @property
    def is_set_up(self) -> bool:
        """Whether the variables are somebody's own, not those of the example."""
        return self.example is None or self.env.file != self.example.file

    @property
    def chosen_profiles(self) -> tuple[str, ...]:
        """What `COMPOSE_PROFILES` of somebody's own env file chooses."""
        named = self.env.values.get("COMPOSE_PROFILES", "") if self.is_set_up else ""
        return tuple(name.strip() for name in named.split(",") if name.strip())

    def is_active(self, service: Service) -> bool:
        """Whether the chosen profiles start it."""
        return not service.profiles or bool(service.profiles & self.profiles) or "*" in self.profiles

    def path(self, source: str) -> Path:
        """Where a path of the compose file lies, as it is named in findings."""
        plain = Path(source).expanduser() if source.startswith("~") else Path(source)
        return plain if plain.is_absolute() else self.folder / plain

    def reached(self, service: Service, host: str) -> Iterator[tuple[Service, Joined]]:
        """Which services answer to a name on a network that they share with `service`."""
        networks = {joined.network for joined in service.networks}
        for other in self.services.values():
            for joined in other.networks:
                if joined.network in networks and host in other.names[joined.network]:
                    yield other, joined
                    break

    def named(self, host: str) -> list[Service]:
        """Every service of any profile that has this name on some network."""
        return [
            service for service in self.everything.values() if any(host in names for names in service.names.values())
        ]

    @cached_property
    def all_names(self) -> frozenset[str]:
        """Every name of every service."""
        return frozenset(name for one in self.everything.values() for names in one.names.values() for name in names)

    def on_host(self, service: Service, path: str) -> Path | None:
        """The file of the host that a container sees at a path; None where it is in the image or a volume."""
        for grant, kind in ((service.configs, "configs"), (service.secrets, "secrets")):
            for one in grant:
                if one.target == path and (source := self.root[kind][one.source]["file"].text):
                    return self.path(source)
        mount = service.at_path(path)
        if mount is None or mount.kind != "bind" or not mount.source:
            return None
        rest = path[len(mount.target.rstrip("/")) :].lstrip("/")
        base = self.path(mount.source)
        return base / rest if rest else base
