"""Rules of models: variants, Triton models and names of the catalogue that are asked for are there."""

from collections.abc import Iterator
from pathlib import Path

from zooserve_cli.stack.environment import told_nodes
from zooserve_cli.stack.invocation import HEALTH, OURS, Invocation, invocations, started
from zooserve_cli.stack.listening import tree_of
from zooserve_cli.stack.service import Service, Word
from zooserve_cli.stack.stack import Stack
from zooserve_ensembles.checking.findings import Finding, Rule, Severity
from zooserve_ensembles.checking.reading import did_you_mean

__all__ = ["RULES", "model_findings"]

VARIANT = Rule("unknown-variant", Severity.ERROR, "No model of the repository has the variant that Triton is to choose")
MODEL = Rule(
    "unknown-model",
    Severity.ERROR,
    "A model that is loaded, served or asked is in no repository or catalogue",
)

RULES = (VARIANT, MODEL)


def model_findings(stack: Stack) -> Iterator[Finding]:
    """Every Triton's words, every health check's, and which models of the catalogue run."""
    for service in stack.services.values():
        folder = _repository(stack, service)
        for call in invocations(stack, service):
            if call.program == "tritonserver" and folder is not None:
                yield from _triton(call, folder)
        test = service.health_test
        for call in started(test[1:], stack, service) if test else ():
            if call.program == HEALTH and folder is not None:
                yield from _asked(call, folder)
        yield from _enabled(stack, service)


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
