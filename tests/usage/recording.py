"""A recording of container metrics as a Prometheus holds them, written down sample by sample."""

from collections.abc import Iterable, Mapping

T0 = 1_699_999_200.0
"""The begin of a block of two hours."""
SCRAPE = 30.0

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


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN"}.get(str(value), repr(value))
