"""A cluster as a board shows it, made up from a seed: as many workloads as are asked for, a week of two of them."""

import math
import random

from trimtab.web.backends.snapshot import DashboardSnapshot
from trimtab.web.model import (
    BacktestResult,
    ContainerDetail,
    CostSummary,
    Curve,
    CurveRole,
    CurveValues,
    EffectView,
    FactorView,
    HistoryEntry,
    IntentView,
    KnobSummary,
    NodeSummary,
    ObjectiveView,
    Overview,
    Plot,
    ResourceSize,
    TierSummary,
    WorkloadDetail,
    WorkloadRow,
)

NOW = 1_800_000_000.0
HOUR, DAY = 3600.0, 86400.0
MIB, GIB = 2.0**20, 2.0**30
STEPS = 7 * 24 * 2
TIMES = tuple(NOW - (STEPS - 1 - place) * HOUR / 2 for place in range(STEPS))
STATES = ("Applied", "Applied", "Applied", "Recommended", "Pending", "Skipped", "Reverted")


def scene(workloads: int = 40, *, seed: int = 1) -> DashboardSnapshot:
    """The same for the same seed."""
    draw = random.Random(seed)
    rows = tuple(_row(number, draw) for number in range(workloads))
    history = _history(rows)
    return DashboardSnapshot(
        name="made-up",
        overview=Overview(
            at=NOW,
            cpu=_cluster("cores", 1.0),
            memory=_cluster("bytes", 3 * GIB),
            money=CostSummary(requested=8214.0, at_first=14890.0, used=5320.0, to_save=1240.0),
            states={state: sum(row.state == state for row in rows) for state in sorted({*STATES})},
            risks={"OOM": 2, "throttling": 1},
            nodes=12,
            nodes_needed=7,
            nodes_at_first=11,
            today={"applied": 14, "reverted": 1, "killed": 1},
            latest=history[:8],
        ),
        workloads=rows,
        details=tuple(_detail(row, history) for row in rows[:2]),
        intents=(_intent(),),
        nodes=tuple(_node(number) for number in range(4)),
        history=history,
    )


def _row(number: int, draw: random.Random) -> WorkloadRow:
    cpu, memory = draw.choice((0.25, 0.5, 1.0, 2.0)), draw.choice((256, 512, 1024, 4096)) * MIB
    share, pods, state = draw.uniform(0.15, 1.1), draw.randint(1, 12), draw.choice(STATES)
    return WorkloadRow(
        kind=draw.choice(("Deployment", "Deployment", "StatefulSet", "DaemonSet")),
        namespace=draw.choice(("shop", "payments", "search", "data", "platform")),
        name=f"{draw.choice(('web', 'api', 'cart', 'index', 'mailer', 'ledger'))}-{number:05d}",
        policy="shop/everything",
        mode="Auto",
        state=state,
        reason="no maintenance window is open" if state == "Pending" else "",
        pods=pods,
        has=ResourceSize(cpu=cpu, memory=memory, memory_limit=memory * 1.5),
        should=None
        if state == "Applied"
        else ResourceSize(cpu=cpu * share, memory=memory * share, memory_limit=memory * 1.5),
        used_cpu=cpu * share * 0.7,
        used_memory=memory * share * 0.8,
        cost=pods * (cpu * 23.0 + memory / GIB * 3.1),
        saving=0.0 if state == "Applied" else pods * (1 - share) * cpu * 23.0,
        risks=("OOM",) if draw.random() < 0.02 else (),
        changed=NOW - draw.uniform(0, 5) * DAY if state in {"Applied", "Reverted"} else None,
    )


def _wave(place: int, low: float, high: float) -> float:
    hour = TIMES[place] % DAY / HOUR
    return low + (high - low) * (0.5 - 0.5 * math.cos((hour - 3) / 24 * 2 * math.pi)) ** 2


def _cluster(unit: str, scale: float) -> Plot:
    decreases = tuple(
        scale * (118 - 52 * min(1.0, max(0.0, place / STEPS * 1.6 - 0.15))) for place in range(STEPS)
    )
    return Plot(
        unit=unit,
        times=TIMES,
        curves=(
            Curve(role=CurveRole.ALLOCATABLE, name="allocatable", values=(scale * 144,) * STEPS),
            Curve(role=CurveRole.REQUESTED, name="requested", values=decreases),
            Curve(
                role=CurveRole.USED,
                name="used",
                values=tuple(scale * _wave(place, 26, 55) for place in range(STEPS)),
            ),
        ),
    )


