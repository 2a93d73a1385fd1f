"""A model's golden answers, asked of a real Triton that serves it alone: what the tests of `zooserve new` call."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from zooserve.processes.ports import reserved_ports
from zooserve.settings import Settings
from zooserve.triton.installation import find_installation
from zooserve.triton.server import Addresses, TritonServer
from zooserve_cli.plan import own_backends
from zooserve_ensembles.golden import golden_faults

__all__ = ["served_faults"]

_LOAD_S = 180.0
_ANSWER_S = 60.0
_STOP_S = 10.0


def served_faults(folder: Path, scratch: Path) -> list[str]:
    """How the answers of the model in `folder` differ from its golden.json, one sentence each.

    A Triton is started for it over the repository around the folder, and stopped again; `scratch` gets its log.
    """
    installation = find_installation(Settings().resolved().cache_dir, own_backends())
    addresses = Addresses("127.0.0.1", *reserved_ports(3))
    log = scratch / "triton.log"
    server = TritonServer("golden", installation, folder.parent, addresses, log, models=[folder.name])
    server.start()
    try:
        server.wait_until_loaded(_LOAD_S)
        with httpx.Client(base_url=f"http://{addresses.http}", timeout=_ANSWER_S, trust_env=False) as http:
            return golden_faults(folder / "golden.json", lambda model, inputs: _answer(http, model, inputs))
    finally:
        server.stop(_STOP_S)


def _answer(http: httpx.Client, model: str, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    tensors = [
        {"name": name, "datatype": given["datatype"], "shape": np.shape(given["data"]), "data": given["data"]}
        for name, given in inputs.items()
    ]
    body = http.post(f"/v2/models/{model}/infer", json={"inputs": tensors}).json()
    if "error" in body:
        raise AssertionError(f"{model} does not answer: {body['error']}")
    return {output["name"]: np.reshape(output["data"], output["shape"]) for output in body["outputs"]}
