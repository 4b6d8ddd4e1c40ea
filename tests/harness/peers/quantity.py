"""Ask Go to parse Kubernetes quantities and durations, as the oracle for our parsers."""

import json
import subprocess
from typing import Any

from harness import build


class GoQuantity:
    """Asks the Go library; building it takes seconds and needs no cluster."""

    def __init__(self) -> None:
        self._program = build.QUANTITY.built() / "quantity"

    def ask(self, lines: list[str]) -> list[dict[str, Any]]:
        """Answer `quantity TEXT` and `duration TEXT`, in order; see `go/quantity/main.go` for the answers."""
        if not lines:
            return []
        asked = subprocess.run(
            [self._program], input="\n".join(lines).encode(), stdout=subprocess.PIPE, check=True
        )
        return [json.loads(line) for line in asked.stdout.splitlines()]
