"""Rules of GPUs: who needs one has it reserved, no two take the same, and where they share, their shares fit."""

import re
from collections.abc import Iterator, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

from zooserve_cli.stack.gpu_shares import LARGEST_SHARE, Server, card_settings, card_shares
from zooserve_cli.stack.images import tag_of
from zooserve_cli.stack.invocation import Invocation, invocations
from zooserve_cli.stack.service import Service
from zooserve_cli.stack.stack import Stack
from zooserve_cli.stack.tree import Node
from zooserve_ensembles.checking.findings import Finding, Rule, Severity

__all__ = ["RULES", "gpu_findings"]

MISSING = Rule(
    "gpu-missing", Severity.ERROR, "vLLM, TensorRT-LLM or a Triton that is told a variant has no GPU reserved"
)
SHAPE = Rule(
    "gpu-reservation", Severity.ERROR, "A reservation names no GPU, names one twice, or lacks the capability gpu"
)
SAME = Rule("gpu-taken", Severity.ERROR, "Two services of a profile that is not a shared one reserve the same GPU")
SHARES = Rule(
    "gpu-shares", Severity.ERROR, "The memory shares on one card are above 0.95 of it, or cannot be summed up"
)

RULES = (MISSING, SHAPE, SAME, SHARES)

_DRIVERS = ("nvidia", "amd", "cdi")
_ID = re.compile(r"\d+(:\d+)?|(GPU|MIG)-[\w/-]+|all|none|void")


def gpu_findings(stack: Stack) -> Iterator[Finding]:
    """Every reservation of the services that start together."""
    holders = {name: service for name, service in stack.services.items() if _devices(service)}
    for service in stack.services.values():
        if service.name not in holders and _needs_one(stack, service):
            yield MISSING.at(service.place, f"reserve a GPU for {service.name}: deploy.resources.reservations.devices")
        for device in _devices(service):
            yield from _shape(service, device)
        yield from _utilization(stack, service)
    lasting = [service for service in holders.values() if not _ends_before_others(stack, service)]
    for one, other in combinations(lasting, 2):
        both = _ids(one) & _ids(other)
        if both and not (_is_shared(one) and _is_shared(other)):
            listed = ", ".join(sorted(both))
            yield SAME.at(
                _devices(other)[0]["device_ids"].place,
                f"{one.name} has GPU {listed} already: give {other.name} another",
            )
    sharing = [service for service in holders.values() if _is_shared(service)]
    if len(sharing) > 1 and set.intersection(*(_ids(service) for service in sharing)):
        yield from _shares(stack, sharing)


def _devices(service: Service) -> list[Node]:
    listed = service.node.at("deploy", "resources", "reservations", "devices").elements
    return [
        device
        for device in listed
        if device["driver"].text in _DRIVERS or any(part.text == "gpu" for part in device["capabilities"].elements)
    ]


def _ids(service: Service) -> set[str]:
    return {part.text for device in _devices(service) for part in device["device_ids"].elements}


def _ends_before_others(stack: Stack, service: Service) -> bool:
    """Whether somebody waits until it has ended: the card is free again then."""
    needs = (need for other in stack.services.values() for need in other.needs)
    return any(need.service == service.name and need.condition == "service_completed_successfully" for need in needs)


def _is_shared(service: Service) -> bool:
    return any("shared" in profile for profile in service.profiles)


def _needs_one(stack: Stack, service: Service) -> bool:
    if service.node["gpus"].is_there or service.node["runtime"].text == "nvidia":
        return False
    for call in invocations(stack, service):
        if call.program == "vllm" or (call.program == "tritonserver" and _is_for_gpus(service, call)):
            return True
    return False


def _is_for_gpus(service: Service, call: Invocation) -> bool:
    build = service.node["build"]
    named = (tag_of(service.image), build["dockerfile"].text, *(node.text for _, node in build["args"].walk()))
    return call.flag("--model-config-name") is not None or any("trtllm" in text for text in named)


def _shape(service: Service, device: Node) -> Iterator[Finding]:
    ids = [part.text for part in device["device_ids"].elements]
    if len(set(ids)) < len(ids) or "" in ids:
        yield SHAPE.at(device["device_ids"].place, f"{service.name} reserves {', '.join(ids)}: name each GPU once")
    driver = device["driver"]
    if driver.text and driver.text not in _DRIVERS:
        yield SHAPE.at(driver.place, f"{service.name} reserves a GPU of the driver {driver.text}: write nvidia")
    for part in device["device_ids"].elements if driver.text == "nvidia" else ():
        if part.text and not _ID.fullmatch(part.text):
            yield SHAPE.at(part.place, f"{service.name} reserves {part.text}: write an index, or a UUID as GPU-...")
    if not ids and not device["count"].is_there:
        yield SHAPE.at(device.place, f"say which GPU {service.name} reserves: device_ids, or count")
    if ids and device["count"].is_there:
        yield SHAPE.at(device["count"].key_place, f"{service.name} gives both device_ids and count: keep one")
    if not any(part.text == "gpu" for part in device["capabilities"].elements):
        yield SHAPE.at(device.place, f"write capabilities: [gpu] for {service.name}")


def _utilization(stack: Stack, service: Service) -> Iterator[Finding]:
    for call in invocations(stack, service):
        word = call.flag("--gpu-memory-utilization") if call.program == "vllm" else None
        if word is not None and not _is_share(word.text):
            yield SHARES.at(
                word.place, f"{word.text} is no share of the card: write a number above 0, and at most 0.95"
            )


def _is_share(text: str) -> bool:
    try:
        return 0 < float(text) <= LARGEST_SHARE
    except ValueError:
        return False


def _shares(stack: Stack, sharing: list[Service]) -> Iterator[Finding]:
    place = sharing[0].place
    try:
        servers = [server for service in sharing if (server := _server(stack, service))]
        shares = card_shares(card_settings(dict(stack.env.values)), servers)
    except ValueError as exc:
        yield SHARES.at(place, str(exc))
        return
    if shares.fault:
        yield SHARES.at(place, shares.fault)


def _server(stack: Stack, service: Service) -> Server | None:
    """What the sum needs to know of a service: its words, and the files that say how much it takes."""
    for call in invocations(stack, service):
        words = [word.text for word in (*service.entrypoint, *service.command, *call.words)]
        if call.program == "vllm":
            return Server(service.name, words)
        repository = call.flag("--model-repository") or call.flag("--model-store")
        folder = stack.on_host(service, repository.text) if repository else None
        text = _model_yaml(stack, service)
        if text is not None:
            return Server(service.name, words, model_yaml=text)
        if folder is not None and folder.is_dir():
            return Server(service.name, words, configs=_configs(folder, call))
    text = _model_yaml(stack, service)
    words = [word.text for word in (*service.entrypoint, *service.command)]
    return Server(service.name, words, model_yaml=text) if text is not None else None


def _configs(folder: Path, call: Invocation) -> Mapping[str, Any]:
    from zooserve.triton.configs import read_configs

    variant = call.flag("--model-config-name")
    return read_configs(folder, variant=variant.text if variant else "")


def _model_yaml(stack: Stack, service: Service) -> str | None:
    """The engine's knobs of a TensorRT-LLM leaf: `tensorrt_llm/1/model.yaml` in one of its mounts."""
    for mount in service.mounts:
        file = stack.path(mount.source) / "tensorrt_llm" / "1" / "model.yaml"
        if mount.kind == "bind" and mount.source and file.is_file():
            return file.read_text(encoding="utf-8", errors="replace")
    return None
