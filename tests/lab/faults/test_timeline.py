"""The timeline of a run: lanes of processes, workloads and faults, violations, and the trace by hour."""

from __future__ import annotations

from collections import Counter

from trimtab.lab.faults.records import Violation
from trimtab.lab.faults.runner import CaseResult, draw_case
from trimtab.lab.faults.timeline import COLOURS, OTHER, render_timeline
from trimtab.lab.faults.trace import KILLED, STARTED, TraceEntry

CASE = draw_case(1, "heavy")
START = CASE.world.start
KEY = str(CASE.world.workloads[0].key)
FAULT = CASE.plan.faults[0]


def result(*entries: TraceEntry, violations: tuple[Violation, ...] = ()) -> CaseResult:
    return CaseResult(
        case=CASE,
        plan=CASE.plan,
        violations=violations,
        fault_counts=Counter({FAULT.kind: 1}),
        evaluations=Counter(),
        pairs=frozenset(),
        writes=1,
        digest="",
        entries=entries,
        entry_count=len(entries) + 3,
    )


RUN = result(
    TraceEntry(START + 60, "operator-1", STARTED, "", "starts"),
    TraceEntry(START + 3600, "operator-1", "resize", KEY, f"resize {KEY}: <main> to 1 core"),
    TraceEntry(START + FAULT.start, "fault", FAULT.kind, FAULT.target, "it took effect"),
    TraceEntry(START + 7200, "operator-1", KILLED, "", "is killed"),
    violations=(Violation(invariant="bounds-kept", at=START + 3600, message="above <max>"),),
)


def test_timeline_has_a_lane_for_each_process_workload_and_fault() -> None:
    page = render_timeline(RUN, command="replay 1")
    for workload in CASE.world.workloads:
        assert str(workload.key) in page
    for fault in CASE.plan.faults:
        assert fault.kind in page
    assert "operator-1 runs" in page
    assert "replay 1" in page
    assert "3 earlier entries are not kept" in page


def test_timeline_escapes_names_and_opens_the_hour_of_a_violation() -> None:
    page = render_timeline(RUN, command="")
    assert "<main>" not in page
    assert "above &lt;max&gt;" in page
    assert page.count("<details open>") == 1
    assert "<script" not in page


def test_timeline_draws_writes_over_what_follows_from_them() -> None:
    entries = (
        TraceEntry(START + 3600, "cluster", "Resized", KEY, "the pod was resized"),
        TraceEntry(START + 3600, "operator-1", "resize", KEY, f"resize {KEY}"),
    )
    page = render_timeline(result(*entries), command="")
    assert page.index(f'fill="{OTHER}"><title>') < page.index(f'fill="{COLOURS["resize"]}"><title>')


def test_timeline_is_limited_to_given_hours() -> None:
    page = render_timeline(RUN, command="", hours=(1.5, 3.0))
    assert "is killed" in page
    assert "to 1 core" not in page
