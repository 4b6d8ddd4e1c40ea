"""Run all fuzzers in parallel: `python -m security.fuzz --inputs 10000`; print a table, and keep the failing inputs."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from pathlib import Path

from security.fuzz.engine import FuzzReport, fuzz
from security.fuzz.targets import TARGETS

STALLED_SECONDS = 600.0
"""The seconds without a new input after which a process is ended: not all code can be interrupted by a signal."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m security.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", help="the targets to run; by default all")
    parser.add_argument("--inputs", type=int, default=10_000, help="the inputs of each target")
    parser.add_argument("--seed", type=int, default=0, help="another seed gives other inputs")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="the processes at a time")
    parser.add_argument(
        "--findings", type=Path, default=Path("fuzz-findings"), help="where failing inputs go"
    )
    options = parser.parse_args()
    names = options.targets or list(TARGETS)
    if unknown := set(names) - set(TARGETS):
        parser.error(f"no targets: {', '.join(sorted(unknown))}; there are: {', '.join(TARGETS)}")
    print("| target | inputs | outcomes | findings | worst CPU time | worst memory |")
    print("|---|---:|---:|---:|---:|---:|")
    inputs = findings = 0
    for report in run_all(names, inputs=options.inputs, seed=options.seed, jobs=options.jobs):
        print(
            f"| {report.target} | {report.inputs:,} | {len(report.outcomes):,} | {len(report.findings):,} "
            f"| {report.worst_seconds * 1000:,.0f} ms | {report.worst_bytes / (1 << 20):,.1f} MiB |",
            flush=True,
        )
        save_findings(report, options.findings)
        inputs += report.inputs
        findings += len(report.findings)
    print(f"\n{inputs:,} inputs, {findings} findings" + (f", in {options.findings}/" if findings else ""))
    return 1 if findings else 0


@dataclass(frozen=True, slots=True)
class _Job:
    """A process that fuzzes one target."""

    target: str
    process: ForkProcess
    current: Path
    """The file with the input that is being handled."""

    @property
    def is_stalled(self) -> bool:
        return self.current.exists() and time.time() - self.current.stat().st_mtime > STALLED_SECONDS

    def finish(self, results: Connection) -> FuzzReport:
        """Return the report, or one that says how the process ended."""
        try:
            report: FuzzReport = results.recv()
        except EOFError:
            self.process.join(STALLED_SECONDS)
            report = FuzzReport(self.target)
            data = self.current.read_bytes() if self.current.exists() else b""
            detail = f"the process ended with exit code {self.process.exitcode}"
            report.add_finding("process", "", detail, data)
        self.process.join()
        return report


def run_all(names: Sequence[str], *, inputs: int, seed: int, jobs: int) -> Iterator[FuzzReport]:
    """Yield the report of each target as it ends; each runs in a process of its own, which an input may crash."""
    context = multiprocessing.get_context("fork")
    waiting, running = list(names), dict[Connection, _Job]()
    with tempfile.TemporaryDirectory(prefix="trimtab-fuzz-") as folder:
        while waiting or running:
            while waiting and len(running) < jobs:
                name = waiting.pop(0)
                results, sender = context.Pipe(duplex=False)
                current = Path(folder) / name
                process = context.Process(target=_run_target, args=(name, inputs, seed, current, sender))
                process.start()
                sender.close()
                running[results] = _Job(name, process, current)
            for ready in wait(list(running), timeout=5.0):
                assert isinstance(ready, Connection)
                yield running.pop(ready).finish(ready)
            for job in running.values():
                if job.is_stalled:
                    job.process.kill()


def _run_target(name: str, inputs: int, seed: int, current: Path, results: Connection) -> None:
    with current.open("wb", buffering=0) as file:

        def keep_input(data: bytes) -> None:
            file.seek(0)
            file.write(data)
            file.truncate(len(data))

        results.send(fuzz(TARGETS[name], inputs=inputs, seed=seed, guided=True, before_input=keep_input))


def save_findings(report: FuzzReport, folder: Path) -> None:
    """Write each failing input, and what it did, to a folder of its target."""
    for title, finding in report.findings.items():
        place = folder / report.target
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{finding.digest}.input").write_bytes(finding.data)
        (place / f"{finding.digest}.txt").write_text(f"{title}\n{finding.detail}\n")


if __name__ == "__main__":
    sys.exit(main())
