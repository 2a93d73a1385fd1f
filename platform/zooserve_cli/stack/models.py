"""Rules of models: variants, Triton models and names of the catalogue that are asked for are there."""

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path

from zooserve_cli.stack.environment import told_nodes
from zooserve_cli.stack.invocation import HEALTH, OURS, Invocation, invocations, started
from zooserve_cli.stack.listening import tree_of
from zooserve_cli.stack.service import Service, Word
from zooserve_cli.stack.stack import Stack
from zooserve_cli.stack.tree import Node
from zooserve_ensembles.checking.findings import Finding, Place, Rule, Severity
from zooserve_ensembles.checking.reading import did_you_mean

__all__ = ["RULES", "model_findings"]

VARIANT = Rule("unknown-variant", Severity.ERROR, "No model of the repository has the variant that Triton is to choose")
MODEL = Rule(
    "unknown-model",
    Severity.ERROR,
    "A model that is loaded, served or asked is in no repository or catalogue",
)

FILE = Rule(
    "catalogue-refused", Severity.ERROR, "The catalogue or the lock of the weights is one that our command refuses"
)
KIND = Rule("health-of-another", Severity.ERROR, "A health check asks as if its service were another of ours")

RULES = (VARIANT, MODEL, FILE, KIND)

_KINDS = {("route",): "router", ("triton", "zoo"): "zoo", ("triton", "leaf"): "leaf"}
_ASKED = re.compile(r'"model":\s*"([^"]+)"')


def model_findings(stack: Stack) -> Iterator[Finding]:
    """Every Triton's words, every health check's, and which models of the catalogue run."""
    for service in stack.services.values():
        folder = _repository(stack, service)
        for call in invocations(stack, service):
            if call.program == "tritonserver" and folder is not None:
                yield from _triton(call, folder)
        test = service.health_test
        for call in started(test[1:], stack, service) if test else ():
            if call.program == HEALTH:
                yield from _kind(stack, service, call)
                yield from _asked(call, folder) if folder is not None else _of_router(stack, service, call)
        yield from _enabled(stack, service)
        yield from _files(stack, service)
        yield from _served(stack, service)
        yield from _untold(stack, service)


def _repository(stack: Stack, service: Service) -> Path | None:
    """The folder of the host that the service's Triton serves."""
    for call in invocations(stack, service):
        flag = call.flag("--model-repository") or call.flag("--model-store")
        root = told_nodes(stack, service).get("ZOOSERVE_REPOSITORY")
        inside = flag.text if flag else ""
        if call.program == OURS and call.subcommand[:1] == ("triton",) and root is not None:
            inside = f"{root.text}/{'/'.join(call.subcommand[1:2])}"
        folder = stack.on_host(service, inside) if inside.startswith("/") else None
        if folder is not None and folder.is_dir():
            return folder
    return None


def _triton(call: Invocation, folder: Path) -> Iterator[Finding]:
    variant = call.flag("--model-config-name")
    if variant is not None and variant.text and not any(folder.glob("*/configs/*.pbtxt")):
        return  # a repository without any: Triton falls back to config.pbtxt
    if variant is not None and not any(path.stem == variant.text for path in folder.glob("*/configs/*.pbtxt")):
        known = sorted({path.stem for path in folder.glob("*/configs/*.pbtxt")})
        near = did_you_mean(variant.text, known)
        yield VARIANT.at(variant.place, f"no model in {folder} has a variant {variant.text}. {near}".strip())
    for word in call.words:
        flag, _, name = word.text.partition("=")
        if flag == "--load-model" and name != "*":
            yield from _there(word, [name], folder)


def _asked(call: Invocation, folder: Path) -> Iterator[Finding]:
    """`zooserve.health zoo embed,rerank`: words that are no flags; the first is the kind."""
    words = [word for word in call.words if not word.text.startswith("-")]
    if len(words) == 2 and words[0].text in ("zoo", "leaf"):
        yield from _there(words[1], [name.strip() for name in words[1].text.split(",")], folder)
    elif len(words) == 1 and words[0].text == "leaf":
        yield from _there(words[0], ["tensorrt_llm"], folder)


def _kind(stack: Stack, service: Service, call: Invocation) -> Iterator[Finding]:
    runs = (call.subcommand[:2] for call in invocations(stack, service) if call.program == OURS)
    kind = next((name for words in runs for start, name in _KINDS.items() if words[: len(start)] == start), None)
    word = next((word for word in call.words if not word.text.startswith("-")), None)
    if kind is not None and word is not None and word.text != kind and word.text in _KINDS.values():
        yield KIND.at(word.place, f"{service.name} is asked as a {word.text}, and is a {kind}")


def _of_router(stack: Stack, service: Service, call: Invocation) -> Iterator[Finding]:
    """The models that a router is asked for, against its catalogue."""
    words = [word for word in call.words if not word.text.startswith("-")]
    known = [name for model in _catalogue(stack, service) for name in _names(model)]
    if len(words) != 2 or words[0].text != "router" or not known:
        return
    for name in words[1].text.split(","):
        if name.strip() and name.strip() not in known:
            near = did_you_mean(name.strip(), known)
            yield MODEL.at(words[1].place, f"the catalogue has no model {name.strip()}. {near}".strip())


def _names(model: Node) -> list[str]:
    return [model["name"].text, *(alias.text for alias in model["aliases"].elements)]


