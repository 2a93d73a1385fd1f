"""What a server's log says of warm-ups that failed."""

from pathlib import Path

from zooserve.triton.warmups import WarmupLog

ONE = 'E1130 06:10:13.888775 11562 pb_stub.cc] "embed_encoder version 2: its warm-up failed: [ONNX] no"\n'
OTHER = "I1130 06:10:14 11562 model.cc:1] language_tokenizer version 1: its warm-up failed: not UTF-8\n"
LOADED = "I1130 06:10:14 11562 model_lifecycle.cc:849] \"successfully loaded 'embed'\"\n"


def test_each_failure_is_told_once(tmp_path: Path) -> None:
    log = tmp_path / "zoo.log"
    log.write_text(LOADED + ONE)
    warmups = WarmupLog(log)
    assert warmups.failures() == [("embed_encoder", "2")]
    assert warmups.failures() == []
    with log.open("a") as more:
        more.write(OTHER)
    assert warmups.failures() == [("language_tokenizer", "1")]


def test_bytes_that_are_no_text_do_no_harm(tmp_path: Path) -> None:
    log = tmp_path / "zoo.log"
    log.write_bytes(b"\xff\xfe version 1: its warm-up failed: \xff\n" + ONE.encode())
    assert WarmupLog(log).failures() == [("embed_encoder", "2")]


def test_half_a_line_waits_for_its_end(tmp_path: Path) -> None:
    log = tmp_path / "zoo.log"
    log.write_text(ONE[:-1])
    warmups = WarmupLog(log)
    assert warmups.failures() == []
    log.write_text(ONE)
    assert warmups.failures() == [("embed_encoder", "2")]


def test_a_log_that_begins_anew_is_read_from_its_beginning(tmp_path: Path) -> None:
    log = tmp_path / "zoo.log"
    log.write_text(LOADED * 5 + ONE)
    warmups = WarmupLog(log)
    warmups.failures()
    log.write_text(OTHER)
    assert warmups.failures() == [("language_tokenizer", "1")]


def test_a_new_log_in_the_place_of_one_that_was_put_aside_is_read_from_its_beginning_however_long(
    tmp_path: Path,
) -> None:
    log = tmp_path / "zoo.log"
    log.write_text(ONE)
    warmups = WarmupLog(log)
    warmups.failures()
    log.rename(tmp_path / "zoo.log.1")
    log.write_text(OTHER + LOADED * 5)
    assert warmups.failures() == [("language_tokenizer", "1")]


def test_without_a_log_nothing_failed(tmp_path: Path) -> None:
    assert WarmupLog(tmp_path / "zoo.log").failures() == []
