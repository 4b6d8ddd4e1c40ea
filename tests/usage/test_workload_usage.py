"""Test aggregation of pods to workloads: every sample is kept under one name."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from trimtab.kube.rest.resources import CRON_JOBS, DEPLOYMENTS
from trimtab.usage.pod_ownership import PodOwnerIndex, WorkloadContainer
from trimtab.usage.usage import Oom, PodContainer, Usage
from trimtab.usage.workload_usage import WorkloadOom, max_over_replicas, per_replica
from usage.test_pod_ownership import LETTERS, workload

Floats = npt.NDArray[np.float64]
NAN = np.nan
OWNERS = PodOwnerIndex([workload(DEPLOYMENTS, "web"), workload(CRON_JOBS, "nightly")])
WEB = WorkloadContainer("shop", "Deployment", "web", "app")
NIGHTLY = WorkloadContainer("shop", "CronJob", "nightly", "app")
STRANGER = PodContainer("shop", "stranger", "app")


def web(replica: int) -> PodContainer:
    return PodContainer("shop", f"web-6d4b75cb6d-{LETTERS[replica]}7k2p", "app")


def night(run: int) -> PodContainer:
    return PodContainer("shop", f"nightly-{28339200 + run}-x7k2p", "app")


def usage(containers: list[PodContainer], cpu: list[list[float]], memory: list[list[float]]) -> Usage:
    return Usage(
        containers=tuple(containers),
        start=600.0,
        step=60.0,
        cpu=np.array(cpu, np.float64).T,
        memory=np.array(memory, np.float64).T,
    )


def test_max_over_replicas_takes_maximum_of_each_resource() -> None:
    found = max_over_replicas(
        usage([web(0), web(1)], [[1, NAN, 3], [2, NAN, 1]], [[5, 5, NAN], [4, 6, NAN]]), OWNERS
    )
    assert found.containers == (WEB,)
    assert found.roles == ("main",)
    np.testing.assert_array_equal(found.cpu[:, 0], [2, NAN, 3])
    np.testing.assert_array_equal(found.memory[:, 0], [5, 6, NAN])


def test_aggregation_joins_runs_of_cron_job() -> None:
    runs = usage([night(0), night(1)], [[1, NAN, NAN], [NAN, NAN, 2]], [[5, NAN, NAN], [NAN, NAN, 6]])
    for found in (max_over_replicas(runs, OWNERS), per_replica(runs, OWNERS)):
        assert found.containers == (NIGHTLY,)
        np.testing.assert_array_equal(found.cpu, [[1], [NAN], [2]])
        np.testing.assert_array_equal(found.memory, [[5], [NAN], [6]])


def test_per_replica_keeps_column_per_replica() -> None:
    two = usage([web(0), night(0), web(1)], [[1, 2], [7, 8], [NAN, 3]], [[5, 5], [7, 7], [NAN, 6]])
    found = per_replica(two, OWNERS)
    assert found.containers == (NIGHTLY, WEB)
    np.testing.assert_array_equal(found.container, [0, 1, 1])
    np.testing.assert_array_equal(found.replica, [0, 0, 1])
    np.testing.assert_array_equal(found.cpu, [[7, 1, NAN], [8, 2, 3]])
    np.testing.assert_array_equal(found.to_trace().cpu, [[7, 1], [8, 3]])


def test_aggregation_lists_unowned_containers() -> None:
    found = max_over_replicas(usage([STRANGER, web(0)], [[9], [1]], [[9], [1]]), OWNERS)
    assert found.containers == (WEB,)
    assert found.unowned == (STRANGER,)
    nothing = max_over_replicas(usage([STRANGER], [[9]], [[9]]), OWNERS)
    assert nothing.containers == ()
    assert nothing.to_trace().container_count == 0
    assert per_replica(usage([STRANGER], [[9]], [[9]]), OWNERS).containers == ()


def test_max_over_replicas_skips_startup() -> None:
    starts = usage([web(0)], [[1, 2, NAN, 9, 8, 3]], [[1, 2, NAN, 9, 8, 3]])
    found = max_over_replicas(starts, OWNERS, skip_startup=120)
    np.testing.assert_array_equal(found.cpu[:, 0], [1, 2, NAN, NAN, NAN, 3])
    known = max_over_replicas(starts, OWNERS, skip_startup=120, started={("shop", web(0).pod): 590.0})
    np.testing.assert_array_equal(known.cpu[:, 0], [NAN, NAN, NAN, NAN, NAN, 3])


def test_max_over_replicas_reports_oom_with_preceding_memory_peak() -> None:
    killed = replace(
        usage([web(0)], [[1, 1, 1]], [[50, 70, 10]]),
        ooms=(Oom(720.0, web(0)), Oom(720.0, STRANGER), Oom(780.0, web(1))),
    )
    first, unsampled = max_over_replicas(killed, OWNERS).ooms
    assert first == WorkloadOom(720.0, 0, 70.0)
    assert unsampled[:2] == (780.0, 0)
    assert np.isnan(unsampled.memory)


@st.composite
def usages(draw: st.DrawFn) -> Usage:
    containers = draw(
        st.lists(st.one_of(st.integers(0, 5).map(web), st.integers(0, 5).map(night)), unique=True, min_size=1)
    )
    shape = (draw(st.integers(1, 6)), len(containers))
    values = st.one_of(st.just(NAN), st.floats(0, 100))
    cpu, memory = (
        np.array(draw(st.lists(values, min_size=shape[0] * shape[1], max_size=shape[0] * shape[1]))).reshape(
            shape
        )
        for _ in range(2)
    )
    return Usage(tuple(containers), 0.0, 60.0, cpu, memory)


@given(usages())
def test_per_replica_keeps_every_sample_and_its_maximum(usage: Usage) -> None:
    highest, kept = max_over_replicas(usage, OWNERS), per_replica(usage, OWNERS)
    assert highest.containers == kept.containers
    np.testing.assert_array_equal(kept.to_trace().cpu, highest.cpu)
    np.testing.assert_array_equal(kept.to_trace().memory, highest.memory)
    for number, name in enumerate(kept.containers):
        prefix = f"{name.name}-"
        given_columns = [i for i, one in enumerate(usage.containers) if one.pod.startswith(prefix)]
        kept_columns = np.flatnonzero(kept.container == number)
        for row in range(usage.steps):
            assert _pairs(usage.cpu[row], usage.memory[row], given_columns) == _pairs(
                kept.cpu[row], kept.memory[row], list(kept_columns)
            )


def _pairs(cpu: Floats, memory: Floats, columns: list[int]) -> list[str]:
    """Return the samples of a step as text, because NaN is not equal to itself."""
    pairs = [(float(cpu[i]), float(memory[i])) for i in columns]
    return sorted(str(pair) for pair in pairs if not np.isnan(pair).all())
