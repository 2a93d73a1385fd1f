"""A job from the plan to the switched alias, cut off at every step that writes."""

import errno
import json
import sqlite3
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from qdrant_client import QdrantClient, models

from zooserve.errors import (
    BadInput,
    JobRefused,
    JobStopped,
    NoSuchCollection,
    SpaceMismatch,
    UnmarkedCollection,
)
from zooserve.sdk.index import Index
from zooserve_cli.reembedding import course
from zooserve_cli.reembedding.comparing import same_payload
from zooserve_cli.reembedding.course import Course
from zooserve_cli.reembedding.job import JobFolder
from zooserve_cli.reembedding.ledger import Ledger
from zooserve_cli.reembedding.rollback import roll_back
from zooserve_cli.reembedding.store import Store

COUNT = 40
DEAD = 6
TARGET = "docs--bc7ce5e304176975"
OLD = Index("00000000000000aa", "old", "1", 3)


class Killed(BaseException):
    """What a kill is in these tests: nothing catches it."""


def killed(*given: Any, **named: Any) -> None:
    raise Killed


def check(bench: Any, source: dict[Any, Any]) -> None:
    """Every good row is there once, with its own payload and vector, and every bad one is a letter once."""
    records = bench.records()
    bad = {point for point, each in source.items() if not each["text"] or each["text"] == "too long"}
    assert records.keys() == source.keys() - bad
    for point, record in records.items():
        assert same_payload(record.payload, source[point])
        assert np.dot(record.vector, bench.vector_of(source[point]["text"])) > 0.99999
    assert sorted(str(letter["id"]) for letter in bench.letters()) == sorted(map(str, bad))


def test_the_new_collection_holds_the_same_in_another_space(bench, payloads) -> None:
    bench.fill(payloads, metadata={**OLD.metadata, "owner": "me"})
    done = bench.run()
    assert (done.outcome, done.points, done.dead, done.rows) == ("switched", COUNT - DEAD, DEAD, COUNT)
    assert done.proof is not None
    assert done.proof.least_cosine > 0.9999
    assert bench.aliases() == {"docs": TARGET}
    check(bench, payloads)
    client = bench.client()
    metadata = client.get_collection("docs").config.metadata
    client.close()
    assert metadata["owner"] == "me"
    assert metadata["zooserve"]["space"] == "bc7ce5e304176975"


STEPS = [
    (Store, "upsert"), (Store, "create"), (Store, "switch"), (Ledger, "_write"), (JobFolder, "write_part"),
    (JobFolder, "write"),
]  # fmt: skip


@pytest.mark.parametrize(("owner", "step"), STEPS, ids=[f"{owner.__name__}.{step}" for owner, step in STEPS])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_killed_at_any_step_it_goes_on_to_the_same_end(
    bench, payloads, monkeypatch: pytest.MonkeyPatch, owner: Any, step: str, after: bool
) -> None:
    bench.fill(payloads)
    real = getattr(owner, step)
    life = [1]

    def deadly(self: Any, *given: Any, **named: Any) -> Any:
        life[0] -= 1
        if life[0] < 0 and not after:
            raise Killed
        done = real(self, *given, **named)
        if life[0] < 0:
            raise Killed
        return done

    monkeypatch.setattr(owner, step, deadly)
    kills = 0
    for lives in (0, 0, 1, 2, 3, 4, 1_000_000):  # each run gets further than the one before
        life[0] = lives
        try:
            outcome = bench.run().outcome
        except Killed:
            kills += 1
    assert kills
    assert outcome in ("switched", "already there")
    check(bench, payloads)


@pytest.mark.parametrize(
    ("owner", "step", "full"),
    [
        (JobFolder, "write_part", OSError(errno.ENOSPC, "No space left on device")),
        (Store, "upsert", sqlite3.OperationalError("database or disk is full")),
    ],
    ids=["ours", "the local Qdrant's"],
)
def test_a_full_disk_is_told_and_the_same_command_goes_on(
    bench, payloads, monkeypatch: pytest.MonkeyPatch, owner: Any, step: str, full: Exception
) -> None:
    bench.fill(payloads)

    def refuse(*given: Any) -> None:
        raise full

    with monkeypatch.context() as patch:
        patch.setattr(owner, step, refuse)
        with pytest.raises(JobStopped, match=r"(No space left|disk is full).*same command goes on"):
            bench.run()
    bench.run()
    check(bench, payloads)


