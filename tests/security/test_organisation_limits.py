"""Fields of a tenant's policy must not reach around a limit of the organisation by another name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actuation.builders import NOW, desired_change, observation, pod, workload
from harness.builders.records import policy
from trimtab.actuation.actions import ResizePod
from trimtab.actuation.decide.transitions import next_actions
from trimtab.actuation.effective_size import decide_boost, is_boosted
from trimtab.actuation.resources import SizeLimits
from trimtab.api import OptimizationPolicy
from trimtab.api.duration import Duration
from trimtab.api.optimizationpolicy import StartupBoost
from trimtab.kube.kinds.pod_requests import qos_class
from trimtab.kube.kinds.pods import Resources
from trimtab.operator.config.model import OperatorConfig
from trimtab.operator.policy.resolver import build_effective_policy
from trimtab.operator.policy.validation import review_policy
from trimtab.sizing.strategy import STRATEGIES, strategy

GIB = 1 << 30
CAREFUL = OperatorConfig.model_validate({"limits": {"maxSafetyFactor": 1.5}})
FACTORS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("percentile", {"safety_factor": 9}),
    ("percentile", {"safety_factor": "9"}),
    ("vpa", {"margin": 8}),
    ("vpa", {"oom_bump_ratio": 9}),
    ("trimtab", {"oom_bump": 9}),
    ("krr", {"memory_buffer": 8}),
    ("seasonal", {"cpu_margin": 8.0, "horizon": 60}),
    ("autopilot-ml", {"margins": [0.1, 8, 0.2]}),
)


@pytest.mark.parametrize(("name", "settings"), FACTORS)
def test_strategy_settings_do_not_exceed_the_safety_factor_of_the_organisation(
    name: str, settings: dict[str, Any]
) -> None:
    spec: dict[str, Any] = {"strategy": {"name": name, "settings": settings}}
    tenant = policy("web", namespace="app", **spec)
    problem = build_effective_policy(tenant, CAREFUL).problem
    field = min(settings)
    assert problem.startswith(f"spec.strategy.settings.{field}, as a factor: 9 is above the limit of your")
    assert not build_effective_policy(tenant, OperatorConfig()).problem
    stated = OptimizationPolicy.read(
        {"kind": "OptimizationPolicy", "metadata": {"name": "web", "namespace": "app"}, "spec": spec}
    )
    assert problem in review_policy(stated, others=(), config=CAREFUL).problems


@pytest.mark.parametrize("name", STRATEGIES.names())
def test_defaults_of_a_strategy_and_factors_within_the_limit_are_no_problem(name: str) -> None:
    tenant = policy("web", namespace="app", strategy={"name": name})
    assert not build_effective_policy(tenant, CAREFUL).problem


def test_smaller_factor_in_the_settings_replaces_the_default_one() -> None:
    strict = OperatorConfig.model_validate({"limits": {"maxSafetyFactor": 1.1}})
    tenant = policy("web", strategy={"name": "percentile", "settings": {"safety_factor": 1.05}})
    assert not build_effective_policy(tenant, strict).problem


def _targets(name: str, **settings: Any) -> tuple[float, float]:
    """Return the CPU and memory that a strategy asks for, as multiples of a steady usage with an OOM kill."""
    sized = strategy(name, 2, **settings)
    time, cpu, memory, random = 1.7e9, 100.0, 1e11, np.random.default_rng(1)
    for _ in range(96 * 2):
        share = 1 - 0.05 * random.random(2)
        sized.observe(time, cpu * share, memory * share)
        time += 900
    sized.observe_oom(time, np.array([0, 1]), np.array([memory, memory]))
    sized.observe(time, np.array([cpu, cpu]), np.array([memory, memory]))
    targets = sized.recommend(time + 60)
    return float(targets.cpu.target[0]) / cpu, float(targets.memory.target[0]) / memory


@pytest.mark.parametrize("name", STRATEGIES.names())
def test_strategies_declare_every_setting_that_multiplies_usage(name: str) -> None:
    usual, fields = _targets(name), STRATEGIES.load_type(name).settings_type.model_fields
    large = {
        field: tuple(5.0 for _ in info.default) if isinstance(info.default, tuple) else 5
        for field, info in fields.items()
        if isinstance(info.default, int | float | tuple) and not isinstance(info.default, bool)
    }
    undeclared = []
    for field, value in large.items():
        try:
            factors = STRATEGIES.list_usage_factors(name, {field: value})
            asked = _targets(name, **{field: value})
        except Exception:  # noqa: BLE001 - a value that this setting does not accept
            continue
        grown = max(now / before for now, before in zip(asked, usual, strict=True))
        if grown > 1.4 and field not in factors:
            undeclared.append(field)
    assert undeclared == []


LIMITS = SizeLimits(cpu=2000, memory=2 * GIB)
GREEDY = StartupBoost(factor=10, duration=Duration.parse("1h"))


def test_startup_boost_gives_no_more_cpu_than_the_organisation_permits() -> None:
    own = {"web": Resources(1000, None, GIB, GIB)}
    starting = pod(sizes=own, created=NOW - 10, ready=False)
    wanted = replace(desired_change(own, startup_boost=GREEDY), size_limits=LIMITS)
    (action,) = next_actions(observation(wanted, pods=[starting], on=workload(template=own)))
    assert isinstance(action, ResizePod)
    assert action.sizes == {"web": Resources(2000, None, GIB, GIB)}
    boosted = pod(sizes=action.sizes, created=NOW - 10, ready=False)
    assert is_boosted(boosted, own, GREEDY, now=NOW, limits=LIMITS)
    ready = pod(sizes=action.sizes, created=NOW - 10)
    assert decide_boost(ready, own, GREEDY, now=NOW, limits=LIMITS).sizes == own


@given(
    st.integers(1, 8000),
    st.none() | st.integers(1, 8000),
    st.floats(1, 10),
    st.none() | st.integers(1, 8000),
)
def test_bounded_boost_keeps_the_qos_class_and_lowers_nothing(
    request: int, limit: int | None, factor: float, most: int | None
) -> None:
    size = Resources(request, None if limit is None else max(limit, request), GIB, GIB)
    own, rule = {"web": size}, StartupBoost(factor=factor, duration=Duration.parse("1m"))
    starting = pod(sizes=own, created=NOW - 10, ready=False)
    found = decide_boost(starting, own, rule, now=NOW, limits=SizeLimits(cpu=most)).sizes or own
    got = found["web"]
    assert qos_class([got]) == qos_class([size])
    assert (got.cpu_request or 0) >= request
    assert got.cpu_limit is None or got.cpu_limit >= max(got.cpu_request or 0, size.cpu_limit or 0)
    assert most is None or (got.cpu_request or 0) <= max(most, request)


def test_size_at_the_limit_keeps_a_request_and_differs_from_it_where_it_can() -> None:
    least, own = SizeLimits(cpu=1), {"web": Resources(1, 1)}
    assert least.clamp({"web": Resources(1, 2)}, template=own)["web"].cpu == (1, 1)
    own = {"web": Resources(2, 2)}
    assert SizeLimits(cpu=2).clamp({"web": Resources(2, 4)}, template=own)["web"].cpu == (1, 2)
