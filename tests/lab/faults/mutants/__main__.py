"""Revert fixes of the past one by one, and print in how many seeds and seconds the fault simulation finds each.

    PYTHONPATH=tests python -m lab.faults.mutants [--seeds 30] [--first 0] [--intensity extreme] [NAME ...]

A seed counts if it violates an invariant with the patch that it does not violate without it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import cyclopts

HERE = Path(__file__).parent
SOURCE = Path(__file__).parents[4] / "src"
_RUN_SEED = """
import json, sys
from trimtab.lab.faults.campaign import summarize_seed
for line in sys.stdin:
    seed, intensity = line.split()
    summary = summarize_seed(int(seed), intensity=intensity)
    print(json.dumps([summary.days, sorted({each.invariant for each in summary.violations})]), flush=True)
"""

app = cyclopts.App(help=__doc__)


class Found(NamedTuple):
    """The seeds and seconds after which a defect was found."""

    seeds: int
    seconds: float
    seed: int
    invariants: Sequence[str]


class SeedRunner:
    """A process that runs seeds on a copy of the code."""

    def __init__(self, source: Path, intensity: str) -> None:
        self._intensity = intensity
        self._process = subprocess.Popen(
            [sys.executable, "-c", _RUN_SEED],
            env={**os.environ, "PYTHONPATH": str(source)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, seed: int) -> set[str]:
        """Return the invariants that a seed violates."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(seed, self._intensity, file=self._process.stdin, flush=True)
        _, invariants = json.loads(self._process.stdout.readline())
        return set(invariants)

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def list_patches() -> list[Path]:
    """List all reverse patches."""
    return sorted(HERE.glob("*.patch"))


def apply_patch(patch: Path, folder: Path) -> None:
    """Copy the code to a folder with a patch; compiled kernels come along."""
    shutil.copytree(SOURCE, folder / "src", copy_function=shutil.copy2)
    subprocess.run(["git", "apply", str(patch)], cwd=folder, check=True)


def find_defect(patch: Path, clean: SeedRunner, *, seeds: Sequence[int], intensity: str) -> Found | None:
    """Return the first seed that finds the defect; None if none does."""
    with tempfile.TemporaryDirectory(prefix="trimtab-mutant-") as folder:
        apply_patch(patch, Path(folder))
        mutant = SeedRunner(Path(folder) / "src", intensity)
        seconds = 0.0
        try:
            for count, seed in enumerate(seeds, start=1):
                began = time.monotonic()
                violated = mutant.run(seed)
                seconds += time.monotonic() - began
                if violated and (new := violated - clean.run(seed)):
                    return Found(count, seconds, seed, sorted(new))
        finally:
            mutant.close()
    return None


@app.default
def search(*names: str, seeds: int = 30, first: int = 0, intensity: str = "extreme") -> int:
    """Search for the first seed that finds each of the defects, or of those that are named."""
    clean, missing = SeedRunner(SOURCE, intensity), 0
    for patch in list_patches():
        if names and patch.stem not in names:
            continue
        found = find_defect(patch, clean, seeds=range(first, first + seeds), intensity=intensity)
        missing += found is None
        result = (
            f"found in {found.seeds} seeds, {found.seconds:.0f} s: seed {found.seed} violates {', '.join(found.invariants)}"
            if found
            else f"not found in {seeds} seeds"
        )
        print(f"{patch.stem}: {result}", flush=True)
    clean.close()
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(app())
