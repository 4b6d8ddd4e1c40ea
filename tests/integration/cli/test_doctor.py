"""`trimtab doctor` on the real API server: what only that can tell, a webhook that it calls."""

import time
from collections.abc import Callable

from cli.test_doctor import (  # noqa: F401 - tests and fixtures
    Examine,
    examine,
    register,
    test_doctor_checks_operator_rights_in_its_namespace,
)
from harness.process import free_port


def test_doctor_finds_a_webhook_without_a_listener(examine: Examine, register: Callable[..., None]) -> None:
    register({"url": f"https://127.0.0.1:{free_port()}"})

    # The API server hears of a new registration in its own time.
    for _ in range(60):
        _, findings = examine()
        if findings["webhook"]["state"] == "problem":
            break
        time.sleep(0.5)
    assert "failed calling webhook" in findings["webhook"]["found"]
