"""What the router and the leaf have counted of chats, read from their metrics pages, and whether it adds up."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

__all__ = ["Ledger", "faults", "ledger_in"]


@dataclass(frozen=True)
class Ledger:
    """Counts of one model's chats: since the start, or between two looks."""

    requests: Mapping[str, int] = field(default_factory=dict)
    """By outcome."""
    issued: int = 0
    """Choices asked of the leaf."""
    ended: Mapping[str, int] = field(default_factory=dict)
    """Choices by outcome: finished, cancelled, failed."""
    wasted: Mapping[str, int] = field(default_factory=dict)
    """Tokens by reason."""
    output_tokens: int = 0
    held_tokens: int = 0
    """Now, not since."""
    waiting: int = 0
    """Now, not since."""

    def since(self, before: "Ledger") -> "Ledger":
        """What was counted after that."""
        return Ledger(
            requests=_less(self.requests, before.requests),
            issued=self.issued - before.issued,
            ended=_less(self.ended, before.ended),
            wasted=_less(self.wasted, before.wasted),
            output_tokens=self.output_tokens - before.output_tokens,
            held_tokens=self.held_tokens,
            waiting=self.waiting,
        )


def ledger_in(page: str, model: str) -> Ledger:
    """Read the router's /metrics page."""
    samples = [
        (sample.name, sample.labels, int(sample.value))
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.labels.get("model") == model and "le" not in sample.labels
    ]

    def by(name: str, label: str) -> dict[str, int]:
        counts: dict[str, int] = {}
        for each, labels, value in samples:
            if each == name:
                counts[labels[label]] = counts.get(labels[label], 0) + value
        return counts

    def total(name: str, **wanted: str) -> int:
        return sum(value for each, labels, value in samples if each == name and wanted.items() <= labels.items())

    return Ledger(
        requests=by("zooserve_requests_total", "outcome"),
        issued=total("zooserve_chat_choices_issued_total"),
        ended=by("zooserve_chat_choices_ended_total", "outcome"),
        wasted=by("zooserve_wasted_tokens_total", "reason"),
        output_tokens=total("zooserve_tokens_total", direction="output"),
        held_tokens=total("zooserve_chat_held_tokens"),
        waiting=total("zooserve_chat_waiting"),
    )


def faults(ledger: Ledger, sent: int, whole: int, late: int) -> Iterable[str]:
    """What does not add up, seen from clients who sent so many requests, got so many whole answers, and were told of
    so many deadlines. A request may be left before it reaches the router: fewer may be counted than were sent."""
    if ledger.issued != sum(ledger.ended.values()):
        yield f"{ledger.issued} choices were issued, and {sum(ledger.ended.values())} have ended"
    if sum(ledger.requests.values()) > sent:
        yield f"{sum(ledger.requests.values())} requests were counted, and {sent} were sent"
    if ledger.requests.get("ok", 0) < whole:
        yield f"{whole} answers came whole, and {ledger.requests.get('ok', 0)} were counted so"
    if ledger.requests.get("DeadlineExceeded", 0) < late:
        yield f"{late} clients were told of a deadline, and {ledger.requests.get('DeadlineExceeded', 0)} were counted"
    if sum(ledger.wasted.values()) > ledger.output_tokens:
        yield f"{sum(ledger.wasted.values())} tokens were wasted of {ledger.output_tokens} that were written"
    if ledger.held_tokens or ledger.waiting:
        yield f"{ledger.held_tokens} tokens are still held, and {ledger.waiting} requests wait"


def _less(after: Mapping[str, int], before: Mapping[str, int]) -> dict[str, int]:
    return {name: count - before.get(name, 0) for name, count in after.items() if count != before.get(name, 0)}
