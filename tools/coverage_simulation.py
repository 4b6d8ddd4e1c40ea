"""Print the coverage that the fault simulation alone reaches, as the table of docs/research/fault-simulation.md.

Run `make coverage-simulation`, which measures first.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

import coverage
from coverage.results import Analysis, Numbers

import trimtab

PACKAGE = Path(trimtab.__file__).parent
SHOWN = ("actuation", "actuation/decide", "recommender", "operator", "operator/intents", "intents", "node")
LEAST_REACHED = 12
"""The number of modules that are listed with the most lines and branches that were not reached."""


def measure() -> dict[str, Numbers]:
    """Return the numbers of each module that was measured, by its path below the package."""
    data = coverage.Coverage()
    data.load()
    found: dict[str, Numbers] = {}
    for file in data.get_data().measured_files():
        analysis: Analysis = data._analyze(file)  # noqa: SLF001 - the public report has no sums of a folder
        found[str(Path(file).relative_to(PACKAGE))] = analysis.numbers
    return found


def render(numbers: dict[str, Numbers]) -> str:
    """Render the tables of packages and of the modules that are reached least."""
    by_package: defaultdict[str, Numbers] = defaultdict(Numbers)
    for module, each in numbers.items():
        for package in SHOWN:
            if module.startswith(f"{package}/"):
                by_package[package] += each
    lines = ["| package | lines | branches |", "|---|---|---|"]
    lines += [
        f"| `{package}` | {_describe(by_package[package])} |" for package in SHOWN if package in by_package
    ]
    lines += ["", "| module | lines | branches |", "|---|---|---|"]
    shown = {name: each for name, each in numbers.items() if name.startswith(tuple(f"{x}/" for x in SHOWN))}
    ranked = sorted(shown, key=lambda name: -(shown[name].n_missing + shown[name].n_missing_branches))
    lines += [f"| `{name}` | {_describe(shown[name])} |" for name in ranked[:LEAST_REACHED]]
    return "\n".join(lines)


def _describe(numbers: Numbers) -> str:
    lines = numbers.n_executed / max(numbers.n_statements, 1)
    branches = numbers.n_executed_branches / max(numbers.n_branches, 1)
    return f"{lines:.0%} of {numbers.n_statements:,} | {branches:.0%} of {numbers.n_branches:,}"


if __name__ == "__main__":
    sys.stdout.write(render(measure()) + "\n")
