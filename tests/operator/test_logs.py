"""One way to log, for us and for the libraries that we use."""

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from trimtab.operator.config.model import LogFormat, LogSettings
from trimtab.operator.logs import bind_workload, configure_logging


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_logs_name_the_workload_in_each_line() -> None:
    stream = io.StringIO()
    configure_logging(LogSettings(), stream=stream)
    log = structlog.get_logger("any.room")
    with bind_workload(kind="Deployment", namespace="shop", name="web", policy="shop/default"):
        log.info("resized", cpu="250m")
    log.info("idle")
    inside, outside = lines(stream)
    assert (inside["workload"], inside["policy"], inside["cpu"]) == (
        "Deployment shop/web",
        "shop/default",
        "250m",
    )
    assert (inside["event"], inside["level"]) == ("resized", "info")
    assert inside["timestamp"].endswith("Z")
    assert "workload" not in outside


@pytest.mark.parametrize("form", LogFormat)
def test_logs_hide_local_variables_of_failures(form: LogFormat) -> None:
    def ask(token: str) -> None:
        raise ValueError(f"a token of {len(token)} letters is refused")

    stream = io.StringIO()
    configure_logging(LogSettings(format=form), stream=stream)
    try:
        ask("xyz" * 5)
    except ValueError:
        structlog.get_logger("any.room").exception("failed")
    assert "15 letters" in stream.getvalue()
    assert "xyzxyz" not in stream.getvalue()


def test_logs_format_lines_of_libraries_alike() -> None:
    stream = io.StringIO()
    configure_logging(LogSettings(), stream=stream)
    with bind_workload(kind="Deployment", namespace="shop", name="web"):
        logging.getLogger("aiohttp.server").error("Error handling %s", "request")
    (line,) = lines(stream)
    assert (line["event"], line["level"], line["logger"]) == (
        "Error handling request",
        "error",
        "aiohttp.server",
    )
    assert line["workload"] == "Deployment shop/web"


def test_logs_write_an_exception_as_one_json_line() -> None:
    stream = io.StringIO()
    configure_logging(LogSettings(), stream=stream)
    try:
        int("no such size")
    except ValueError:
        structlog.get_logger().exception("failed")
    (line,) = lines(stream)
    assert "ValueError: invalid literal for int() with base 10: 'no such size'" in line["exception"]


def test_logs_change_their_level_at_run_time() -> None:
    stream = io.StringIO()
    configure_logging(LogSettings(level="error"), stream=stream)
    log = structlog.get_logger()
    log.info("quiet")
    configure_logging(LogSettings(level="debug"), stream=stream)
    log.debug("loud")
    assert [line["event"] for line in lines(stream)] == ["loud"]


def test_logs_are_text_on_a_terminal() -> None:
    stream = io.StringIO()
    configure_logging(LogSettings(format=LogFormat.CONSOLE), stream=stream)
    with bind_workload(kind="Deployment", namespace="shop", name="web"):
        structlog.get_logger().warning("skipped", reason="HPA")
    assert "skipped" in stream.getvalue()
    assert "workload='Deployment shop/web'" in stream.getvalue()
    assert "\x1b" not in stream.getvalue()


def test_console_log_neither_rewrites_the_terminal_nor_forges_lines() -> None:
    """Messages of errors quote names and answers of others."""
    hostile = "x\x1b[2J\x9b31m\r\n2026-01-01T00:00:00Z [info] forged\u202e"
    stream = io.StringIO()
    configure_logging(LogSettings(format=LogFormat.CONSOLE), stream=stream)
    structlog.get_logger().warning(hostile, error=hostile, names=[hostile])
    logging.getLogger("library").warning("got %s", hostile)
    try:
        int(hostile)
    except ValueError:
        structlog.get_logger().exception("failed")
        logging.getLogger("library").exception("failed too")
    lines = stream.getvalue().split("\n")
    assert all(line.isprintable() for line in lines)
    assert not [line for line in lines if line.startswith("2026-01-01")]
    assert sum("forged" in line for line in lines) == 4
