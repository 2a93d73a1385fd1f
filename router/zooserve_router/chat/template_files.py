"""Where a model's chat template is read from: the file that the catalogue names, else the checkpoint's own.

Checkpoints carry it as `chat_template.jinja` (with others in `additional_chat_templates/`), as `chat_template.json`, or
in `tokenizer_config.json`, there also as a list of named ones; they are looked for in this order, as transformers does.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import TemplateSyntaxError

from zooserve.catalogue import Model
from zooserve.errors import MissingPart
from zooserve_router.chat.templates import ChatTemplate

__all__ = ["read_template"]

_CONFIG = "tokenizer_config.json"
_PLACES = ("chat_template.jinja", "chat_template.json", _CONFIG)
_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


def read_template(model: Model, repository: Path) -> ChatTemplate | None:
    """The compiled template; None for a model of an upstream, which has its own, unless the catalogue names one.

    Raises MissingPart, naming the file, when it is not there or is no template.
    """
    path = _path(model, repository)
    if path is None:
        return None
    name = path.relative_to(repository).as_posix() if path.is_relative_to(repository) else path.name
    try:
        sources = _sources(path)
        tokens = _special_tokens((repository / model.tokenizer).parent if model.tokenizer else path.parent)
        return ChatTemplate(sources["default"], name=name, with_tools=sources.get("tool_use"), tokens=tokens)
    except TemplateSyntaxError as exc:
        raise MissingPart(f"{name}:{exc.lineno}: the chat template cannot be compiled: {exc.message}") from exc
    except KeyError as exc:
        raise MissingPart(f"{name} has no chat template named 'default'") from exc
    except FileNotFoundError as exc:
        raise MissingPart(f"{name} is not there: run `zooserve fetch`, or put the model's own there.") from exc
    except (OSError, ValueError) as exc:
        raise MissingPart(f"{name} cannot be read as a chat template: {exc}") from exc


def _path(model: Model, repository: Path) -> Path | None:
    if model.chat_template is not None:
        return repository / model.chat_template
    if model.tokenizer is None or model.chat_backend.is_upstream:
        return None
    folder = (repository / model.tokenizer).parent
    for name in _PLACES:
        if (folder / name).is_file() and (name != _CONFIG or "chat_template" in _object_in(folder / name)):
            return folder / name
    raise MissingPart(f"{model.name} has no chat template: none of {', '.join(_PLACES)} is beside {model.tokenizer}")


def _sources(path: Path) -> Mapping[str, str]:
    """The templates of a file by name, `default` among them."""
    if path.suffix != ".json":
        others = sorted((path.parent / "additional_chat_templates").glob("*.jinja"))
        return {**{each.stem: each.read_text("utf-8") for each in others}, "default": path.read_text("utf-8")}
    template = _object_in(path).get("chat_template")
    if isinstance(template, str):
        return {"default": template}
    if isinstance(template, list):
        return {str(each["name"]): str(each["template"]) for each in template}
    if isinstance(template, dict):
        return {str(name): str(source) for name, source in template.items()}
    raise ValueError("it has no `chat_template`")


def _special_tokens(folder: Path) -> dict[str, str]:
    """The special tokens of a tokenizer_config.json by the names that templates use; none without the file."""
    if not (folder / _CONFIG).is_file():
        return {}
    config = _object_in(folder / _CONFIG)
    return {name: _token(config[name]) for name in _TOKENS if config.get(name) is not None}


def _token(value: Any) -> str:
    return str(value["content"] if isinstance(value, dict) else value)


def _object_in(path: Path) -> dict[str, Any]:
    value = json.loads(path.read_text("utf-8"))
    if not isinstance(value, dict):
        raise ValueError(f"{path.name} is not a JSON object")
    return value
