"""A recording of container metrics as a Prometheus holds them, written down sample by sample."""

import math
from collections.abc import Iterable, Mapping

T0 = 1_699_999_200.0
"""The begin of a block of two hours."""
SCRAPE = 30.0
MIB = 2.0**20
ODD = 'it"s\\a.+|(b)\n'
"""A namespace that no query may take for anything but its name."""

Samples = Iterable[tuple[float, float]]


class Recording:
    """Series by metric; `text` is what promtool takes."""

    def __init__(self) -> None:
        self._lines: dict[str, list[str]] = {}

    def add(self, metric: str, labels: Mapping[str, str], samples: Samples) -> None:
        written = ",".join(f'{label}="{_escaped(value)}"' for label, value in labels.items())
        lines = self._lines.setdefault(metric, [])
        lines += [f"{metric}{{{written}}} {_number(value)} {T0 + at:.3f}" for at, value in samples]

    def container(
        self, labels: Mapping[str, str], *, cores: float, memory: float, scrapes: range = range(240)
    ) -> None:
        """A container that uses so much all the time, from one scrape to another."""
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


def named(pod: str, container: str = "app", *, namespace: str = "shop", **more: str) -> dict[str, str]:
    """The labels of a container as the kubelet gives them."""
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


def shop() -> Recording:
    """What real servers hold: resets, gaps, duplicates, and numbers that cannot be."""
    recording = Recording()
    recording.container(named("steady"), cores=0.5, memory=100 * MIB)
    # The same, as a second job scraped it; and cgroups that are no containers.
    recording.container(named("steady", job="cadvisor"), cores=0.5, memory=100 * MIB)
    recording.container(named("steady", "POD"), cores=3, memory=900 * MIB)
    recording.container(named("steady", ""), cores=4, memory=1000 * MIB)

    def restarted(i: int) -> float:
        return 1000 + 0.25 * SCRAPE * i if i < 120 else 0.25 * SCRAPE * (i - 120)

    recording.add(CPU, named("restarted"), [(SCRAPE * i, restarted(i)) for i in range(240)])
    recording.add(MEMORY, named("restarted"), [(SCRAPE * i, 50 * MIB) for i in range(240)])
    recording.container(named("away"), cores=0.5, memory=10 * MIB, scrapes=range(80))
    recording.container(named("away"), cores=0.5, memory=10 * MIB, scrapes=range(140, 240))
    recording.add(
        CPU, named("glitch"), [(SCRAPE * i, 1e6 + 0.5 * SCRAPE * i - 20 * (i == 100)) for i in range(240)]
    )
    for cpu in ("cpu00", "cpu01"):
        recording.add(
            CPU, named("by-processor", cpu=cpu), [(SCRAPE * i, 0.25 * SCRAPE * i) for i in range(240)]
        )
    impossible = {50: math.nan, 60: -5.0, 70: 1e18, 80: math.inf}
    recording.add(
        MEMORY, named("impossible"), [(SCRAPE * i, impossible.get(i, 20 * MIB)) for i in range(240)]
    )
    recording.add("machine_cpu_cores", {"job": "kubelet"}, [(SCRAPE * i, 8) for i in range(240)])
    recording.container(named("elsewhere", namespace=ODD), cores=0.125, memory=MIB)
    return recording


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN"}.get(str(value), repr(value))
