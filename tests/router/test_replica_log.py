"""Where a replica's own words go."""

import logging
import os
import sys
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry

from zooserve.settings import AccessLogSettings, Settings
from zooserve_observability.access_log import AccessLog
from zooserve_observability.log_metrics import LogMetrics
from zooserve_router.serve import log_beside, printing_beside


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    root = logging.getLogger()
    before = list(root.handlers)
    yield root
    for handler in set(root.handlers) - set(before):
        root.removeHandler(handler)
        if isinstance(handler, logging.StreamHandler) and handler.stream is not sys.__stderr__:
            handler.stream.close()


def test_what_a_replica_warns_of_and_its_tracebacks_stand_in_the_routers_log(
    root: logging.Logger, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr", None)  # Serve's own takes it
    log_beside(os.getpid())
    try:
        raise ValueError("of ours")
    except ValueError:
        logging.getLogger("zooserve_router.middleware").exception("request 7 failed")
    written = capfd.readouterr().err
    assert "ERROR   zooserve_router.middleware: request 7 failed" in written
    assert "ValueError: of ours" in written


def test_a_traceback_is_one_also_where_serve_has_put_its_own_print(
    root: logging.Logger, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = print
    monkeypatch.setattr("builtins.print", lambda *objects, **options: before(objects, **options))  # as Serve's does
    log_beside(os.getpid())
    try:
        raise ValueError("of ours")
    except ValueError:
        logging.getLogger("zooserve_router.middleware").exception("request 7 failed")
    written = capfd.readouterr().err
    assert "request 7 failed\nTraceback (most recent call last):\n" in written
    assert "\nValueError: of ours\n" in written


def test_an_access_log_to_stdout_goes_where_the_routers_process_prints(capfd: pytest.CaptureFixture[str]) -> None:
    wanted = Settings(access_log=AccessLogSettings(to="stdout"))
    log = AccessLog.by(printing_beside(os.getpid(), wanted), LogMetrics(CollectorRegistry()))
    assert log is not None
    log._lines.append(b'{"number": 1}\n')
    assert capfd.readouterr().out == '{"number": 1}\n'


def test_a_router_whose_stderr_is_gone_keeps_no_replica_from_starting(root: logging.Logger) -> None:
    before = len(root.handlers)
    log_beside(2**22 + 1)
    assert len(root.handlers) == before + 1
