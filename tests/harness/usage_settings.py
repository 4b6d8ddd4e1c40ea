"""Settings of usage sources that do not go with every credential, as those of a plugin may not."""

from typing import Any

import pytest

from trimtab.errors import TrimtabError
from trimtab.usage.prometheus.settings import PrometheusSettings


def refuse_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make settings with a token invalid for the time of a test."""
    build = PrometheusSettings.__init__

    def build_without_token(self: PrometheusSettings, **given: Any) -> None:
        if "token_file" in given:
            raise TrimtabError("a token does not go with the other settings")
        build(self, **given)

    monkeypatch.setattr(PrometheusSettings, "__init__", build_without_token)
