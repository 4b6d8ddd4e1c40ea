"""What the Kubernetes VPA recommender says to a series of usage: what our strategy `vpa` is held against."""

import json
import subprocess
from dataclasses import asdict, dataclass, field
from typing import Any

from harness import build


@dataclass
class Series:
    """What one container used, and when the recommender is asked about it; see `go/vpa/main.go`."""

    pod: int = 1
    """How many containers its pod has."""
    events: list[dict[str, Any]] = field(default_factory=list)


class GoVpa:
    """The recommender's own model and logic, as a program."""

    def __init__(self) -> None:
        self.program = build.VPA.built() / "vpa"

    def ask(self, series: list[Series]) -> list[dict[str, Any]]:
        """One answer for each event that asks, in order."""
        lines = "\n".join(json.dumps(asdict(one)) for one in series)
        asked = subprocess.run(
            [self.program, "series"], input=lines.encode(), stdout=subprocess.PIPE, check=True
        )
        return [json.loads(line) for line in asked.stdout.splitlines()]
