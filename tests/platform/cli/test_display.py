"""What `zooserve up` shows of where everything listens."""

from zooserve.processes.state import unplanned
from zooserve_cli.display import console, show_addresses


def shown(**addresses: str) -> str:
    out = console()
    with out.capture() as captured:
        show_addresses(out, unplanned("ready").model_copy(update={"router": "127.0.0.1:8000", **addresses}))
    return captured.get()


def test_an_engine_is_shown_with_the_key_that_it_asks_for() -> None:
    (line,) = [line for line in shown(engine_http="127.0.0.1:9000").splitlines() if line.startswith("engine")]
    assert "http://127.0.0.1:9000" in line
    assert "run/engine.json" in line
    assert "/metrics" not in line, "without the key that is a 401"


def test_without_an_engine_none_is_shown() -> None:
    assert "engine" not in shown()


def test_the_way_to_scrape_it_is_shown() -> None:
    (line,) = [line for line in shown(scrape_file="/state/prometheus.yml").splitlines() if line.startswith("scrape")]
    assert line.endswith("prometheus --config.file=/state/prometheus.yml")
    assert "scrape" not in shown()
