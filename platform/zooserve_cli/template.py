"""`zooserve template`: the prompt that messages become, to the letter."""

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zooserve.errors import SetupError
from zooserve.settings import Settings

if TYPE_CHECKING:
    from zooserve.catalogue import Model
    from zooserve_router.chat.ask import Prompt
    from zooserve_router.chat.generation import Conversation

__all__ = ["template"]


def template(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A chat model, as a request names it.")],
    messages: Annotated[
        str, typer.Option("--messages", metavar="FILE", help="A JSON array of messages, as in a request; - is stdin.")
    ],
    tools: Annotated[
        str | None, typer.Option("--tools", metavar="FILE", help="A JSON array of tools, as in a request.")
    ] = None,
    tokens: Annotated[bool, typer.Option("--tokens", help="Say on stderr how many tokens it has.")] = False,
) -> None:
    """Print the prompt that the router would send for these messages, and nothing else, on stdout."""
    wanted = _wanted(_json(messages, "--messages"), None if tools is None else _json(tools, "--tools"))
    prompt = _rendered(model, wanted)
    typer.echo(prompt.text, nl=False)
    if tokens:
        typer.echo(f"{prompt.tokens} tokens", err=True)


def _json(file: str, option: str) -> Any:
    """What the file says. Raises SetupError naming it."""
    import orjson

    try:
        content = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return orjson.loads(content)
    except OSError as exc:
        raise SetupError(f"{option} {file} cannot be read: {exc.strerror}.") from exc
    except orjson.JSONDecodeError as exc:
        raise SetupError(f"{option} {file} is not JSON: {exc}.") from exc


def _wanted(messages: Any, tools: Any) -> "Conversation":
    """The conversation, checked as a request's is."""
    from zooserve_router.chat.generation import Conversation
    from zooserve_router.endpoints.asked import tools_asked
    from zooserve_router.endpoints.messages import messages_in
    from zooserve_router.payload import Fields

    return Conversation(messages_in(messages), tools=tools_asked(Fields({"tools": tools})))


def _rendered(name: str, wanted: "Conversation") -> "Prompt":
    from zooserve_router.chat.asking import rendered_prompt
    from zooserve_router.chat.template_files import read_template
    from zooserve_router.chat.tokens import load_tokenizer

    settings = Settings().resolved()
    model = _chat_model(settings, name)
    found = read_template(model, settings.repository)
    if found is None or model.tokenizer is None:
        raise SetupError(
            f"{model.name} is answered by an upstream that renders messages with a chat template of its own; there is "
            "none here to show."
        )
    path = settings.repository / model.tokenizer
    if not path.is_file():
        raise SetupError(f"{path} is not there: run `zooserve fetch`.")
    tokenizer = load_tokenizer(path, "".join(found.sources))
    prompt, _, _ = asyncio.run(rendered_prompt(_shown(model, wanted), found, tokenizer, wanted))
    return prompt


def _chat_model(settings: Settings, name: str) -> "Model":
    """Any chat model of the file, enabled or not."""
    from zooserve.catalogue import UnknownModel, load_catalogue

    catalogue = load_catalogue(settings.catalogue)
    chats = ", ".join(model.name for model in catalogue.of_task("chat"))
    try:
        model = catalogue.resolve(name)
    except UnknownModel as exc:
        raise SetupError(f"The catalogue has no model {name!r}. Its chat models: {chats}.") from exc
    if model.task != "chat":
        raise SetupError(f"{name} is a model of task {model.task}; only chat models have templates: {chats}.")
    return model


def _shown(model: "Model", wanted: "Conversation") -> "Model":
    """The model, whose template shall see tools even where a request that brings them would be refused."""
    backend = model.chat_backend
    if not wanted.tools or backend.features & {"tools", "json_schema"}:
        return model
    typer.echo(f"A request with tools is refused by {model.name}; this is what its template makes of them.", err=True)
    return model.model_copy(update={"backend": backend.model_copy(update={"can": backend.can | {"tools"}})})