def _catalogue(stack: Stack, service: Service) -> tuple[Node, ...]:
    """The models of the catalogue that a service is told of, where it is a file of the host."""
    node = told_nodes(stack, service).get("ZOOSERVE_CATALOGUE")
    file = stack.on_host(service, node.text) if node is not None else None
    tree = tree_of(file) if file is not None else None
    return tree["models"].elements if tree is not None else ()


def _files(stack: Stack, service: Service) -> Iterator[Finding]:
    """What our own readers say of the catalogue and the lock."""
    if not any(call.program == OURS for call in invocations(stack, service)):
        return
    for name, read in (("ZOOSERVE_CATALOGUE", _fault_of_catalogue), ("ZOOSERVE_WEIGHTS_LOCK", _fault_of_lock)):
        node = told_nodes(stack, service).get(name)
        file = stack.on_host(service, node.text) if node is not None and node.text.startswith("/") else None
        if node is None or file is None or not file.is_file():
            continue
        if fault := read(file, file.stat().st_mtime_ns):
            line = re.match(rf"{re.escape(str(file))}:(\d+): ", fault)
            said = fault[line.end() :] if line else fault.removeprefix(f"{file}: ")
            yield FILE.at(Place(file, int(line[1]) if line else 0), f"{name} leads to it, and it is refused: {said}")


@lru_cache(maxsize=16)
def _fault_of_catalogue(file: Path, changed: int) -> str:
    from zooserve.catalogue.file import load_catalogue

    return _fault(load_catalogue, file)


@lru_cache(maxsize=16)
def _fault_of_lock(file: Path, changed: int) -> str:
    from zooserve.weights.lock import load_lock

    return _fault(load_lock, file)


def _fault(load: Callable[[Path], object], file: Path) -> str:
    from zooserve.errors import ZooserveError

    try:
        load(file)
    except (ZooserveError, ValueError, RecursionError) as exc:
        return str(exc)
    return ""


def _untold(stack: Stack, service: Service) -> Iterator[Finding]:
    """A router in a container finds no server beside it: it has to be told of those that its catalogue needs."""
    environment = told_nodes(stack, service)
    routes = any(call.program == OURS and call.subcommand[:1] == ("route",) for call in invocations(stack, service))
    catalogue = environment.get("ZOOSERVE_CATALOGUE")
    if not routes or catalogue is None or not service.networks:
        return
    needed = {model["runs_on"].text: model["name"].text for model in _catalogue(stack, service)}
    for part in ("zoo", "leaf"):
        setting = f"ZOOSERVE_{part.upper()}__HOST"
        if part in needed and setting not in environment:
            yield MODEL.at(
                catalogue.place,
                f"the catalogue has {needed[part]} on the {part}, and nothing says where: set {setting}",
            )


def _served(stack: Stack, service: Service) -> Iterator[Finding]:
    """Of a vLLM: the names and lengths that catalogues and its health check ask it for."""
    for call in invocations(stack, service):
        flag = call.flag("--served-model-name") if call.program == "vllm" else None
        if flag is None or "$" in flag.text:
            continue
        for node, model in _asked_models(stack, service):
            if node["model"].text != flag.text:
                yield MODEL.at(
                    node["model"].place, f"{service.name} serves {flag.text}, and is asked for {node['model'].text}"
                )
            yield from _length(service, call, model)
        for word in service.health_test:
            for found in _ASKED.finditer(word.text):
                if found[1] != flag.text:
                    yield MODEL.at(
                        word.line_of(found.start()), f"{service.name} serves {flag.text}, and is asked for {found[1]}"
                    )


def _length(service: Service, call: Invocation, model: Node) -> Iterator[Finding]:
    most, asked = call.flag("--max-model-len"), model["limits"]["max_tokens"]
    if most is not None and most.text.isdecimal() and asked.text.isdecimal() and int(asked.text) > int(most.text):
        yield MODEL.at(
            most.place, f"{service.name} takes {most.text} tokens, and the catalogue lets {asked.text} through"
        )


def _asked_models(stack: Stack, service: Service) -> Iterator[tuple[Node, Node]]:
    """The backends of catalogues that lead to a service, each with its model."""
    for router in stack.services.values():
        for model in _catalogue(stack, router):
            found = re.match(r"https?://([\w.-]+)", model["backend"]["url"].text)
            host = found[1] if found else ""
            if host and any(other is service for other, _ in stack.reached(router, host)):
                yield model["backend"], model


def _there(word: Word, names: list[str], folder: Path) -> Iterator[Finding]:
    known = sorted(path.parent.name for path in folder.glob("*/config.pbtxt"))
    for name in names:
        if name and known and name not in known:
            yield MODEL.at(word.place, f"{folder} has no model {name}. {did_you_mean(name, known)}".strip())


def _enabled(stack: Stack, service: Service) -> Iterator[Finding]:
    environment = told_nodes(stack, service)
    models, catalogue = environment.get("ZOOSERVE_MODELS"), environment.get("ZOOSERVE_CATALOGUE")
    file = stack.on_host(service, catalogue.text) if catalogue is not None else None
    tree = tree_of(file) if file is not None else None
    if models is None or tree is None:
        return
    known = [model["name"].text for model in tree["models"].elements]
    for name in models.text.split(","):
        if name.strip() and name.strip() not in (*known, "default", "all"):
            near = did_you_mean(name.strip(), known)
            yield MODEL.at(models.place, f"{file} has no model {name.strip()}. {near}".strip())
