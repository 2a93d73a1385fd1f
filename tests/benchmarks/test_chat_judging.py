"""A chat run judged: first token and whole answer each by itself, now and from a recorded file."""

import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
RECORDED = BENCHMARKS / "recorded" / "chat_slo.json"


@pytest.fixture(scope="module")
def judging() -> Any:
    """benchmarks/ is a folder of scripts, not a package."""
    spec = spec_from_file_location("chat_judging", BENCHMARKS / "chat_judging.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def judge(recorded: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """A recorded run, judged as a user would."""
    command = [sys.executable, str(BENCHMARKS / "chat_slo.py"), "--judge", str(recorded), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def chats_of(judging: Any, *times: tuple[float | None, float | None]) -> list[Any]:
    return [judging.Timing(first, whole) for first, whole in times]


def test_a_run_whose_first_tokens_are_in_time_fails_by_its_whole_answers(judging) -> None:
    first, whole = judging.judged(chats_of(judging, *[(700.0, 6000.0)] * 24), judging.Targets())
    assert (first.kept, whole.kept) == (True, False)


def test_a_run_whose_answers_are_in_time_fails_by_its_first_tokens(judging) -> None:
    first, whole = judging.judged(chats_of(judging, *[(901.0, 2000.0)] * 24), judging.Targets())
    assert (first.kept, whole.kept) == (False, True)


def test_the_target_itself_is_kept(judging) -> None:
    findings = judging.judged(chats_of(judging, (900.0, 5000.0)), judging.Targets())
    assert all(finding.kept for finding in findings)


@pytest.mark.parametrize(("late", "kept"), [(1, True), (2, False)])
def test_one_of_twenty_may_be_late_and_two_may_not(judging, late, kept) -> None:
    chats = chats_of(judging, *[(100.0, 1000.0)] * (20 - late), *[(9000.0, 9000.0)] * late)
    assert [finding.kept for finding in judging.judged(chats, judging.Targets())] == [kept, kept]


def test_a_percentile_is_a_value_that_was_measured(judging) -> None:
    assert judging.percentile_by_rank([4.0, 1.0, 3.0, 2.0], 0.5) == 2.0
    assert judging.percentile_by_rank(list(range(1, 101)), 0.95) == 95
    assert judging.percentile_by_rank([7.0], 0.95) == 7.0


def test_chats_that_failed_took_for_ever(judging) -> None:
    chats = chats_of(judging, *[(100.0, 1000.0)] * 8, (None, None), (100.0, None))
    first, whole = judging.judged(chats, judging.Targets())
    assert not first.kept
    assert not whole.kept


def test_a_run_reads_back_as_it_was_written(judging) -> None:
    run = judging.Run({"model": "chat"}, tuple(chats_of(judging, (1.5, 2.5), (None, None))))
    assert judging.Run.from_json(run.to_json()) == run


@pytest.mark.parametrize(
    "text", ["{}", "[]", "nonsense", '{"about": {}, "chats": []}', '{"about": {}, "chats": [{"x": 1}]}']
)
def test_what_is_no_recorded_run_is_refused(judging, text) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - what its callers catch
        judging.Run.from_json(text)


def test_a_recorded_run_of_700_ms_and_6_s_fails_by_its_whole_answers_alone(judging, tmp_path) -> None:
    recorded = tmp_path / "run.json"
    recorded.write_text(judging.Run({}, tuple(chats_of(judging, *[(700.0, 6000.0)] * 24))).to_json())
    done = judge(recorded)
    assert done.returncode == 1, done.stderr
    assert [line.endswith("kept |") for line in done.stdout.splitlines()[-2:]] == [True, False]


def test_the_committed_run_fails_with_700_ms_and_6_s() -> None:
    done = judge(RECORDED, "--first-ms", "700", "--whole-s", "6")
    assert done.returncode == 1, done.stderr
    assert done.stdout.count("**MISSED**") == 2


def test_the_committed_run_passes_generous_targets() -> None:
    done = judge(RECORDED, "--first-ms", "60000", "--whole-s", "600")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_file_that_is_not_there_is_no_verdict(tmp_path) -> None:
    assert judge(tmp_path / "none.json").returncode == 2
