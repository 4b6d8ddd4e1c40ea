"""Events that the original planner recorded, read in its form and planned again with what was learned until then."""

import json
from pathlib import Path
from typing import Any

import pytest

from intents.services import GIB, actuators
from trimtab.errors import TrimtabError
from trimtab.intents.evaluation import median_error, replay
from trimtab.intents.ido_import import read_events
from trimtab.intents.planner import Purpose
from trimtab.intents.planners.astar import AStar


def event(at: int, *, p99: float, load: float, pods: int = 1, cpu: int = 500, **more: Any) -> dict[str, Any]:
    return {
        "_id": {"$oid": f"{at:024x}"},
        "name": "default/made-up",
        "timestamp": {"$date": f"2024-01-30T12:{at:02}:00.000Z"},
        "current_objectives": {"default/p99latency": p99, "default/throughput": load},
        "desired_objectives": {"default/p99latency": 100.0, "default/throughput": 0.0},
        "resources": {
            "0_cpu_limits": 100,
            "0_cpu_requests": 100,
            "1_cpu_limits": cpu,
            "1_cpu_requests": cpu,
            "1_memory_limits": int(GIB * 1000),
        },
        "annotations": {},
        "pods": {
            f"pod-{pod}": {"availability": 1.0, "nodename": "n", "state": "Running", "qosclass": "Burstable"}
            for pod in range(pods)
        },
        "data": [],
        "plan": None,
        **more,
    }


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    latencies = [
        event(at, p99=40 + 2 * load / pods / (cpu / 1000), load=load, pods=pods, cpu=cpu)
        for at, (load, pods, cpu) in enumerate(
            [
                (10.0, 1, 500),
                (20.0, 1, 500),
                (20.0, 2, 500),
                (20.0, 2, 1000),
                (30.0, 2, 1000),
                (10.0, 1, 1000),
            ]
            * 3
        )
    ]
    events = [event(30, p99=-1.0, load=-1.0), *latencies, event(31, p99=160.0, load=30.0)]
    path = tmp_path / "made_up__events.json"
    path.write_text(json.dumps(events))
    return path


def test_ido_import_reads_units_and_unknown_values(recording: Path) -> None:
    first, second, *_ = read_events(recording)
    assert first.state.objectives == {"default/p99latency": None, "default/throughput": None}
    assert second.state.cpu == 0.5
    assert second.state.memory == GIB
    assert second.state.main_size is not None
    assert second.state.main_size.container == "1"
    assert second.state.load == 10.0
    assert second.goal.objectives[0].less_is_better
    assert not second.goal.objectives[1].less_is_better


def test_replay_skips_unknown_states_and_improves_forecasts(recording: Path) -> None:
    cycles = replay(
        read_events(recording), planner=AStar(), actuators=actuators("scaleOut", "scaleIn", "resizeCPU")
    )
    assert cycles[0].plan.purpose is Purpose.KEEP
    assert cycles[-1].plan.purpose is Purpose.REACH
    late = [each for cycle in cycles[10:] for each in cycle.forecasts]
    learned, guessed, unchanged = (median_error(late, which) for which in range(3))
    assert learned < 0.15
    assert learned < guessed
    assert learned < unchanged


def test_ido_import_rejects_invalid_file(tmp_path: Path) -> None:
    with pytest.raises(TrimtabError, match="cannot be read as a list of records"):
        read_events(tmp_path / "none.json")


def _single(folder: Path) -> Path:
    path = folder / "single__events.json"
    path.write_text(json.dumps([event(1, p99=50.0, load=10.0)]))
    return path