def test_killed_before_the_payload_was_indexed_the_next_run_indexes_it(
    bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"text": "one"}\n')
    with monkeypatch.context() as patch:
        patch.setattr(QdrantClient, "create_payload_index", killed)
        with pytest.raises(Killed):
            bench.run("kb", files=(path,))
    indexed = []
    monkeypatch.setattr(QdrantClient, "create_payload_index", lambda *given, **named: indexed.append(given[1:]))
    assert bench.run("kb", files=(path,)).outcome == "switched"
    assert indexed == [("kb--bc7ce5e304176975", "document")]


def test_what_the_source_gains_and_loses_meanwhile_is_made_good(
    bench, payloads, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.fill(payloads)
    with monkeypatch.context() as patch:
        patch.setattr(Course, "_switch", killed)
        with pytest.raises(Killed):
            bench.run()
    changed = dict(payloads)
    changed[1001] = {**payloads[1], "text": "came later"}
    changed[1] = {**payloads[1], "text": "changed"}
    changed[5] = {**payloads[5], "text": ""}
    del changed[9]
    client = bench.client()
    client.upsert("docs--old", [models.PointStruct(id=n, vector=[1, 2, 3], payload=changed[n]) for n in (1001, 1, 5)])
    client.delete("docs--old", [9])
    client.close()
    done = bench.run()
    assert (done.added_meanwhile, done.removed_meanwhile) == (3, 1)
    check(bench, changed)


def test_a_dead_row_that_is_mended_in_the_source_is_embedded_after_all(
    bench, payloads, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.fill(payloads)
    with monkeypatch.context() as patch:
        patch.setattr(Course, "_switch", killed)
        with pytest.raises(Killed):
            bench.run()
    changed = dict(payloads)
    mended, still_bad, *others = [point for point, each in payloads.items() if each["text"] in ("", "too long", None)]
    changed[mended] = {**payloads[mended], "text": "mended"}
    changed[still_bad] = {**payloads[still_bad], "text": "still too long"}
    client = bench.client()
    client.upsert(
        "docs--old", [models.PointStruct(id=n, vector=[1, 2, 3], payload=changed[n]) for n in (mended, still_bad)]
    )
    client.close()
    assert bench.run().points == COUNT - DEAD + 1
    assert same_payload(bench.records()[mended].payload, changed[mended])
    counted = Counter(letter["id"] for letter in bench.letters())
    assert counted == {mended: 1, still_bad: 2, **dict.fromkeys(others, 1)}


def beside(monkeypatch: pytest.MonkeyPatch, owner: Any, step: str, act: Callable[[Store], None]) -> None:
    """Somebody else does this just before the step."""
    real = getattr(owner, step)

    def with_another(store: Store, *given: Any, **named: Any) -> Any:
        act(store)
        return real(store, *given, **named)

    monkeypatch.setattr(owner, step, with_another)


def late(store: Store) -> None:
    point = models.PointStruct(id=3001, vector=[1, 2, 3], payload={"text": "late"})
    assert not store.upsert("docs--old", [point])


def test_what_is_added_or_removed_after_the_last_comparison_is_told(
    bench, payloads, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.fill(payloads)
    with monkeypatch.context() as patch:
        beside(patch, Store, "switch", late)
        assert bench.run().written_since == 1
    with Store.opened(bench.address) as store:
        roll_back(store, "docs")
    beside(monkeypatch, Store, "switch", lambda store: store.remove("docs--old", [3001, 1]))
    done = bench.run()
    assert (done.written_since, done.removed_since, done.added_meanwhile) == (0, 2, 1)


def test_what_is_added_while_the_sample_is_proven_is_embedded(bench, payloads, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.fill(payloads)
    beside(monkeypatch, course, "proven", late)
    done = bench.run()
    assert (done.added_meanwhile, done.written_since) == (1, 0)
    assert bench.records()[3001].payload == {"text": "late"}


def lead(bench: Any, alias: str, collection: str) -> None:
    """Somebody else switches."""
    client = bench.client()
    made = models.CreateAlias(collection_name=collection, alias_name=alias)
    client.update_collection_aliases(
        [
            models.DeleteAliasOperation(delete_alias=models.DeleteAlias(alias_name=alias)),
            models.CreateAliasOperation(create_alias=made),
        ]
    )
    client.close()


def other_collection(bench: Any) -> None:
    client = bench.client()
    params = models.VectorParams(size=3, distance=models.Distance.COSINE)
    client.create_collection("docs--other", vectors_config=params, metadata=OLD.metadata)
    client.upsert("docs--other", [models.PointStruct(id=1, vector=[1, 2, 3], payload={"text": "other"})])
    client.close()


def test_an_alias_that_somebody_switches_meanwhile_is_left_and_led_back_the_job_goes_on(
    bench, payloads, qdrant, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.behind(qdrant)
    bench.fill(payloads)
    other_collection(bench)
    with monkeypatch.context() as patch:
        beside(patch, course, "proven", lambda store: lead(bench, "docs", "docs--other"))
        with pytest.raises(JobRefused, match=r"docs leads to docs--other now and led to docs--old before.*--restart"):
            bench.run()
    assert bench.aliases() == {"docs": "docs--other"}
    with pytest.raises(JobRefused, match="source: 'docs--old' then, 'docs--other' now"):
        bench.run()
    lead(bench, "docs", "docs--old")
    assert bench.run().outcome == "switched"
    check(bench, payloads)


def test_an_alias_of_files_that_moved_between_two_runs_is_left(
    bench, payloads, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.fill(payloads)
    other_collection(bench)
    path = tmp_path / "rows.jsonl"
    path.write_text('{"text": "one"}\n')
    with monkeypatch.context() as patch:
        patch.setattr(course, "proven", killed)
        with pytest.raises(Killed):
            bench.run(files=(path,))
    lead(bench, "docs", "docs--other")
    with pytest.raises(JobRefused, match="leads to docs--other now and led to docs--old before"):
        bench.run(files=(path,))
    assert bench.run(files=(path,), restart=True).previous == "docs--other"


def test_a_rollback_beside_another_switch_is_refused(bench, payloads, qdrant, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.behind(qdrant)
    bench.fill(payloads)
    other_collection(bench)
    bench.run()
    beside(monkeypatch, Store, "switch", lambda store: lead(bench, "docs", "docs--other"))
    with Store.opened(bench.address) as store, pytest.raises(JobRefused, match="somebody else switched it"):
        roll_back(store, "docs")
    assert bench.aliases() == {"docs": "docs--other"}


def test_points_that_were_added_after_a_switch_which_a_kill_cut_off_are_not_removed(
    bench, payloads, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.fill(payloads)
    real = Store.switch

    def killed_behind_it(self: Store, *given: Any) -> None:
        real(self, *given)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Store, "switch", killed_behind_it)
        with pytest.raises(Killed):
            bench.run()
    client = bench.client()
    client.upsert("docs", [models.PointStruct(id=2001, vector=bench.vector_of("own"), payload={"text": "own"})])
    client.close()
    with Store.opened(bench.address) as store:
        roll_back(store, "docs")
    with pytest.raises(JobRefused, match=r"holds points that docs--old does not, as 2001"):
        bench.run()
    assert 2001 in bench.records(TARGET)
    client = bench.client()
    client.delete(TARGET, [2001])
    client.close()
    assert bench.run().outcome == "switched"
    check(bench, payloads)


def test_a_key_that_is_refused_while_points_are_written_makes_no_dead_letters(
    bench, payloads, qdrant, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.behind(qdrant)
    bench.fill(payloads)
    qdrant.fault = lambda method, path: (403, {}, b"no") if method == "PUT" and path.endswith("/points") else None
    with pytest.raises(JobStopped, match=r"refuses.*403.*same command goes on"):
        bench.run()
    assert not [letter for letter in bench.letters() if letter["reason"] == "refused by Qdrant"]
    qdrant.fault = lambda method, path: None
    assert bench.run().points == COUNT - DEAD
    check(bench, payloads)


def test_heavy_payloads_that_changed_meanwhile_are_staged_in_small_parts(
    bench, payloads, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.fill(payloads)
    bench.run(part_rows=256)
    with Store.opened(bench.address) as store:
        roll_back(store, "docs")
        heavy = [
            models.PointStruct(id=number, vector=[1, 2, 3], payload={"text": f"{number}", "more": "x" * 1_500_000})
            for number in range(5000, 5008)
        ]
        assert not store.upsert("docs--old", heavy)
    sizes: list[int] = []
    real = JobFolder.write_part

    def measured(self: JobFolder, part: int, rows: bytes) -> None:
        sizes.append(len(rows))
        real(self, part, rows)

    monkeypatch.setattr(JobFolder, "write_part", measured)
    assert bench.run(part_rows=256).added_meanwhile == 8
    assert len(sizes) > 1
    assert max(sizes) < 6 << 20


def test_a_payload_nested_deeper_than_qdrant_reads_is_a_dead_letter_and_counts_once(bench, payloads) -> None:
    deep: Any = "bottom"
    for _ in range(200):
        deep = [deep]
    bench.fill({**payloads, 4001: {"text": "deep", "deep": deep}})
    done = bench.run()
    assert (done.points, done.dead) == (COUNT - DEAD, DEAD + 1)
    assert [letter["id"] for letter in bench.letters()].count(4001) == 1


def test_rolled_back_it_leads_where_it_led_and_forward_again(bench, payloads) -> None:
    bench.fill(payloads)
    bench.run()
    with Store.opened(bench.address) as store:
        back = roll_back(store, "docs")
        assert (back.left, back.restored, back.points_restored) == (TARGET, "docs--old", COUNT)
        with pytest.raises(JobRefused, match="nothing to go back to"):
            roll_back(store, "docs")
    assert bench.run().outcome == "switched"
    assert bench.aliases() == {"docs": TARGET}
    assert bench.run().outcome == "already there"


def test_points_added_after_the_switch_are_not_removed_on_the_way_forward_again(bench, payloads) -> None:
    bench.fill(payloads)
    bench.run()
    client = bench.client()
    client.upsert("docs", [models.PointStruct(id=2001, vector=bench.vector_of("own"), payload={"text": "own"})])
    client.close()
    with Store.opened(bench.address) as store:
        roll_back(store, "docs")
    with pytest.raises(JobRefused, match=r"holds points that docs--old does not, as 2001.*--restart"):
        bench.run()
    assert 2001 in bench.records(TARGET)
    client = bench.client()
    client.upsert("docs", [models.PointStruct(id=2001, vector=[1, 2, 3], payload={"text": "own"})])
    client.close()
    assert bench.run().points == COUNT - DEAD + 1


def test_an_unfinished_job_is_not_continued_as_another(bench, payloads, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.fill(payloads)
    with monkeypatch.context() as patch:
        patch.setattr(Store, "upsert", killed)
        with pytest.raises(Killed):
            bench.run()
    with pytest.raises(JobRefused, match=r"to: 'embed@1' then, 'next@1' now.*--restart"):
        bench.run(to="next")
    with pytest.raises(JobRefused, match="part_rows: 5 then, 6 now"):
        bench.run(part_rows=6)
    assert bench.run(to="next", restart=True).target == "docs--2ee4174e26e98073"
    assert TARGET not in bench.aliases().values()
    client = bench.client()
    names = {each.name for each in client.get_collections().collections}
    client.close()
    assert names == {"docs--old", "docs--2ee4174e26e98073"}


def test_a_second_process_on_one_job_is_refused(bench, payloads) -> None:
    bench.fill(payloads)
    with bench.folder().held(), pytest.raises(JobRefused, match="Another process"):
        bench.run()


def test_a_lock_and_files_that_cannot_be_opened_are_told(bench, payloads, tmp_path: Path) -> None:
    bench.fill(payloads)
    (bench.folder().root / "lock").mkdir(parents=True)
    with pytest.raises(JobStopped, match=r"cannot be read or written: .*lock"):
        bench.run()
    (bench.folder().root / "lock").rmdir()
    with pytest.raises(JobStopped, match=r"rows\.jsonl.*same command goes on"), bench.folder().held():
        (tmp_path / "rows.jsonl").read_text()


def test_a_target_of_somebody_else_is_not_touched(bench, payloads) -> None:
    bench.fill(payloads)
    bench.run()
    with Store.opened(bench.address) as store:
        roll_back(store, "docs")
    bench.folder().clear()
    with pytest.raises(JobRefused, match=r"is not of this job.*--rollback.*--restart"):
        bench.run()
    assert bench.run(restart=True).points == COUNT - DEAD


def test_names_that_lead_nowhere_are_told(bench, payloads) -> None:
    with pytest.raises(NoSuchCollection, match="no Qdrant folder"):
        bench.run()
    bench.fill(payloads)
    with pytest.raises(NoSuchCollection, match=r"neither a collection nor an alias nothing.*'docs'"):
        bench.run("nothing")
    meta = Path(bench.address.folder) / "meta.json"
    said = json.loads(meta.read_text())
    said["aliases"]["lost"] = "gone"
    meta.write_text(json.dumps(said))
    with pytest.raises(NoSuchCollection, match="alias lost points at gone"):
        bench.run("lost")


def test_a_collection_that_is_no_alias_needs_one(bench, payloads) -> None:
    bench.fill(payloads, alias=None)
    with pytest.raises((JobRefused, BadInput), match="--alias"):
        bench.run("docs--old")
    done = bench.run("docs--old", alias="live")
    assert bench.aliases() == {"live": "live--bc7ce5e304176975"}
    assert done.points == COUNT - DEAD
    with Store.opened(bench.address) as store:
        assert roll_back(store, "live").restored == "docs--old"


@pytest.mark.parametrize("restart", [False, True])
def test_what_is_read_is_never_what_is_deleted(bench, payloads, restart: bool) -> None:
    bench.fill(payloads)
    bench.run()
    client = bench.client()
    client.update_collection_aliases([models.DeleteAliasOperation(delete_alias=models.DeleteAlias(alias_name="docs"))])
    client.close()
    with pytest.raises(JobRefused, match="this space already"):
        bench.run(TARGET, alias="docs", restart=restart)
    assert len(bench.records(TARGET)) == COUNT - DEAD


def test_restart_does_not_delete_a_source_that_an_unfinished_job_made(
    bench, payloads, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.fill(payloads)
    with monkeypatch.context() as patch:
        patch.setattr(Store, "switch", killed)
        with pytest.raises(Killed):
            bench.run()
    with pytest.raises(JobRefused, match="what would be read"):
        bench.run(TARGET, to="next", alias="docs", restart=True)
    assert len(bench.records(TARGET)) == COUNT - DEAD


def test_an_empty_collection_is_refused(bench) -> None:
    bench.fill({})
    with pytest.raises(JobRefused, match="is empty"):
        bench.run()


def test_a_collection_that_does_not_say_what_it_holds_is_read_by_request_alone(bench, payloads) -> None:
    bench.fill(payloads, metadata={})
    with pytest.raises(UnmarkedCollection, match="--adopt"):
        bench.run()
    assert bench.run(adopt=True).points == COUNT - DEAD


def test_metadata_that_contradict_the_vectors_are_refused(bench, payloads) -> None:
    wrong = {"zooserve": {**OLD.metadata["zooserve"], "dimensions": 4}}
    bench.fill(payloads, metadata=wrong)
    with pytest.raises(SpaceMismatch, match=r"4 dimensions.*have 3"):
        bench.run()


def test_a_model_that_makes_no_vectors_is_refused_with_those_that_do(bench, payloads) -> None:
    bench.fill(payloads)
    with pytest.raises(BadInput, match=r"rerank is for rerank.*'embed'"):
        bench.run(to="rerank")


def test_when_most_rows_are_dead_the_alias_stays(bench, payloads) -> None:
    bench.fill({point: {**each, "text": each["text"] if each["n"] < 5 else ""} for point, each in payloads.items()})
    with pytest.raises(JobStopped, match="of 40 rows could not be embedded"):
        bench.run()
    assert bench.aliases() == {"docs": "docs--old"}
    assert bench.run(accept_dead=True).outcome == "switched"


def test_files_become_a_collection_and_their_bad_rows_letters(bench, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    rows = [{"id": n, "text": f"row {n}", "n": n} for n in range(12)]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in [*rows, {"id": 3, "text": "again"}, {"id": 50}]))
    done = bench.run("kb", files=(path,))
    assert (done.points, done.dead, done.previous) == (12, 2, "")
    assert {record.payload["text"] for record in bench.records("kb").values()} == {row["text"] for row in rows}
    assert bench.run("kb", files=(path,)).outcome == "already there"
    path.write_text(path.read_text() + json.dumps({"id": 99, "text": "more"}))
    with pytest.raises(JobRefused, match="not what it was made of"):
        bench.run("kb", files=(path,))


def test_points_with_and_without_a_second_vector_keep_what_they_have(bench) -> None:
    client = bench.client()
    params = models.VectorParams(size=3, distance=models.Distance.DOT)
    client.create_collection("docs--old", vectors_config={"": params, "picture": params}, metadata=OLD.metadata)
    both = models.PointStruct(id=1, vector={"": [1, 2, 3], "picture": [0.5, 2, 3]}, payload={"text": "both"})
    one = models.PointStruct(id=2, vector={"": [1, 2, 3]}, payload={"text": "one"})
    client.upsert("docs--old", [both, one])
    alias = models.CreateAlias(collection_name="docs--old", alias_name="docs")
    client.update_collection_aliases([models.CreateAliasOperation(create_alias=alias)])
    before = client.retrieve("docs--old", [1], with_vectors=["picture"])[0].vector["picture"]
    client.close()
    assert bench.run().dead == 0
    records = bench.records()
    assert records[1].vector["picture"] == before
    assert records.keys() == {1, 2}
    assert "picture" not in records[2].vector
