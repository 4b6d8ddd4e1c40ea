"""Build container metrics in the text format that promtool imports."""

import math
from collections.abc import Iterable, Mapping

T0 = 1_699_999_200.0
"""The start of a two-hour block."""
SCRAPE = 30.0
MIB = 2.0**20
SPECIAL_NAMESPACE = 'it"s\\a.+|(b)\n'
"""A namespace whose characters must be escaped in queries."""

Samples = Iterable[tuple[float, float]]


class MetricRecording:
    """Series by metric; `text` is what promtool takes."""

    def __init__(self) -> None:
        self._lines: dict[str, list[str]] = {}

    def add(self, metric: str, labels: Mapping[str, str], samples: Samples) -> None:
        formatted = ",".join(f'{label}="{_escaped(value)}"' for label, value in labels.items())
        lines = self._lines.setdefault(metric, [])
        lines += [f"{metric}{{{formatted}}} {_number(value)} {T0 + at:.3f}" for at, value in samples]

    def container(
        self, labels: Mapping[str, str], *, cores: float, memory: float, scrapes: range = range(240)
    ) -> None:
        """Add a container with constant usage."""
        self.add(CPU, {**labels, "cpu": "total"}, [(SCRAPE * i, 7 + cores * SCRAPE * i) for i in scrapes])
        self.add(MEMORY, labels, [(SCRAPE * i, memory) for i in scrapes])

    @property
    def text(self) -> str:
        kinds = {True: "counter", False: "gauge"}
        parts = []
        for metric, lines in self._lines.items():
            family = metric.removesuffix("_total")
            parts += [f"# TYPE {family} {kinds[family != metric]}", *lines]
        return "\n".join(parts) + "\n"


CPU = "container_cpu_usage_seconds_total"
MEMORY = "container_memory_working_set_bytes"


def container_labels(
    pod: str, container: str = "app", *, namespace: str = "shop", **more: str
) -> dict[str, str]:
    """Return the labels that a kubelet gives a container."""
    return {
        "container": container,
        "id": f"/kubepods/{pod}/{container}",
        "image": "registry.example/app:1",
        "job": "kubelet",
        "metrics_path": "/metrics/cadvisor",
        "namespace": namespace,
        "pod": pod,
        **more,
    }


def example_recording() -> MetricRecording:
    """Return a recording with resets, gaps, duplicates and implausible values."""
    recording = MetricRecording()
    recording.container(container_labels("steady"), cores=0.5, memory=100 * MIB)
    # The same container from a second scrape job, and cgroups that are not containers.
    recording.container(container_labels("steady", job="cadvisor"), cores=0.5, memory=100 * MIB)
    recording.container(container_labels("steady", "POD"), cores=3, memory=900 * MIB)
    recording.container(container_labels("steady", ""), cores=4, memory=1000 * MIB)

    def restarted(i: int) -> float:
        return 1000 + 0.25 * SCRAPE * i if i < 120 else 0.25 * SCRAPE * (i - 120)

    recording.add(CPU, container_labels("restarted"), [(SCRAPE * i, restarted(i)) for i in range(240)])
    recording.add(MEMORY, container_labels("restarted"), [(SCRAPE * i, 50 * MIB) for i in range(240)])
    recording.container(container_labels("away"), cores=0.5, memory=10 * MIB, scrapes=range(80))
    recording.container(container_labels("away"), cores=0.5, memory=10 * MIB, scrapes=range(140, 240))
    recording.add(
        CPU,
        container_labels("glitch"),
        [(SCRAPE * i, 1e6 + 0.5 * SCRAPE * i - 20 * (i == 100)) for i in range(240)],
    )
    for cpu in ("cpu00", "cpu01"):
        recording.add(
            CPU,
            container_labels("by-processor", cpu=cpu),
            [(SCRAPE * i, 0.25 * SCRAPE * i) for i in range(240)],
        )
    implausible = {50: math.nan, 60: -5.0, 70: 1e18, 80: math.inf}
    recording.add(
        MEMORY,
        container_labels("impossible"),
        [(SCRAPE * i, implausible.get(i, 20 * MIB)) for i in range(240)],
    )
    recording.add("machine_cpu_cores", {"job": "kubelet"}, [(SCRAPE * i, 8) for i in range(240)])
    recording.container(container_labels("elsewhere", namespace=SPECIAL_NAMESPACE), cores=0.125, memory=MIB)
    return recording


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN"}.get(str(value), repr(value))
