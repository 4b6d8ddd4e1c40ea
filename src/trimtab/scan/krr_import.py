"""Convert a KRR command line to an OptimizationPolicy with the strategy `krr`. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any, NamedTuple

from trimtab.api import API_VERSION
from trimtab.api.quantity import MIB
from trimtab.errors import TrimtabError
from trimtab.kube.rest.rbac import SYSTEM_NAMESPACE

MINUTE, HOUR = 60.0, 3600.0
STRATEGIES = ("simple", "simple_limit", "simple-limit")
SETTINGS = {
    "cpu_percentile": ("cpu_quantile", 0.01),
    "cpu_request": ("cpu_quantile", 0.01),
    "memory_buffer_percentage": ("memory_buffer", 0.01),
    "oom_memory_buffer_percentage": ("oom_buffer", 0.01),
    "points_required": ("min_samples", 1),
    "history_duration": ("window", HOUR),
    "cpu_min": ("min_cpu", 0.001),
    "mem_min": ("min_memory", MIB),
    "timeframe_duration": ("step", MINUTE),
}
"""The setting of the strategy `krr` and the factor, by KRR's option."""
SWITCHES = {"use_oomkill_data": "use_oom", "allow_hpa": "allow_hpa"}
"""The setting of the strategy `krr` that an option without a value turns on."""
FLAGS = frozenset({*SWITCHES, "verbose", "v", "quiet", "q", "logtostderr"})
"""The options without a value."""
NAMES = {"n": "namespace", "p": "prometheus_url", "s": "selector", "r": "resource", "c": "context"}
ELSEWHERE = {
    "prometheus_url": "see metricsSource.settings.url of the operator's configuration, or --prometheus of scan",
    "context": "see --context of the commands",
    "cpu_limit": "see spec.limitPolicy of the policy",
    "formatter": "see --output of scan",
    "f": "see --output of scan",
}
"""The place where Trimtab has what an option of KRR says."""


class ImportedCommand(NamedTuple):
    policy: dict[str, Any]
    notes: tuple[str, ...]
    """The settings that the policy cannot express."""


def convert_command(command: str) -> ImportedCommand:
    """Convert a command line such as `krr simple -n shop --cpu_percentile 99`."""
    settings: dict[str, float | bool] = {"use_oom": False}
    namespaces: list[str] = []
    notes: list[str] = []
    selector: dict[str, Any] = {}
    for name, value in _parse_options(command):
        if name in SETTINGS:
            setting, factor = SETTINGS[name]
            number = _parse_number(name, value) * factor
            settings[setting] = (
                round(number) if setting in {"min_samples", "min_memory"} else round(number, 6)
            )
        elif name in SWITCHES:
            settings[SWITCHES[name]] = True
        elif name == "namespace":
            namespaces.append(value)
        elif name == "resource":
            selector.setdefault("workloadTypes", {"include": []})["include"].append(value)
        elif name == "selector" and (labels := _parse_labels(value)):
            selector["workloadSelector"] = {"matchLabels": labels}
        else:
            notes.append(f"--{name}: {ELSEWHERE.get(name, 'has no counterpart')}")
    if any("*" in each for each in namespaces):
        notes.append("--namespace: policies name namespaces without wildcards; use namespaceSelector")
        namespaces = [each for each in namespaces if "*" not in each]
    if namespaces:
        selector["namespaces"] = {"allow": namespaces}
    spec = {
        "mode": "Recommend",
        **({"selector": selector} if selector else {}),
        "strategy": {"name": "krr", "settings": settings},
    }
    policy = {
        "apiVersion": API_VERSION,
        "kind": "OptimizationPolicy",
        "metadata": {"name": "krr", "namespace": SYSTEM_NAMESPACE},
        "spec": spec,
    }
    return ImportedCommand(policy, tuple(notes))


def _parse_options(command: str) -> Iterator[tuple[str, str]]:
    """Yield the options by KRR's names, with underscores and without short forms."""
    try:
        words = iter(shlex.split(command))
    except ValueError as error:
        raise TrimtabError(f"--command {command!r}: {error}") from None
    strategy = ""
    for word in words:
        if not word.startswith("-"):
            # The program itself comes before the strategy, such as krr, krr.py or python.
            strategy = word if word in STRATEGIES else strategy
            continue
        name, has_value, value = word.lstrip("-").partition("=")
        name = NAMES.get(name, name).replace("-", "_")
        if name in FLAGS:
            yield name, ""
        elif has_value:
            yield name, value
        else:
            found = next(words, None)
            if found is None:
                raise TrimtabError(f"--command: option {word} has no value")
            yield name, found
    if not strategy:
        raise TrimtabError(
            f"--command {command!r}: it names none of KRR's strategies {', '.join(STRATEGIES[:2])}; "
            "give the whole command line, such as 'krr simple -n shop'"
        )


def _parse_labels(selector: str) -> dict[str, str]:
    """Parse a selector by equality; nothing if it is another one."""
    parts = selector.split(",")
    if any("=" not in part or "!" in part for part in parts):
        return {}
    return dict(part.replace("==", "=").split("=", 1) for part in parts)


def _parse_number(name: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise TrimtabError(f"--command: {value!r} of --{name} is not a number") from None
