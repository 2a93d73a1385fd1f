"""What `zooserve up` shows: each step with its time, the proof, the addresses, requests to copy."""

import json
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.status import Status

from zooserve.processes.state import PlatformState
from zooserve_cli.places import shown
from zooserve_cli.proof import Proof

__all__ = ["Steps", "console", "proof_json", "show_addresses", "show_proof"]


def console(*, stderr: bool = False) -> Console:
    """Where messages go; no wrapping of what is to be copied."""
    return Console(stderr=stderr, highlight=False, soft_wrap=True)


class Steps:
    """The steps of a start: a spinner over those that run, a line for each that is done."""

    def __init__(self, to: Console) -> None:
        self._console = to
        self._done: set[str] = set()
        self._started = time.monotonic()
        self._status: Status | None = to.status("starting") if to.is_terminal else None
        if self._status:
            self._status.start()

    def show(self, state: PlatformState) -> None:
        """Show what is new in `state`: its steps, and what is wrong in the repository."""
        for step in state.steps:
            if step.seconds is not None and step.name not in self._done:
                self._done.add(step.name)
                self._console.print(f"[green]✓[/] {step.name}  [dim]{step.seconds:.1f} s[/]")
        for warning in state.warnings:
            if warning not in self._done:
                self._done.add(warning)
                self._console.print(f"! {warning}", style="yellow", markup=False)
        if self._status:
            self._status.update(", ".join(step.name for step in state.steps if step.seconds is None) or "starting")

    def close(self) -> float:
        """Take the spinner away; the seconds since the start."""
        if self._status:
            self._status.stop()
            self._status = None
        return time.monotonic() - self._started


def show_proof(to: Console, proof: dict[str, Any]) -> None:
    """The first embedding and the first chat."""
    if embedding := proof.get("embedding"):
        values = ", ".join(f"{value:.4f}" for value in embedding["first_values"])
        to.print(f"\n[bold]First embedding[/] ({embedding['model']}, {embedding['milliseconds']:.0f} ms): ", end="")
        to.print(f"{embedding['dimensions']} dimensions \\[{values}, …] of “{embedding['text']}”")
    if chat := proof.get("chat"):
        to.print(f"[bold]First chat[/] ({chat['model']}, first piece after {chat['first_piece_milliseconds']:.0f} ms):")
        to.print(f"  > {chat['question']}")
        to.print(f"  < {chat['answer'].strip()}", markup=False)


def show_addresses(to: Console, state: PlatformState) -> None:
    """Where everything listens, and requests to copy."""
    base = f"http://{state.router}"
    to.print(f"\n[bold]API[/]      {base}/v1   [dim]health {base}/health/ready, metrics {base}/metrics[/]")
    to.print(f"[dim]zoo      http://{state.zoo_http}  grpc {state.zoo_grpc}  metrics {state.zoo_metrics}[/]")
    to.print(f"[dim]leaf     http://{state.leaf_http}  grpc {state.leaf_grpc}  metrics {state.leaf_metrics}[/]")
    if state.engine_http:
        to.print(f"[dim]engine   http://{state.engine_http}  asks for the key in the state folder's run/engine.json[/]")
    to.print(f"[dim]haproxy  metrics http://{state.haproxy_metrics}/metrics[/]")
    if state.scrape_file:
        to.print(f"[dim]scrape   prometheus --config.file={shown(Path(state.scrape_file))}[/]")
    to.print("\n[bold]Try it[/]")
    to.print(_requests(base), markup=False)


def _requests(base: str) -> str:
    embed = json.dumps({"model": "embed", "input": "hello world"})
    rerank = json.dumps({"model": "rerank", "query": "what is a panda?", "documents": ["a bear", "a lorry"]})
    chat = json.dumps({"model": "chat", "stream": True, "messages": [{"role": "user", "content": "Hi!"}]})
    lines = [
        f"curl -s {base}/v1/embeddings -H 'content-type: application/json' -d '{embed}'",
        f"curl -s {base}/v2/rerank -H 'content-type: application/json' -d '{rerank}'",
        f"curl -sN {base}/v1/chat/completions -H 'content-type: application/json' -d '{chat}'",
        f'python -c \'from openai import OpenAI; c = OpenAI(base_url="{base}/v1", api_key="none"); '
        'print(c.embeddings.create(model="embed", input="hello").data[0].embedding[:4])\'',
    ]
    return "\n".join(f"  {line}" for line in lines)


def proof_json(state: PlatformState, proof: dict[str, Any] | Proof) -> None:
    """The same for a script: one JSON document on stdout."""
    answers = proof.as_json() if isinstance(proof, Proof) else proof
    json.dump({**state.model_dump(mode="json"), "proof": answers}, sys.stdout, indent=1)
    sys.stdout.write("\n")
    sys.stdout.flush()
