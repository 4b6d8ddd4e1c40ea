"""Revert fixes of the past one by one, and print by which cases of the corpus, and in how many seeds and seconds, the
fault simulation finds each.

    PYTHONPATH=tests python -m lab.faults.mutants [--seeds 30] [--first 0] [--intensity extreme] [NAME ...]

A seed or a case counts if it violates an invariant with the patch that it does not violate without it.
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

from trimtab.plural import pluralize

HERE = Path(__file__).parent
SOURCE = Path(__file__).parents[4] / "src"
CORPUS = sorted(HERE.parent.glob("corpus/*.json"))
_RUN_SEED = """
import json, sys
from pathlib import Path
from trimtab.lab.faults.campaign import summarize_seed
from trimtab.lab.faults.corpus import load_case, run_any_case
from trimtab.lab.faults.single_thread import run_alone
for line in sys.stdin:
    case, intensity = line.split()
    if case.endswith(".json"):
        result = run_alone(run_any_case(load_case(Path(case)).case))
    else:
        result = summarize_seed(int(case), intensity=intensity)
    print(json.dumps(sorted({each.invariant for each in result.violations})), flush=True)
"""

app = cyclopts.App(help=__doc__)


class Found(NamedTuple):
    """The seeds, or cases, and seconds after which a defect was found."""

    tried: int
    seconds: float
    case: int | Path
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

    def run(self, case: int | Path) -> set[str]:
        """Return the invariants that a seed or a case of the corpus violates."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(case, self._intensity, file=self._process.stdin, flush=True)
        return set(json.loads(self._process.stdout.readline()))

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


def find_defect(
    patch: Path, clean: SeedRunner, *, cases: Sequence[int | Path], intensity: str
) -> Found | None:
    """Return the first seed or case that finds the defect; None if none does."""
    with tempfile.TemporaryDirectory(prefix="trimtab-mutant-") as folder:
        apply_patch(patch, Path(folder))
        mutant = SeedRunner(Path(folder) / "src", intensity)
        seconds = 0.0
        try:
            for count, case in enumerate(cases, start=1):
                began = time.monotonic()
                violated = mutant.run(case)
                seconds += time.monotonic() - began
                if violated and (new := violated - clean.run(case)):
                    return Found(count, seconds, case, sorted(new))
        finally:
            mutant.close()
    return None


def _describe(found: Found | None, noun: str) -> str:
    if found is None:
        return f"found by no {noun}"
    name = found.case.stem if isinstance(found.case, Path) else found.case
    return f"{noun} {name} violates {', '.join(found.invariants)} ({pluralize(found.tried, noun)}, {found.seconds:.0f} s)"


@app.default
def search(*names: str, seeds: int = 30, first: int = 0, intensity: str = "extreme") -> int:
    """Search for the first seed that finds each of the defects, or of those that are named."""
    clean, missing = SeedRunner(SOURCE, intensity), 0
    for patch in list_patches():
        if names and patch.stem not in names:
            continue
        in_corpus = find_defect(patch, clean, cases=CORPUS, intensity=intensity)
        in_seeds = find_defect(patch, clean, cases=range(first, first + seeds), intensity=intensity)
        missing += not (in_corpus or in_seeds)
        print(f"{patch.stem}: {_describe(in_corpus, 'case')}; {_describe(in_seeds, 'seed')}", flush=True)
    clean.close()
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(app())