def _detail(row: WorkloadRow, history: tuple[HistoryEntry, ...]) -> WorkloadDetail:
    def plot(unit: str, now: float, later: float, limit: float | None) -> Plot:
        requested: CurveValues = (now,) * (STEPS // 2) + (later,) * (STEPS - STEPS // 2)
        curves = [
            Curve(
                role=CurveRole.USED,
                name="used",
                values=tuple(_wave(i, 0.3 * later, 0.9 * later) for i in range(STEPS)),
            ),
            Curve(role=CurveRole.REQUESTED, name="request", values=requested),
            Curve(
                role=CurveRole.RECOMMENDED, name="recommended", values=(None,) * 48 + (later,) * (STEPS - 48)
            ),
        ]
        if limit:
            curves.append(Curve(role=CurveRole.LIMIT, name="limit", values=(limit,) * STEPS))
        return Plot(unit=unit, times=TIMES, curves=tuple(curves))

    memory = row.has.memory or MIB
    return WorkloadDetail(
        row=row,
        containers=(
            ContainerDetail(
                name="app",
                has=row.has,
                should=row.should,
                cpu=plot("cores", row.has.cpu or 0.1, (row.has.cpu or 0.1) * 0.5, None),
                memory=plot("bytes", memory, memory * 0.6, memory * 1.5),
                explanation=(
                    FactorView(
                        name="usage", detail="2016 samples since 2027-01-08 08:00 UTC", source="prometheus"
                    ),
                    FactorView(
                        name="cpu target",
                        detail="410m: the hour of the day of the last week",
                        source="strategy trimtab",
                    ),
                    FactorView(
                        name="memory peak",
                        detail="256Mi -> 410Mi: never below its peak and a tenth",
                        source="usage",
                    ),
                ),
                backtest=(
                    BacktestResult(
                        strategy="trimtab",
                        cpu_slack=0.31,
                        cpu_under=0.012,
                        memory_slack=0.22,
                        kills_a_day=0.0,
                        cost=41.2,
                    ),
                    BacktestResult(
                        strategy="vpa",
                        cpu_slack=0.48,
                        cpu_under=0.02,
                        memory_slack=0.33,
                        kills_a_day=0.1,
                        cost=58.9,
                    ),
                ),
            ),
        ),
        events=tuple(entry for entry in history if entry.key == row.key),
    )


def _history(rows: tuple[WorkloadRow, ...]) -> tuple[HistoryEntry, ...]:
    found = []
    for number in range(120):
        row = rows[number % min(len(rows), 9)]
        what = ("applied", "applying", "recommended", "applied", "reverted")[number % 5]
        found.append(
            HistoryEntry(
                id=1000 - number,
                at=NOW - number * HOUR / 2,
                kind=row.kind,
                namespace=row.namespace,
                name=row.name,
                what=what,
                before="app: cpu 1, memory 1Gi",
                after="app: cpu 480m, memory 614Mi",
                who="policy shop/everything",
                why="restarts rose from 0 to 3"
                if what == "reverted"
                else "the recommendation of strategy trimtab",
                undo=what == "applied",
            )
        )
    return tuple(found)


def _intent() -> IntentView:
    latency: CurveValues = tuple(
        max(80.0, 190 - place * 0.6 + 12 * math.sin(place / 9)) for place in range(STEPS)
    )
    cores = tuple(0.1 * step for step in range(1, 21))
    fitted = tuple(60 + 40 / amount for amount in cores)
    return IntentView(
        namespace="shop",
        name="checkout-fast",
        workload="Deployment shop/checkout",
        priority=0.9,
        state="Applied",
        planned=NOW - HOUR,
        objectives=(
            ObjectiveView(
                name="p95 latency",
                unit="ms",
                target=120.0,
                now=96.0,
                met=True,
                plot=Plot(
                    unit="ms",
                    times=TIMES,
                    curves=(
                        Curve(role=CurveRole.USED, name="p95 latency", values=latency),
                        Curve(role=CurveRole.TARGET, name="target", values=(120.0,) * STEPS),
                    ),
                ),
            ),
        ),
        plan=(
            FactorView(name="resize", detail="cpu 400m -> 700m", source="p95 falls by 31 ms, at least by 18"),
        ),
        effects=(
            EffectView(
                name="cpu on p95 latency",
                points=len(cores) // 2,
                plot=Plot(
                    unit="ms",
                    along="cores",
                    times=cores,
                    curves=(
                        Curve(role=CurveRole.LOW, name="low", values=tuple(0.85 * each for each in fitted)),
                        Curve(role=CurveRole.HIGH, name="high", values=tuple(1.2 * each for each in fitted)),
                        Curve(role=CurveRole.ESTIMATE, name="estimate", values=fitted),
                        Curve(
                            role=CurveRole.DATA,
                            name="data",
                            values=tuple(
                                each * 1.04 if place % 2 else None for place, each in enumerate(fitted)
                            ),
                        ),
                    ),
                ),
            ),
        ),
    )


def _node(number: int) -> NodeSummary:
    return NodeSummary(
        name=f"node-{number}",
        cpu=16.0,
        memory=64 * GIB,
        cpu_requested=11.0 - 3 * number,
        memory_requested=(44.0 - 11 * number) * GIB,
        cpu_used=6.5 - 2 * number,
        memory_used=(31.0 - 9 * number) * GIB,
        pods=24 - 8 * number if number < 3 else 0,
        pressure={"cpu": 0.02 + 0.03 * number, "memory": 0.0, "io": 0.01},
        tiers=(
            TierSummary(name="Guaranteed", pods=4, cpu_requested=4.0, memory_requested=16 * GIB),
            TierSummary(name="Burstable", pods=14, cpu_requested=7.0, memory_requested=28 * GIB),
            TierSummary(name="BestEffort", pods=6),
        ),
        knobs=(
            KnobSummary(
                name="besteffort cpu.weight", value="2", why="latency-critical pods are near their budget"
            ),
        ),
    )
