"""Run `trimtab operator` as a process that a test may kill.

Its recommendation can come from a file: the strategy `file` is a plugin, installed on the path of this
process only. So a test says when a rollout begins, and what is a bad idea.
"""

import json
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import yaml

from harness.cluster.cluster import Cluster
from harness.process import Process


class OperatorProcess(Process):
    """One replica; `start` it, `kill` it, `start` it again. Its settings are those of the configuration file."""

    def __init__(
        self, cluster: Cluster, folder: Path, settings: Mapping[str, Any], *, kubeconfig: Path, name: str
    ) -> None:
        self._begins = 0
        self._address = str(settings.get("address", ""))
        file = folder / f"{name}.yaml"
        file.write_text(yaml.safe_dump(dict(settings)))
        # The tests' own variables are none of the operator's settings, which it would say and end.
        ours = [f"--unset={name}" for name in os.environ if name.startswith("TRIMTAB_")]
        path = os.pathsep.join([str(_plugins(folder)), *sys.path])
        super().__init__(
            name,
            ["env", *ours, Path(sys.executable).with_name("trimtab"), "operator", "--config", file],
            log=folder / f"{name}.log",
            environment={**cluster.environment, "KUBECONFIG": str(kubeconfig), "PYTHONPATH": path},
        )

    def start(self) -> None:
        self._begins = self.log.stat().st_size if self.log.exists() else 0
        super().start()

    def log_lines(self, event: str) -> list[dict[str, Any]]:
        """Return the log lines of this event since the last start."""
        found = []
        for line in self.log.read_bytes()[self._begins :].splitlines() if self.log.exists() else ():
            with suppress(ValueError):  # a kill may leave half a line
                entry = json.loads(line)
                if entry["event"] == event:
                    found.append(entry)
        return found

    def metric(self, name: str, **labels: str) -> float:
        """Sum a metric that it serves over the series with these labels."""
        with urlopen(f"http://{self._address}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        found = [line for line in lines if line.startswith((f"{name}{{", f"{name} "))]
        return sum(float(line.split()[-1]) for line in found if all(each in line for each in wanted))


def _plugins(folder: Path) -> Path:
    """Write the metadata that pip leaves of a package with this plugin."""
    place = folder / "plugins"
    facts = place / "file_strategy-1.0.dist-info"
    facts.mkdir(parents=True, exist_ok=True)
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: file_strategy\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(
        "[trimtab.strategies]\nfile = harness.e2e.file_strategy:FileStrategy\n"
    )
    return place
