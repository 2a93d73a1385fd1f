"""A container's health check, over a stand-in for the servers that it asks: what counts as well, and what is said."""

import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from zooserve import health
from zooserve.health import Failures, Sick, answers_of, ask_leaf, ask_router, ask_zoo, end_server, within
from zooserve.triton.samples import SAMPLES

ROOT = Path(__file__).parents[2]
TEXT = {"max_batch_size": 64, "input": [{"name": "text", "data_type": "TYPE_STRING", "dims": [1]}]}
IMAGE = {"max_batch_size": 1, "input": [{"name": "image", "data_type": "TYPE_STRING", "dims": [1]}]}

Asked = list[tuple[str, bytes]]
Answers = dict[str, tuple[int, bytes]]


@contextmanager
def served(answers: Answers) -> Iterator[tuple[str, Asked]]:
    """A server with these answers by path; and what it was asked."""
    asked: Asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer(b"")

        def do_POST(self) -> None:
            self.answer(self.rfile.read(int(self.headers["content-length"])))

        def answer(self, body: bytes) -> None:
            asked.append((self.path, body))
            status, text = answers.get(self.path, (404, b'{"error":"unknown"}'))
            self.send_response(status)
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def zoo(model: str, config: object, infer: tuple[int, bytes]) -> Answers:
    return {
        f"/v2/models/{model}/config": (200, json.dumps(config).encode()),
        f"/v2/models/{model}/infer": infer,
    }


WELL = (200, b'{"outputs":[{"name":"sentence_embedding","data":[0.5]}]}')


def test_a_zoo_that_infers_is_well_and_gets_two_rows_of_new_text() -> None:
    with served(zoo("embed", TEXT, WELL)) as (url, asked):
        ask_zoo(url, ["embed"])
        ask_zoo(url, ["embed"])
    bodies = [body for path, body in asked if path.endswith("/infer")]
    assert [body.count(b"are you there") for body in bodies] == [2, 2]
    assert bodies[0] != bodies[1]
    header = json.loads(bodies[0][: bodies[0].index(b"]}") + 2])
    assert header["inputs"][0]["shape"] == [2, 1]
    assert header["inputs"][0]["parameters"]["binary_data_size"] == len(bodies[0]) - len(json.dumps(header))


def test_a_model_of_images_gets_one() -> None:
    with served(zoo("nsfw", IMAGE, WELL)) as (url, asked):
        ask_zoo(url, ["nsfw"])
    assert asked[-1][1].endswith(len(SAMPLES["image"]).to_bytes(4, "little") + SAMPLES["image"])


@pytest.mark.parametrize(
    ("infer", "told"),
    [
        ((500, b'{"error":"Stub process \'embed_0\'\n is not healthy"}'), "embed: 500: {.*Stub process.*not healthy"),
        ((200, b'{"outputs":[]}'), "embed: its answer has no output"),
        ((200, b"hello"), "embed: it answers what no Triton does"),
        ((200, b"[]"), "embed: it answers what no Triton does"),
    ],
)
def test_a_zoo_that_does_not_infer_is_sick_and_the_model_is_named(infer: tuple[int, bytes], told: str) -> None:
    with served(zoo("embed", TEXT, infer)) as (url, _), pytest.raises(Sick, match=told) as fault:
        ask_zoo(url, ["embed"])
    assert "\n" not in str(fault.value)


def test_a_model_that_is_not_loaded_is_told() -> None:
    with served({}) as (url, _), pytest.raises(Sick, match="rerank: 404"):
        ask_zoo(url, ["rerank"])


@contextmanager
def saying(answer: bytes) -> Iterator[str]:
    """Something that says this to everybody, whatever it is asked."""

    def serve() -> None:
        with suppress(OSError):  # it is closed
            while True:
                asking, _ = listening.accept()
                with asking:
                    asking.recv(65536)
                    asking.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "no answer at .*SSH-2.0"),
        (b"", "no answer at .*without response"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{}", "no answer at .*IncompleteRead"),
        (b"HTTP/1.1 503 Busy\r\ncontent-length: 100\r\n\r\n{}", "503: {}"),
        (b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 200, "no answer at .*headers"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 100_000, "it answers what no Triton does"),
        (b"HTTP/1.1 200 OK\r\n\r\n[]", "it answers what no Triton does"),
        (b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:9/\r\ncontent-length: 0\r\n\r\n", "302"),
    ],
)
def test_what_is_no_answer_of_a_triton_is_told_in_a_line_and_counts(
    capsys: pytest.CaptureFixture[str], ended: list[bool], answer: bytes, told: str
) -> None:
    with served(zoo("embed", TEXT, WELL)) as (url, _):
        assert health.main([*CHECK, url]) == 0
    with saying(answer) as url:
        assert [health.main([*CHECK, url]) for _ in range(2)] == [1, 1]
    assert ended == [True]
    (_, line, _) = capsys.readouterr().out.splitlines()
    assert re.match(f"zoo: embed: {told}", line)
    assert len(line) < 500


