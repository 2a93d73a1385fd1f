"""llama.cpp's OpenAI server in this process, through xllamacpp."""

import os
import signal
import sys
from typing import Any

from zooserve.engine.orders import EngineOrders

__all__ = ["serve"]

_WARNINGS = 2
"""Of llama.cpp's log levels. Prompts are told at 4 and above, and no log is to hold one."""


def serve(orders: EngineOrders) -> None:
    """Load the model, listen, and stay until a signal ends this process: there is nothing to put away.

    Ends the process with the reason when the file cannot be loaded or the port is taken.
    """
    import xllamacpp

    if not orders.gguf.is_file():
        sys.exit(f"{orders.gguf} is not there: run `zooserve fetch`, or name a GGUF file in ZOOSERVE_ENGINE__GGUF.")
    try:
        server = xllamacpp.Server(_parameters(xllamacpp.CommonParams(), orders))
    except RuntimeError as fault:  # llama.cpp has logged what it was
        sys.exit(f"{orders.gguf} cannot be served at {orders.host}:{orders.port}: {fault}")
    print(f"{', '.join(orders.names)}: {orders.slots} slots at {server.listening_address}", flush=True)  # noqa: T201
    while True:
        signal.pause()


def _parameters(parameters: Any, orders: EngineOrders) -> Any:
    threads = orders.threads or len(os.sched_getaffinity(0))
    parameters.model.path = str(orders.gguf)
    parameters.model_alias = list(orders.names)
    parameters.hostnames = [orders.host]
    parameters.port = orders.port
    parameters.api_keys = [orders.key]
    parameters.n_parallel = orders.slots
    parameters.n_ctx = orders.slots * orders.context_per_slot  # split evenly over the slots
    parameters.n_batch = parameters.n_ubatch = orders.batch_tokens
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = threads
    parameters.cache_ram_mib = orders.cache_ram_mib
    parameters.endpoint_slots = parameters.endpoint_metrics = True
    parameters.cors_origins = ""  # its callers are servers
    parameters.ui = False
    parameters.verbosity = _WARNINGS
    return parameters
