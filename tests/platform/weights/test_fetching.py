import errno
import os
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from zooserve.errors import DiskFull, DownloadFailed, MissingPart, SetupError, WrongHash
from zooserve.weights.store import Store


def test_a_fetch_places_every_file_and_leaves_nothing_else(pip_world, placed) -> None:
    fetched = pip_world.fetching().run()
    assert pip_world.everything() == placed
    assert set(fetched.files) == set(fetched.written) == set(placed)
    assert pip_world.leftovers() == []


def test_places_of_one_file_share_its_bytes_on_disk(world) -> None:
    world.fetching().run()
    one, other = (world.repository / f"zoo/{name}/1/model.onnx" for name in ("joined", "joined_bulk"))
    assert one.stat().st_ino == other.stat().st_ino
    assert one.stat().st_mode & 0o222 == 0, "a write through one place would reach all of them"


def test_places_are_copies_where_the_file_system_has_no_links(world, placed, monkeypatch) -> None:
    def no_link(*_: object, **__: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", no_link)
    world.fetching().run()
    assert world.everything() == placed
    assert world.leftovers() == []


def test_a_second_fetch_does_nothing(world, monkeypatch) -> None:
    first = world.fetching().run()
    world.steps.clear()
    monkeypatch.setattr(Store, "place", lambda *_: pytest.fail("placed again"))
    second = world.fetching().run()
    assert (second.files, second.written, world.steps) == (first.files, (), [])


def test_a_second_fetch_needs_no_cache(world, placed) -> None:
    world.fetching().run()
    for path in sorted(world.cache.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    assert world.fetching().run().written == ()
    assert world.everything() == placed


def test_nothing_is_fetched_for_folders_that_are_not_wanted(world, placed) -> None:
    fetched = world.fetching(unwanted=["zoo/joined", "zoo/joined_bulk"]).run()
    assert set(fetched.files) == {"zoo/raw/1/graph.bin", "zoo/raw_bulk/1/graph.bin"}
    assert world.everything() == {place: placed[place] for place in fetched.files}
    assert not any("smallwords" in step for step in world.steps)


def test_what_is_no_longer_wanted_stays_and_is_known_when_it_is_wanted_again(world, placed, monkeypatch) -> None:
    world.fetching().run()
    (world.repository / "zoo/raw/1/graph.bin").unlink()
    assert world.fetching(unwanted=["zoo/joined"]).run().written == ("zoo/raw/1/graph.bin",)
    monkeypatch.setattr(Store, "place", lambda *_: pytest.fail("placed again"))
    assert world.fetching().run().written == ()
    assert world.everything() == placed


def test_a_removed_file_comes_back_without_a_download_or_a_build(world, placed) -> None:
    world.fetching().run()
    (world.repository / "zoo/joined/1/model.onnx").unlink()
    world.steps.clear()
    assert world.fetching().run().written == ("zoo/joined/1/model.onnx",)
    assert (world.everything(), world.steps) == (placed, [])


def test_a_file_that_was_replaced_is_put_right(world, placed) -> None:
    world.fetching().run()
    target = world.repository / "zoo/raw/1/graph.bin"
    target.unlink()
    target.write_bytes(b"something else")
    assert world.fetching().run().written == ("zoo/raw/1/graph.bin",)
    assert world.everything() == placed


def rot(path: Path) -> None:
    """Change a byte and keep length and time stamp, as a failing disk does."""
    before = path.stat()
    path.chmod(0o644)
    content = bytearray(path.read_bytes())
    content[0] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_verify_finds_what_time_stamps_do_not_show(world, placed) -> None:
    world.fetching().run()
    rot(world.repository / "zoo/joined/1/model.onnx")  # also the store's: they are one file
    assert world.fetching().run().written == ()
    assert set(world.fetching().run(verify=True).written) == {"zoo/joined/1/model.onnx", "zoo/joined_bulk/1/model.onnx"}
    assert world.everything() == placed


def test_a_copied_repository_is_hashed_once_and_then_known_by_its_new_time_stamps(world, monkeypatch) -> None:
    world.fetching().run()
    for path in world.repository.rglob("*.onnx"):
        os.utime(path, ns=(1, 1))
    world.steps.clear()
    assert (world.fetching().run().written, world.steps) == ((), [])
    monkeypatch.setattr("zooserve.weights.placed.hash_file", lambda _: pytest.fail("hashed again"))
    assert world.fetching().run().written == ()


def test_a_change_of_the_build_code_builds_again_and_downloads_nothing(world) -> None:
    world.fetching("1").run()
    world.steps.clear()
    assert set(world.fetching("2").run().written) == {"zoo/joined/1/model.onnx", "zoo/joined_bulk/1/model.onnx"}
    assert world.steps == ["build joined"]


def test_a_build_that_the_code_does_not_know_is_refused_before_anything_is_fetched(world) -> None:
    world.document["builds"].append({"name": "unheard_of", "place": ["zoo/x/1/model.onnx"]})
    with pytest.raises(MissingPart, match="names a build 'unheard_of', this version knows joined"):
        world.fetching().run()
    assert world.steps == []


def test_a_wheel_with_another_hash_is_refused_and_not_kept(pip_world) -> None:
    expected, found = "0" * 64, pip_world.document["packages"][0]["sha256"]
    pip_world.document["packages"][0]["sha256"] = expected
    with pytest.raises(WrongHash) as caught:
        pip_world.fetching().run()
    for part in ("smallgraph-1.0-py3-none-any.whl", expected, found, "pip config list"):
        assert part in str(caught.value)
    assert (pip_world.everything(), list(pip_world.cache.glob("downloads/*")), pip_world.leftovers()) == ({}, [], [])


def test_a_file_with_another_hash_inside_a_right_wheel_is_refused(world) -> None:
    world.document["packages"][0]["files"][0]["sha256"] = "0" * 64
    with pytest.raises(WrongHash, match=r"data/graph.bin in smallgraph-1.0-py3-none-any.whl has SHA-256"):
        world.fetching().run()
    assert (world.everything(), list(world.cache.glob("store/*")), world.leftovers()) == ({}, [], [])


def test_a_file_that_the_wheel_does_not_hold_is_named(world) -> None:
    world.document["packages"][0]["files"][0]["path"] = "data/other.bin"
    with pytest.raises(MissingPart, match=r"smallgraph-1.0-py3-none-any.whl holds no data/other.bin"):
        world.fetching().run()


def test_a_wheel_cut_off_on_the_way_is_a_failed_download(pip_world, placed) -> None:
    whole = pip_world.wheel("smallgraph").read_bytes()
    pip_world.wheel("smallgraph").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DownloadFailed, match=r"smallgraph==1\.0"):
        pip_world.fetching().run()
    assert (pip_world.everything(), pip_world.leftovers()) == ({}, [])
    pip_world.wheel("smallgraph").write_bytes(whole)
    pip_world.fetching().run()
    assert pip_world.everything() == placed


def test_a_wheel_shorter_than_pinned_says_how_much_arrived(world) -> None:
    world.document["packages"][0]["bytes"] += 1000
    size = world.wheel("smallgraph").stat().st_size
    with pytest.raises(DownloadFailed, match=rf"arrived incomplete: {size:,} of {size + 1000:,} bytes"):
        world.fetching().run()


def test_a_failed_download_keeps_the_wheels_that_arrived(pip_world, placed) -> None:
    absent = pip_world.wheel("smallwords").rename(pip_world.root / "elsewhere.whl")
    with pytest.raises(DownloadFailed, match=r"smallwords==1\.0"):
        pip_world.fetching().run()
    assert [path.name for path in pip_world.cache.glob("downloads/*")] == ["smallgraph-1.0-py3-none-any.whl"]
    absent.rename(pip_world.wheel("smallwords"))
    pip_world.wheel("smallgraph").unlink()
    pip_world.steps.clear()
    pip_world.fetching().run()
    assert pip_world.everything() == placed
    assert "fetch smallgraph==1.0" not in pip_world.steps


def full_disk(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_names_folder_and_bytes_and_the_next_fetch_continues(world, placed, monkeypatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full_disk)
        with pytest.raises(DiskFull) as caught:
            world.fetching().run()
    assert str(world.cache / "store") in str(caught.value)
    assert "no room for 6,000 bytes" in str(caught.value)
    assert (world.everything(), list(world.cache.glob("store/*")), world.leftovers()) == ({}, [], [])
    world.fetching().run()
    assert world.everything() == placed


def test_a_disk_that_fills_up_while_placing_leaves_no_half_file(world, placed, monkeypatch) -> None:
    def write_half(source: Path, target: Path) -> None:
        target.write_bytes(source.read_bytes()[:10])
        full_disk()

    with monkeypatch.context() as patched:
        patched.setattr("zooserve.weights.store._link_or_copy", write_half)
        with pytest.raises(DiskFull, match="raw"):
            world.fetching().run()
    assert (world.everything(), world.leftovers()) == ({}, [])
    world.fetching().run()
    assert world.everything() == placed


def test_a_disk_that_fills_up_while_pip_writes_is_named_as_such(world, monkeypatch) -> None:
    script = "import sys; sys.exit('ERROR: Could not install packages: [Errno 28] No space left on device')"
    monkeypatch.setattr(world, "copier", lambda _: [sys.executable, "-c", script])
    with pytest.raises(DiskFull, match="downloads: no room for"):
        world.fetching().run()
    assert world.leftovers() == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written_is_named(world) -> None:
    world.cache.mkdir()
    world.cache.chmod(0o555)
    with pytest.raises(SetupError, match="cannot be written: Permission denied"):
        world.fetching().run()


def test_a_file_where_the_cache_should_be_is_named(world) -> None:
    world.cache.write_text("not a folder")
    with pytest.raises(SetupError, match="cache"):
        world.fetching().run()


def test_an_interrupted_fetch_is_continued(world, placed, monkeypatch) -> None:
    whole_build = world.joined

    def interrupted(_: Mapping[str, Path]) -> bytes:
        raise KeyboardInterrupt

    monkeypatch.setattr(world, "joined", interrupted)
    with pytest.raises(KeyboardInterrupt):
        world.fetching().run()
    assert set(world.everything()) == {"zoo/raw/1/graph.bin", "zoo/raw_bulk/1/graph.bin"}
    assert world.leftovers() == []
    monkeypatch.setattr(world, "joined", whole_build)
    world.steps.clear()
    assert set(world.fetching().run().written) == {"zoo/joined/1/model.onnx", "zoo/joined_bulk/1/model.onnx"}
    assert (world.everything(), world.steps) == (placed, ["build joined"])


def test_what_a_killed_fetch_left_lying_is_cleared_away(world, placed) -> None:
    for leftover in ("cache/downloads/.fetching-x/pip-unpack/part.whl", "cache/store/.abc.tmp"):
        (world.root / leftover).parent.mkdir(parents=True, exist_ok=True)
        (world.root / leftover).write_bytes(b"half")
    half = world.repository / "zoo/raw/1/.placing-x/graph.bin"
    half.parent.mkdir(parents=True)
    half.write_bytes(b"half")
    world.fetching().run()
    assert (world.everything(), world.leftovers()) == (placed, [])


def test_a_record_that_is_damaged_is_written_anew(world, placed) -> None:
    world.fetching().run()
    (world.repository / ".weights.json").write_text('{"zoo/raw/1/graph.bin": 7}')
    world.fetching().run()
    assert world.everything() == placed
    assert world.fetching().run().written == ()


def test_fetches_at_the_same_time_do_the_work_once(world, placed) -> None:
    fetchings = [world.fetching() for _ in range(4)]
    results, start = [], threading.Barrier(4)

    def fetch(index: int) -> None:
        start.wait()
        results.append(fetchings[index].run())

    threads = [threading.Thread(target=fetch, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert world.everything() == placed
    assert world.builds == ["joined"]
    assert sorted(len(result.written) for result in results) == [0, 0, 0, 4]
