"""Test reading usage from a real Prometheus with resets, gaps, duplicates and implausible values."""

from typing import Any

import pytest

from trimtab.errors import TrimtabError
from trimtab.usage.source import source


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"url": "prometheus:9090"}, "url: must look like http://HOST:PORT"),
        ({"url": "http://me:secret@host"}, "must not contain a password"),
        ({"username": "me"}, "username and password_file belong together"),
        ({"cert_file": "/c"}, "cert_file and key_file belong together"),
        ({"labels": {'a"b': "c"}}, "labels"),
        ({"labels": "cluster=prod"}, "labels: write each entry as labels.NAME=VALUE on the command line"),
        ({"cpu_rule": "sum(x)"}, "cpu_rule"),
        ({"ulr": "http://host"}, "ulr: unknown field"),
    ],
)
def test_settings_reject_invalid_values_in_one_line(settings: dict[str, Any], line: str) -> None:
    with pytest.raises(TrimtabError) as refused:
        source("prometheus", **settings)
    assert line in str(refused.value)
    assert "\n" not in str(refused.value)
