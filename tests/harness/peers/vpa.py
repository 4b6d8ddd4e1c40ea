"""Run the VPA recommender on a series of usage, and install the kinds of VPA."""

import json
import shutil
import subprocess
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from harness import UnavailableError, build


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


def crds() -> Path:
    """The file with its CRDs, from its Go module."""
    if not shutil.which("go"):
        raise UnavailableError("VPA's CRDs cannot be had: there is no `go` on PATH; install Go 1.26 or later")
    asked = subprocess.run(
        ["go", "mod", "download", "-json", "k8s.io/autoscaler/vertical-pod-autoscaler"],
        cwd=build.VPA.sources,
        stdout=subprocess.PIPE,
        check=True,
    )
    return Path(json.loads(asked.stdout)["Dir"]) / "deploy" / "vpa-v1-crd-gen.yaml"