def test_an_answer_without_an_end_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_LARGEST", 100)
    with saying(b"HTTP/1.1 200 OK\r\n\r\n" + b" " * 101) as url, pytest.raises(Sick, match="without an end"):
        ask_zoo(url, ["embed"])


def test_nobody_there_is_told() -> None:
    with served({}) as (url, _):
        pass
    with pytest.raises(Sick, match=r"embed: no answer at http://127.0.0.1:\d+/.*refused"):
        ask_zoo(url, ["embed"])


@pytest.mark.parametrize(
    ("answer", "well"),
    [
        ((200, b'data: {"model_name":"tensorrt_llm","text_output":""}\n\n'), True),
        ((200, b'data: {"error":"Stub process is not healthy"}\n\n'), False),
        ((200, b""), False),
        ((500, b"gone"), False),
    ],
)
def test_a_leaf_is_well_that_writes_a_token(answer: tuple[int, bytes], well: bool) -> None:
    with served({"/v2/models/tensorrt_llm/generate_stream": answer}) as (url, asked):
        if well:
            ask_leaf(url, "tensorrt_llm")
            assert json.loads(asked[0][1])["sampling_param_max_tokens"] == 1
        else:
            with pytest.raises(Sick, match=r"^tensorrt_llm: "):
                ask_leaf(url, "tensorrt_llm")


@pytest.mark.parametrize(
    ("ready", "embeddings", "fault"),
    [
        (200, 200, ""),
        (200, 429, ""),  # full: it works as hard as it can
        (200, 503, "embed: 503"),
        (503, 200, "^503: "),
    ],
)
def test_a_router_is_well_that_is_ready_and_embeds(ready: int, embeddings: int, fault: str) -> None:
    with served({"/health/ready": (ready, b"{}"), "/v1/embeddings": (embeddings, b"{}")}) as (url, _):
        if not fault:
            ask_router(url, ["embed"])
        else:
            with pytest.raises(Sick, match=fault):
                ask_router(url, ["embed"])


def test_all_of_it_has_one_time_also_with_a_server_that_drips() -> None:
    stopped = threading.Event()
    before = signal.getsignal(signal.SIGALRM)

    class Drip(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            while not stopped.wait(0.02):  # each read is answered in time
                self.wfile.write(b" ")
                self.wfile.flush()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Drip) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            with pytest.raises(Sick, match=r"no answer within 0\.3 s"), within(0.3):
                ask_zoo(f"http://127.0.0.1:{server.server_port}", ["embed"])
        finally:
            stopped.set()
            server.shutdown()
            thread.join()
    assert signal.getsignal(signal.SIGALRM) == before


