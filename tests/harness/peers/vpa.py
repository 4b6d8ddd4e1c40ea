"""Run the VPA recommender on a series of usage, and install the kinds of VPA."""

import hashlib
import json
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from harness import UnavailableError, build
from harness.recordings import Recording


@dataclass
class Series:
    """The usage of one container, and the times of its recommendations; see `go/vpa/main.go`."""

    pod: int = 1
    """The number of containers of its pod."""
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

    def ask_for(self, fields: Sequence[str], series: list[Series]) -> list[dict[str, Any]]:
        """Return these fields of the answers, without the time of writing."""
        answers = self.ask(series)
        for each in answers:
            each["checkpoint"].pop("lastUpdateTime", None)
        return [{name: each[name] for name in fields} for each in answers]


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


@dataclass
class RecordedVpa:
    """Answers as the recommender did when it was recorded; while recording, it answers itself."""

    recording: Recording
    real: GoVpa | None = None

    def ask(self, series: list[Series], *fields: str) -> list[dict[str, Any]]:
        """Return these fields of one answer for each event that asks, in order."""
        question = _digest(series)
        if self.real is not None:
            self.recording.keep(question, self.real.ask_for(fields, series))
        found: list[dict[str, Any]] = self.recording.find(question)
        return found


def _digest(series: list[Series]) -> str:
    return hashlib.sha256(json.dumps([asdict(one) for one in series], sort_keys=True).encode()).hexdigest()
