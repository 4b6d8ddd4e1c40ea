"""Many seeds: run them on all cores or on Ray, keep the interesting and the failing ones, and record what was run.

A seed is interesting if a change made a transition while a kind of fault was active for the first time, or if it
evaluates an invariant that few seeds evaluate. `Survey` counts faults and evaluations over seeds, for the reference
and for the choice of the seeds that every test run repeats.
"""

from __future__ import annotations

import csv
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import TypeVar

import msgspec

from trimtab.lab.faults.corpus import Subject, draw_any_case, run_any_case, save_case
from trimtab.lab.faults.records import Violation
from trimtab.lab.faults.runner import CaseResult, FaultCase
from trimtab.lab.faults.single_thread import EndlessRunError, limit_work, run_alone
from trimtab.lab.faults.worlds import DAY
from trimtab.lab.ray_engine import RayEngine
from trimtab.printable import escape_cells

RARE = 10
"""The number of seeds from which on an evaluation of an invariant is not rare any more."""
SIMULATION_ERROR = "simulation-error"
"""The name of violations by which the simulation itself failed."""
MAX_SECONDS = 600.0
"""The seconds of a core that a seed may take; most take less than 30, and a campaign waits for its oldest seed."""


class SeedSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one seed."""

    seed: int
    intensity: str
    days: float
    seconds: float
    """The seconds of a core that the run took."""
    writes: int = 0
    violations: tuple[Violation, ...] = ()
    fault_counts: dict[str, int] = {}
    evaluations: dict[str, int] = {}
    pairs: tuple[str, ...] = ()


class Survey(msgspec.Struct, frozen=True, kw_only=True):
    """The faults that took effect and the evaluations of invariants in consecutive seeds, and seeds that tests repeat."""

    intensity: str
    first: int
    count: int
    fault_counts: dict[str, int]
    evaluations: dict[str, int]
    fixed_seeds: tuple[int, ...]


class LedgerRow(msgspec.Struct, frozen=True, kw_only=True):
    """A campaign in the ledger."""

    date: str
    commit: str
    first_seed: int
    count: int
    cluster_days: float
    machine_hours: float
    violations: int


def summarize_seed(seed: int, *, intensity: str, subject: Subject = "operator") -> SeedSummary:
    """Run the case of a seed; an error of the simulation, or a run without end, is a violation: it hides no other seed."""
    began = time.process_time()
    case = draw_any_case(seed, intensity, subject)
    days = case.world.days if isinstance(case, FaultCase) else case.world.seconds / DAY
    try:
        with limit_work(MAX_SECONDS):
            result = run_alone(run_any_case(case))
    except (Exception, EndlessRunError) as error:  # noqa: BLE001 - reported as a violation
        import traceback

        text = "".join(traceback.format_exception(error)[-4:])
        violation = Violation(invariant=SIMULATION_ERROR, at=0.0, message=text)
        return SeedSummary(
            seed=seed,
            intensity=intensity,
            days=days,
            seconds=time.process_time() - began,
            violations=(violation,),
        )
    return SeedSummary(
        seed=seed,
        intensity=intensity,
        days=days,
        seconds=round(time.process_time() - began, 2),
        writes=result.writes,
        violations=result.violations,
        fault_counts=dict(sorted(result.fault_counts.items())),
        evaluations=dict(sorted(result.evaluations.items())),
        pairs=tuple(sorted(result.pairs)) if isinstance(result, CaseResult) else (),
    )


SeedRunner = Callable[[int], SeedSummary]
Workers = Callable[[SeedRunner, Iterable[int]], Iterator[SeedSummary]]
"""Runs seeds, here or elsewhere, and yields their summaries in order; a seed is taken when a worker is free."""
AHEAD = 4
"""The seeds that are begun for each process before the first of them has to be over."""
Pending = TypeVar("Pending")


@contextmanager
def connect_workers(*, processes: int, ray_address: str = "") -> Iterator[Workers]:
    """Yield workers of this machine, or of a Ray cluster."""
    if ray_address:
        with RayEngine(ray_address).connect() as ray:
            width = max(processes, int(ray.cluster_resources().get("CPU", 1)))

            def run_on_ray(function: SeedRunner, seeds: Iterable[int]) -> Iterator[SeedSummary]:
                task = ray.remote(function)
                return _stream(seeds, submit=task.remote, fetch=ray.get, ahead=width * AHEAD)

            yield run_on_ray
    elif processes < 2:
        yield map
    else:
        with ProcessPoolExecutor(processes) as pool:
            yield lambda function, seeds: _stream(
                seeds,
                submit=lambda seed: pool.submit(function, seed),
                fetch=lambda future: future.result(),
                ahead=processes * AHEAD,
            )


def _stream(
    seeds: Iterable[int],
    *,
    submit: Callable[[int], Pending],
    fetch: Callable[[Pending], SeedSummary],
    ahead: int,
) -> Iterator[SeedSummary]:
    """Run many seeds at once and yield their summaries in order; no process waits for the slowest of a batch."""
    pending: deque[Pending] = deque()
    for seed in seeds:
        pending.append(submit(seed))
        if len(pending) >= ahead:
            yield fetch(pending.popleft())
    while pending:
        yield fetch(pending.popleft())


def count_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


class Campaign:
    """Runs seeds one batch after another, and sums up what they showed."""

    def __init__(
        self,
        *,
        folder: Path | None,
        on_summary: Callable[[SeedSummary], None],
        subject: Subject = "operator",
    ) -> None:
        """Create a campaign that saves interesting and failing seeds in a folder, if one is given."""
        self._folder = folder
        self._subject = subject
        self._on_summary = on_summary
        self.summaries: list[SeedSummary] = []
        self.interesting: list[SeedSummary] = []
        self._pairs: set[str] = set()
        self._evaluated: Counter[str] = Counter()

    def run(
        self,
        seeds: Iterable[int],
        *,
        intensity: str,
        workers: Workers,
        is_over: Callable[[], bool] = lambda: False,
    ) -> None:
        """Run seeds until none is left or `is_over`, which is asked before each seed."""
        remaining = takewhile(lambda _: not is_over(), seeds)
        for summary in workers(
            partial(summarize_seed, intensity=intensity, subject=self._subject), remaining
        ):
            self._add(summary)

    def _add(self, summary: SeedSummary) -> None:
        self.summaries.append(summary)
        is_new = bool(set(summary.pairs) - self._pairs)
        is_rare = any(self._evaluated[name] < RARE for name in summary.evaluations)
        self._pairs.update(summary.pairs)
        self._evaluated.update(dict.fromkeys(summary.evaluations, 1))
        if is_new or is_rare:
            self.interesting.append(summary)
            self._save("interesting.jsonl", summary)
        if summary.violations:
            self._save("failing.jsonl", summary)
            if self._folder:
                path = self._folder / f"{self._subject}-{summary.seed}-{summary.intensity}.json"
                case = draw_any_case(summary.seed, summary.intensity, self._subject)
                save_case(path, case, invariant=summary.violations[0].invariant)
        self._on_summary(summary)

    def _save(self, name: str, summary: SeedSummary) -> None:
        if self._folder:
            self._folder.mkdir(parents=True, exist_ok=True)
            with (self._folder / name).open("ab") as file:
                file.write(msgspec.json.encode(summary) + b"\n")

    @property
    def days(self) -> float:
        """The simulated days of all seeds."""
        return sum(each.days for each in self.summaries)

    @property
    def core_seconds(self) -> float:
        """The seconds of a core that all seeds took."""
        return sum(each.seconds for each in self.summaries)

    @property
    def failing(self) -> list[SeedSummary]:
        """The seeds with a violation."""
        return [each for each in self.summaries if each.violations]

    def count_faults(self) -> Counter[str]:
        """Return the number of times that each kind of fault took effect."""
        return sum((Counter(each.fault_counts) for each in self.summaries), Counter[str]())

    def count_evaluations(self) -> Counter[str]:
        """Return the number of evaluations of each invariant."""
        return sum((Counter(each.evaluations) for each in self.summaries), Counter[str]())

    def build_survey(self, *, fixed_seconds: float) -> Survey:
        """Sum up all seeds; those that tests repeat take about `fixed_seconds` of a core together."""
        return Survey(
            intensity=self.summaries[0].intensity,
            first=min(each.seed for each in self.summaries),
            count=len(self.summaries),
            fault_counts=dict(sorted(self.count_faults().items())),
            evaluations=dict(sorted(self.count_evaluations().items())),
            fixed_seeds=choose_seeds(self.summaries, seconds=fixed_seconds),
        )


def choose_seeds(summaries: Sequence[SeedSummary], *, seconds: float) -> tuple[int, ...]:
    """Choose seeds without a violation that show the most within a time.

    Each next seed is the one with the most that no chosen one has, a second of its time: kinds of faults, invariants,
    and transitions under a fault.
    """
    candidates = {each.seed: each for each in summaries if not each.violations}
    shown = {seed: {*each.fault_counts, *each.evaluations, *each.pairs} for seed, each in candidates.items()}
    chosen: list[int] = []
    known: set[str] = set()
    while candidates:
        best = max(candidates, key=lambda seed: (len(shown[seed] - known) / candidates[seed].seconds, -seed))
        if not shown[best] - known and known:
            known = set()  # everything is shown: fill the time with seeds that show much again
            continue
        summary = candidates.pop(best)
        if summary.seconds <= seconds:
            seconds -= summary.seconds
            chosen.append(best)
            known |= shown[best]
    return tuple(sorted(chosen))


def load_survey(subject: Subject) -> Survey:
    """Load the survey that is committed with the code."""
    return msgspec.json.decode(_survey_path(subject).read_bytes(), type=Survey)


def save_survey(survey: Survey, subject: Subject) -> None:
    """Save the survey beside the code."""
    _survey_path(subject).write_bytes(msgspec.json.format(msgspec.json.encode(survey), indent=1) + b"\n")


def _survey_path(subject: Subject) -> Path:
    return Path(__file__).with_name(f"survey_{subject}.json")


def append_to_ledger(path: Path, row: LedgerRow) -> None:
    """Append a campaign to a ledger."""
    is_new = not path.exists()
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        if is_new:
            writer.writerow(LedgerRow.__struct_fields__)
        writer.writerow(escape_cells(msgspec.structs.astuple(row)))