def test_the_command_says_it_in_a_line_and_by_its_exit_code(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with served(zoo("embed", TEXT, WELL)) as (url, _):
        assert health.main(["zoo", "embed", "--url", url]) == 0
        assert capsys.readouterr().out == "zoo: works\n"
        assert health.main(["zoo", "embed,rerank", "--url", url]) == 1
    assert capsys.readouterr().out.startswith("zoo: rerank: 404: ")


def test_it_runs_without_any_package() -> None:
    """As in NVIDIA's images, which have our wheel alone: -S leaves the installed packages out, -I everything else."""
    program = f"import sys; sys.path.insert(0, {str(ROOT / 'platform')!r}); from zooserve import health; health.main()"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, "leaf", "--url", "http://127.0.0.1:9"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout.startswith("leaf: tensorrt_llm: no answer at")


def test_a_proxy_of_the_environment_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    with served(zoo("embed", TEXT, WELL)) as (url, _):
        program = "import sys; from zooserve import health; sys.exit(health.main())"
        done = subprocess.run(
            [sys.executable, "-c", program, "zoo", "embed", "--url", url],
            env={**os.environ, "http_proxy": "http://127.0.0.1:9", "PYTHONPATH": str(ROOT / "platform")},
            check=False,
        )
    assert done.returncode == 0


def test_failures_are_counted_from_one_answer_on(tmp_path: Path) -> None:
    """A server that loads for half an hour fails every check, and is left alone."""
    failures = Failures(tmp_path / "failures", life="7")
    assert [failures.failed("embed", 0) for _ in range(3)] == [0, 0, 0]
    failures.answered()
    assert [failures.failed("embed", 5) for _ in range(3)] == [1, 2, 3]
    failures.answered()
    assert failures.failed("embed", 5) == 1


def test_failures_of_a_model_that_answers_others_do_not_add_up(tmp_path: Path) -> None:
    """It is full: a check waits in its queue, or is refused."""
    failures = Failures(tmp_path / "failures", life="7")
    failures.answered()
    assert [failures.failed("embed", answers) for answers in (5, 9, 9, None, 9, 10, 10)] == [1, 0, 1, 2, 3, 0, 1]
    # Loaded again, a model counts from zero.
    assert [failures.failed("embed", answers) for answers in (0, 0, 1)] == [2, 3, 0]


def test_models_that_fail_in_turns_are_no_evidence_for_each_other(tmp_path: Path) -> None:
    failures = Failures(tmp_path / "failures", life="7")
    failures.answered()
    fails = [("embed", 5), ("rerank", 9), ("embed", 5), ("rerank", 9), ("rerank", 10)]
    assert [failures.failed(*each) for each in fails] == [1, 2, 3, 4, 0]


def test_where_nobody_says_how_often_it_answered_every_failure_counts(tmp_path: Path) -> None:
    failures = Failures(tmp_path / "failures", life="7")
    failures.answered()
    assert [failures.failed("embed", None) for _ in range(3)] == [1, 2, 3]


def test_failures_of_an_earlier_life_do_not_count(tmp_path: Path) -> None:
    """A container that is started again may find its file again."""
    earlier = Failures(tmp_path / "failures", life="7")
    earlier.answered()
    earlier.failed("embed", None)
    assert Failures(tmp_path / "failures", life="8").failed("embed", None) == 0


NO_COUNT = '{"life": "7", "failures": "many", "answers": {}}'


@pytest.mark.parametrize("kept", ["", "7 1", "[]", '{"life": "7"}', "\x00", "\xff", NO_COUNT])
def test_a_file_that_is_damaged_counts_nothing(tmp_path: Path, kept: str) -> None:
    (tmp_path / "failures").write_text(kept, encoding="latin-1")
    assert Failures(tmp_path / "failures", life="7").failed("embed", None) == 0


def test_a_full_disk_makes_nobody_sick(tmp_path: Path) -> None:
    failures = Failures(tmp_path / "missing" / "failures", life="7")
    failures.answered()
    assert failures.failed("embed", None) == 0


def test_on_a_full_disk_the_count_goes_on_in_the_room_that_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = Failures(tmp_path / "failures", life="7")
    failures.answered()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / "failures").stat().st_size, before[1]))
    try:
        assert [failures.failed("embed", answers) for answers in (9, 9, 123_456_789)] == [1, 2, 0]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_nobody_elses_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "theirs").write_text("theirs")
    (tmp_path / "failures").symlink_to(tmp_path / "theirs")
    Failures(tmp_path / "failures", life="7").answered()
    assert (tmp_path / "theirs").read_text() == "theirs"


def statistics(*counts: int) -> tuple[int, bytes]:
    """As Triton has them, a version each."""
    stats = [{"name": "embed", "inference_stats": {"success": {"count": count, "ns": 1}}} for count in counts]
    return 200, json.dumps({"model_stats": stats}).encode()


@pytest.mark.parametrize(
    ("answer", "count"),
    [(statistics(3, 4), 7), ((404, b"{}"), None), ((200, b"[]"), None), ((200, b"hello"), None)],
)
def test_how_often_a_model_answered_is_the_sum_of_its_versions(answer: tuple[int, bytes], count: int | None) -> None:
    with served({"/v2/models/embed/stats": answer}) as (url, _):
        assert answers_of(url, "embed") == count


PAGE = b"""# TYPE nv_inference_first_response_histogram_ms histogram
nv_inference_first_response_histogram_ms_count{model="other",version="1"} 40
nv_inference_first_response_histogram_ms_count{model="tensorrt_llm",version="1"} 3
nv_inference_first_response_histogram_ms_count{model="tensorrt_llm",version="2"} 2
nv_inference_request_success{model="tensorrt_llm",version="1"} 9
"""


