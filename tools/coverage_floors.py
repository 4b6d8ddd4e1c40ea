"""Compare the measured coverage of each package with its floor in `coverage_floors.txt`.

Run `make coverage`, which measures lines and branches first. The floors belong to the fast tests: what only a cluster
can show is not counted.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import coverage
from coverage.results import Analysis

import trimtab

FLOORS = Path(__file__).with_suffix(".txt")
PACKAGE = Path(trimtab.__file__).parent


def read_floors() -> dict[str, float]:
    lines = [line.split() for line in FLOORS.read_text().splitlines() if line and not line.startswith("#")]
    return {package: float(percent) for package, percent in lines}


def measure() -> dict[str, float]:
    """Return the covered share of lines and branches of each package, in percent."""
    data = coverage.Coverage()
    data.load()
    possible: Counter[str] = Counter()
    covered: Counter[str] = Counter()
    for file in data.get_data().measured_files():
        inside = Path(file).relative_to(PACKAGE)
        if len(inside.parts) == 1:
            continue
        found: Analysis = data._analyze(file)  # noqa: SLF001 - the public report has no sums of a folder
        numbers = found.numbers
        package = inside.parts[0]
        possible[package] += numbers.n_statements + numbers.n_branches
        covered[package] += numbers.n_executed + numbers.n_executed_branches
    return {package: 100 * covered[package] / possible[package] for package in sorted(possible)}


def find_problems(measured: dict[str, float], floors: dict[str, float]) -> list[str]:
    """Return a line for each package below its floor or without one."""
    problems = [
        f"{package}: {percent:.1f} % is covered, and its floor is {floors[package]:g} %; test what is new"
        for package, percent in measured.items()
        if package in floors and percent < floors[package]
    ]
    missing = sorted(measured.keys() - floors.keys())
    unknown = sorted(floors.keys() - measured.keys())
    problems += [f"{package}: has no floor; add one to {FLOORS.name}" for package in missing]
    problems += [f"{package}: has a floor and was not measured; run make coverage" for package in unknown]
    return problems


def main() -> int:
    measured, floors = measure(), read_floors()
    for package, percent in measured.items():
        print(f"{package:12} {percent:5.1f} %   floor {floors.get(package, 0):g} %")
    problems = find_problems(measured, floors)
    for problem in problems:
        print(f"coverage: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
