"""Our own settings in a container's environment: which there are, what they are set to, where each stands."""

import types
import typing
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_settings import EnvSettingsSource, PydanticBaseSettingsSource, SettingsError

from zooserve.settings import Settings

__all__ = ["PREFIX", "given_settings", "setting_faults", "setting_names"]

PREFIX = "ZOOSERVE_"


class _Given(Settings):
    """The settings from a given environment, and from nothing of this process."""

    @classmethod
    def settings_customise_sources(
        cls, settings_cls: Any, init_settings: PydanticBaseSettingsSource, *args: Any, **kwargs: Any
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)


@cache  # the settings' class does not change while a process runs
def setting_names() -> tuple[str, ...]:
    """Every variable that a setting is read from."""
    return tuple(_names(Settings, PREFIX))


def setting_faults(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Which variables hold what their setting does not take, and why."""
    names = _known(environment)
    try:
        _Given(**_parsed(names))
    except ValidationError as exc:
        for fault in exc.errors(include_url=False):
            name = PREFIX + "__".join(str(part).upper() for part in fault["loc"])
            yield next((one for one in names if name == one or one.startswith(name)), name), fault["msg"]
    except SettingsError as exc:
        yield next(iter(names), PREFIX), str(exc)


def given_settings(environment: Mapping[str, str]) -> Settings:
    """The settings that a process with this environment has; a fault in it counts as not set."""
    wrong = {name for name, _ in setting_faults(environment)}
    return _Given(**_parsed(_known({name: value for name, value in environment.items() if name not in wrong})))


def _known(environment: Mapping[str, str]) -> dict[str, str]:
    known = {*setting_names(), *(f"{PREFIX}{name.upper()}" for name in Settings.model_fields)}
    return {name: value for name, value in environment.items() if name.upper() in known}


def _parsed(environment: Mapping[str, str]) -> dict[str, Any]:
    source = EnvSettingsSource(
        Settings, case_sensitive=False, env_prefix=PREFIX, env_nested_delimiter="__", env_ignore_empty=False
    )
    source.env_vars = {name.lower(): value for name, value in environment.items()}
    return source()


def _names(model: type[BaseModel], prefix: str) -> Iterator[str]:
    for name, field in model.model_fields.items():
        if (inner := _model(field.annotation)) is not None:
            yield from _names(inner, f"{prefix}{name.upper()}__")
        else:
            yield f"{prefix}{name.upper()}"


def _model(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return next((inner for part in typing.get_args(annotation) if (inner := _model(part))), None)
    return None