@pytest.mark.parametrize(("page", "count"), [((200, PAGE), 5), ((200, b"nv_other 1"), 9), ((404, b""), None)])
def test_a_leaf_has_answered_what_it_has_begun_to_answer_where_triton_tells(
    page: tuple[int, bytes], count: int | None
) -> None:
    """It counts a request as a success once it has taken it, also for an engine that hangs."""
    with served({"/metrics": page, "/v2/models/tensorrt_llm/stats": statistics(9)}) as (url, _):
        assert answers_of(url, "tensorrt_llm", f"{url}/metrics") == count


def test_a_leaf_that_takes_requests_and_answers_none_is_ended(ended: list[bool]) -> None:
    token = (200, b'data: {"model_name":"tensorrt_llm","text_output":""}\n\n')
    answers = {"/v2/models/tensorrt_llm/generate_stream": token, "/metrics": (200, PAGE)}
    with served(answers) as (url, _):
        check = ["--end-after=2", "leaf", "--url", url, "--metrics", f"{url}/metrics"]
        assert health.main(check) == 0
        answers["/v2/models/tensorrt_llm/generate_stream"] = (503, b"late")
        for taken in (10, 11):
            answers["/v2/models/tensorrt_llm/stats"] = statistics(taken)
            assert health.main(check) == 1
    assert ended == [True]


@pytest.fixture
def below_an_init(tmp_path: Path) -> Iterator[Callable[[str], tuple[Path, "subprocess.Popen[bytes]"]]]:
    """Makes a /proc in which a real process is the child of a first one of this name."""
    servers: list[subprocess.Popen[bytes]] = []

    def make(init: str) -> tuple[Path, "subprocess.Popen[bytes]"]:
        server = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
        servers.append(server)
        for pid, name, parent in ((1, init, 0), (server.pid, "a (strange) name", 1), (os.getpid(), "python3", 1)):
            (tmp_path / str(pid)).mkdir()
            (tmp_path / str(pid) / "comm").write_text(f"{name}\n")
            (tmp_path / str(pid) / "stat").write_text(f"{pid} ({name}) S {parent} 0 0")
        (tmp_path / "self").mkdir()
        return tmp_path, server

    yield make
    for server in servers:
        server.kill()
        server.wait()


@pytest.mark.parametrize("init", ["docker-init", "tini"])
def test_a_server_is_ended_below_a_containers_init(
    below_an_init: Callable[[str], tuple[Path, "subprocess.Popen[bytes]"]], init: str
) -> None:
    processes, server = below_an_init(init)
    assert end_server(processes) == "the server was ended"
    assert server.wait(10) == -signal.SIGKILL


def test_nothing_is_ended_anywhere_else(
    below_an_init: Callable[[str], tuple[Path, "subprocess.Popen[bytes]"]],
) -> None:
    processes, server = below_an_init("systemd")
    assert "not ended: the first process is systemd" in end_server(processes)
    assert server.poll() is None


@pytest.fixture
def ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Has an entry for each time that the server was ended; the checks of one test know of each other alone."""
    times: list[bool] = []
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(health, "end_server", lambda: str(times.append(True) or "the server was ended"))
    return times


CHECK = ["--end-after=2", "zoo", "embed", "--url"]


def test_the_last_failure_of_many_ends_the_server(capsys: pytest.CaptureFixture[str], ended: list[bool]) -> None:
    with served(zoo("embed", TEXT, WELL)) as (url, _):
        health.main([*CHECK, url])
    assert health.main([*CHECK, url]) == 1
    assert not ended
    assert health.main([*CHECK, url]) == 1
    assert ended == [True]
    assert capsys.readouterr().out.endswith("; 2 failures in a row: the server was ended\n")


FULL = (503, b'{"error":"Exceeds maximum queue size"}')


@pytest.mark.parametrize(("answered", "is_ended"), [(8, False), (7, True)])
def test_a_server_that_is_full_is_not_ended_while_it_answers_others(
    ended: list[bool], answered: int, is_ended: bool
) -> None:
    answers = zoo("embed", TEXT, WELL)
    with served(answers) as (url, _):
        assert health.main([*CHECK, url]) == 0
        answers["/v2/models/embed/infer"] = FULL
        for count in (7, answered):
            answers["/v2/models/embed/stats"] = statistics(count)
            assert health.main([*CHECK, url]) == 1
    assert bool(ended) is is_ended
