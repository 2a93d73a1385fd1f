"""The course of a job from its plan to the switched alias: each step can be cut off anywhere and done again."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

from zooserve.errors import JobRefused, JobStopped
from zooserve.sdk.blocking.client import Zoo
from zooserve.sdk.index import DENSE
from zooserve_cli.reembedding.comparing import Difference, differences
from zooserve_cli.reembedding.display import Screen
from zooserve_cli.reembedding.embedding import Orders
from zooserve_cli.reembedding.files import SeenIds, stamps
from zooserve_cli.reembedding.job import Definition, Job, JobFolder
from zooserve_cli.reembedding.layout import JOB_KEY, Layout
from zooserve_cli.reembedding.ledger import Ledger
from zooserve_cli.reembedding.letters import dead_points
from zooserve_cli.reembedding.pipeline import embedded, wave_parts
from zooserve_cli.reembedding.planning import Plan, Request
from zooserve_cli.reembedding.proof import Proof, proven
from zooserve_cli.reembedding.ray_session import RayPlan, ray_running
from zooserve_cli.reembedding.rows import DeadLetter, read_rows, weight, written_rows
from zooserve_cli.reembedding.sources import Page, row_of_record
from zooserve_cli.reembedding.store import Store
from zooserve_cli.reembedding.worker import Destination, Made, PartWorker, store_points

__all__ = ["Course", "Summary"]

_CATCH_UPS = 3
"""Comparisons with a source that is written to meanwhile; each finds what came during the one before."""
_PAGE_BYTES = 4 << 20
"""Of rows that are staged together."""


@dataclass
class Summary:
    """What became of a job."""

    collection: str
    target: str
    previous: str
    model: str
    space: str
    outcome: str = "switched"
    """Or `already there`."""
    rows: int = 0
    """Read from the source."""
    points: int = 0
    """In the new collection."""
    dead: int = 0
    dead_letters: str = ""
    added_meanwhile: int = 0
    removed_meanwhile: int = 0
    written_since: int = 0
    """How many points more the old collection has now than when it was compared last; they are in no other."""
    removed_since: int = 0
    """How many less; they are in the new one still."""
    proof: Proof | None = None
    seconds: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """For a script."""
        return {**vars(self), "proof": self.proof and self.proof.as_json(), "seconds": round(self.seconds, 1)}


@dataclass
class Course:
    """One run of one job, by one process that holds its folder and its store."""

    zoo: Zoo
    store: Store
    plan: Plan
    request: Request
    folder: JobFolder
    orders: Orders
    screen: Screen
    _stack: ExitStack = field(default_factory=ExitStack)
    _ray_runs: bool = False
    _compared: int = 0
    """Points of the source when the last comparison began."""

    def run(self) -> Summary:
        """To the switched alias. Raises JobRefused, JobStopped, or what the store or the platform fail with."""
        began = time.monotonic()
        summary = self._summary()
        if self._is_there():
            summary.outcome = "already there"
            summary.points = self.store.count(self.plan.target)
        else:
            job = self._job()
            with self._stack, self.folder.ledger() as ledger:
                self._target(job, ledger)
                self._build(job, ledger, summary)
            self._switch(job, summary)
        summary.seconds = time.monotonic() - began
        return summary

    # The job

    def _summary(self) -> Summary:
        index = self.plan.index
        return Summary(self.request.name, self.plan.target, self.plan.previous, index.release, index.space)

    def _is_there(self) -> bool:
        """Whether the alias leads to the new collection: by this job, if it was killed before it could say so."""
        if self.store.aliases().get(self.request.name) != self.plan.target:
            return False
        if self.request.restart:
            raise JobRefused(
                f"{self.request.name} leads to {self.plan.target}, which cannot be built anew while it serves. Roll "
                "back first (--rollback), or build another collection: --alias NAME."
            )
        job = self.folder.read()
        if job is not None and job.target == self.plan.target and not job.done:
            self.folder.write(job.model_copy(update={"served": True, "done": True}))
        elif self.request.files and (job is None or job.definition != self.plan.definition):
            raise JobRefused(
                f"{self.request.name} holds vectors of this space already, and these files were not what it was made "
                "of. Add them with the SDK (zoo.collection(…).upsert), or build them under another name."
            )
        return True

    def _job(self) -> Job:
        """The job that lies in the folder, if it is this one, or a new one."""
        if self.request.restart:
            self._forget()
        job = self.folder.read()
        if job is not None and job.definition != self.plan.definition:
            if not job.done:
                raise JobRefused(_other(job.definition, self.plan.definition, self.folder))
            self.folder.clear()
            job = None
        if job is None:
            if self.plan.target in self.store.collections():
                raise JobRefused(
                    f"The collection {self.plan.target} is there already, and is not of this job. If it is what you "
                    f"want, zooserve reembed {self.request.name} --rollback may lead back to it; --restart deletes it "
                    "and builds it anew."
                )
            self.folder.clear()
            job = Job.begun(self.plan.definition, self.plan.target, self.plan.previous, self.plan.led_to)
            self.folder.write(job)
        elif job.led_to is not None and not job.served:
            self.store.require_unmoved(self.request.name, job.led_to, job.target)
        return job

    def _forget(self) -> None:
        """--restart: the unfinished collection goes, and with it what is known of the job."""
        job = self._readable_job()
        unfinished = {self.plan.target} | ({job.target} if job is not None and not job.done else set())
        serving = set(self.store.aliases().values())
        if self.plan.definition.source in unfinished:
            raise JobRefused(f"{self.plan.definition.source} is what would be read, so it is not deleted.")
        for name in sorted(unfinished & self.store.collections()):
            if name in serving:
                raise JobRefused(f"An alias leads to {name}: it is not deleted. Point the alias elsewhere first.")
            self.screen.say(f"Deleting {name}, which was begun before")
            self.store.delete(name)
        self.folder.clear()

    def _readable_job(self) -> Job | None:
        try:
            return self.folder.read()
        except JobRefused:
            return None

    def _target(self, job: Job, ledger: Ledger) -> None:
        """The new collection, as this job made it, or made now; its payload is indexed either way."""
        layout = self.plan.layout
        if job.target in self.store.collections():
            held = Layout.of(self.store.info(job.target))
            if held.metadata.get(JOB_KEY, {}).get("job") != job.id:
                raise JobRefused(
                    f"The collection {job.target} was made by another job, perhaps from another machine. Wait for that "
                    "one, or begin anew with --restart."
                )
        elif ledger.standing.embedded:
            raise JobRefused(f"The collection {job.target} is gone, which this job had begun: --restart.")
        else:
            self.store.create(job.target, replace(layout, metadata=self.plan.metadata(job.id)))
        self.store.index_payload(job.target, layout.indexes)

    # Building

    def _build(self, job: Job, ledger: Ledger, summary: Summary) -> None:
        standing = ledger.standing
        if standing.read:
            self.screen.say(f"Going on: {standing.embedded:,} of {self.plan.rows:,} texts are done")
        self.folder.drop_parts(standing.waiting)
        self.screen.begin(self.plan.rows, standing.embedded + standing.dead)
        seen = SeenIds(self.folder.seen_ids, standing.parts) if self.request.files else None
        try:
            while standing.waiting or not standing.exhausted:
                self._stage(ledger, seen)
                self._embed(ledger)
        finally:
            if seen is not None:
                seen.close()
        self._prove(job, summary)
        if self.request.files:
            self._check_files(ledger)
        else:
            self._catch_up(job, ledger, summary)
        summary.rows, summary.dead = standing.read, standing.dead
        summary.dead_letters = str(self.folder.letters) if standing.dead else ""
        summary.points = self.store.count(job.target)
        self._check_dead(summary)

    def _prove(self, job: Job, summary: Summary) -> None:
        """Before the last comparison: what is written meanwhile is found by it, and the switch follows it at once."""
        source = self.plan.definition.source or None
        self.screen.say(f"Proving a sample of {self.store.count(job.target):,} points")
        summary.proof = proven(
            self.store, self.zoo, self.orders, job.target, self.plan.vector, self.plan.text_field, source
        )

    def _stage(self, ledger: Ledger, seen: SeenIds | None) -> None:
        """Read on, until a wave of parts waits or the source is at its end."""
        standing = ledger.standing
        if standing.exhausted:
            return
        for page in self.plan.source.pages(standing.cursor):
            part = standing.parts
            if seen is not None:
                seen.separate(page, part)
            if page.rows:
                self.folder.write_part(part, written_rows(page.rows))
            ledger.staged(part, len(page.rows), page.dead, page.cursor, exhausted=page.cursor is None)
            if len(standing.waiting) >= wave_parts(self.request.workers):
                return

    def _embed(self, ledger: Ledger) -> None:
        """Everything that waits."""
        standing = ledger.standing
        if not standing.waiting:
            return
        self._require_ray()
        worker = PartWorker(self.orders, self._destination)
        for made in self._from_ray(ledger, worker):
            if made.fault is not None:
                raise JobStopped(
                    f"{made.fault[1]} ({standing.embedded + standing.dead:,} of {self.plan.rows:,} texts are done; the "
                    "same command goes on from there.)"
                )
            self._take(ledger, made)
            self.screen.at(standing.embedded + standing.dead, standing.dead)

    def _from_ray(self, ledger: Ledger, worker: PartWorker) -> Iterator[Made]:
        from ray.exceptions import RayError

        try:
            yield from embedded(dict(ledger.standing.waiting), self._written, worker, self.request.workers)
        except RayError as exc:
            raise JobStopped(f"Ray failed ({exc}). The same command goes on from there.") from exc

    def _take(self, ledger: Ledger, made: Made) -> None:
        """A part that is finished: stored if it is not, noted, and its file removed."""
        rows = read_rows(self._written(made.part))
        stored, refused = made.stored, made.refused
        if made.embedded is not None:
            stored, refused = store_points(self.store, self._destination, rows, made.embedded)
        letters = [rows[place].letter(reason, detail) for place, (reason, detail) in sorted(refused.items())]
        ledger.embedded(made.part, stored, letters)
        self.folder.part_file(made.part).unlink(missing_ok=True)

    def _written(self, part: int) -> bytes:
        try:
            return self.folder.part_file(part).read_bytes()
        except FileNotFoundError as exc:
            raise JobRefused(f"{self.folder.part_file(part)} is gone, which this job had read: --restart.") from exc

    @property
    def _destination(self) -> Destination:
        plan = self.plan
        alone = not plan.layout.sparse and set(plan.layout.dense) == {DENSE}
        return Destination(self.store.address, plan.target, plan.vector, plan.sparse, alone)

    def _require_ray(self) -> None:
        """Started when there is something to embed, and no earlier."""
        if not self._ray_runs:
            self.screen.say(f"Starting Ray for {self.request.workers} workers")
            ray = RayPlan(self.request.ray, self.request.workers, self.folder.records)
            self._stack.enter_context(ray_running(ray))
            self._ray_runs = True

    # What came meanwhile

    def _catch_up(self, job: Job, ledger: Ledger, summary: Summary) -> None:
        """Compare, and make good what differs, until nothing does."""
        for _ in range(_CATCH_UPS):
            self.screen.say(f"Comparing {self.plan.target} with {self.plan.definition.source}")
            self._compared = self._source_count()
            dead = dead_points(self.folder.letters)
            found = differences(self.store, self.plan.definition.source, self.plan.target, dead, self.plan.kept)
            added, removed = self._make_good(
                ledger, _keeping_own(found, self.plan) if job.served or job.done else found
            )
            summary.added_meanwhile += added
            summary.removed_meanwhile += removed
            if not added and not removed:
                return
            self.screen.say(f"Written meanwhile: {added:,} points; removed: {removed:,}")
            self._embed(ledger)
        raise JobStopped(
            f"{self.plan.definition.source} is being written to faster than it is compared: {_CATCH_UPS} times there "
            "was something new. Stop what writes to it, and give the same command: it goes on from there."
        )

    def _make_good(self, ledger: Ledger, found: Iterator[Difference]) -> tuple[int, int]:
        """Stage what is missing or other, remove what is too much: how many of each."""
        added = removed = 0
        page, going, held = Page(None), list[int | str](), 0
        for difference in found:
            if difference.removed is not None:
                going.append(difference.removed)
                removed += 1
            else:
                added += 1
                item = row_of_record(
                    difference.record, self.plan.definition.source, self.plan.text_field, self.plan.kept
                )
                page.add(item)
                held += weight(item)
                if isinstance(item, DeadLetter) and item.point is not None:
                    going.append(item.point)  # what was made of an earlier text
            if len(page.rows) + len(page.dead) + len(going) >= self.request.part_rows or held >= _PAGE_BYTES:
                self._stage_again(ledger, page, going)
                page, going, held = Page(None), [], 0
        self._stage_again(ledger, page, going)
        return added, removed

    def _stage_again(self, ledger: Ledger, page: Page, going: list[int | str]) -> None:
        self.store.remove(self.plan.target, going)
        if page.rows or page.dead:
            part = ledger.standing.parts
            self.folder.write_part(part, written_rows(page.rows))
            ledger.caught_up(part, len(page.rows), page.dead)

    # Counting

    def _check_files(self, ledger: Ledger) -> None:
        if stamps(self.request.files) != self.plan.definition.files:
            raise JobStopped("The files were changed while they were read. Begin anew with --restart.")
        points = self.store.count(self.plan.target)
        if points != ledger.standing.embedded:
            raise JobStopped(
                f"{self.plan.target} has {points:,} points where {ledger.standing.embedded:,} were written: something "
                "else writes to it. The alias was not switched; begin anew with --restart."
            )

    def _check_dead(self, summary: Summary) -> None:
        if summary.points == 0 or (summary.dead > summary.points and not self.request.accept_dead):
            raise JobStopped(
                f"{summary.dead:,} of {summary.rows:,} rows could not be embedded: the alias was not switched. Why is "
                f"in {self.folder.letters}. Is the text under {self.plan.definition.text_field!r} (--text-field)? If "
                "the rest will do, give the same command with --accept-dead."
            )

    def _switch(self, job: Job, summary: Summary) -> None:
        """What is told of it before lets no later run, after whatever end, take the new collection's own points."""
        self.store.require_unmoved(self.request.name, self.plan.led_to, job.target)
        self.folder.write(job.model_copy(update={"served": True}))
        self.store.switch(self.request.name, job.target, self.plan.led_to)
        self.folder.write(job.model_copy(update={"served": True, "done": True}))
        more = self._source_count() - self._compared
        summary.written_since, summary.removed_since = max(0, more), max(0, -more)

    def _source_count(self) -> int:
        source = self.plan.definition.source
        return self.store.count(source) if source else 0


def _keeping_own(found: Iterator[Difference], plan: Plan) -> Iterator[Difference]:
    """The same. Raises JobRefused before a point would go that may have been added while the alias led there."""
    for difference in found:
        if difference.removed is not None:
            raise JobRefused(
                f"{plan.target} was searched under this alias before, and holds points that {plan.definition.source} "
                f"does not, as {difference.removed!r}: added there then, or deleted in the other since. Add them to "
                f"{plan.definition.source}, or delete them in {plan.target}; --restart builds it anew without them."
            )
        yield difference


def _other(begun: Definition, asked: Definition, folder: JobFolder) -> str:
    """What differs between the job that lies there and the one that is asked for."""
    old, new = begun.model_dump(), asked.model_dump()
    changed = [f"{name}: {_short(old[name])} then, {_short(new[name])} now" for name in old if old[name] != new[name]]
    return (
        f"An unfinished job lies in {folder.root}, and was asked otherwise ({'; '.join(changed)}). Give its arguments "
        "to go on with it, or --restart to delete what it made and begin anew."
    )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"
