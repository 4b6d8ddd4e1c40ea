"""Effects of actions on objectives: priors, learning from events, encoding."""

from math import exp, log, nan
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from intents.services import GIB, availability, goal, latency, make_plan, power, service, throughput
from trimtab.errors import TrimtabError
from trimtab.intents.effects.fit import add_priors, decode_effects, encode_effects, learn_effects
from trimtab.intents.effects.inputs import InputBatch
from trimtab.intents.effects.latency_model import LatencyModel
from trimtab.intents.effects.model import MAX_SPREAD, EffectModels, PredictedChanges
from trimtab.intents.effects.robust_fit import FitPoints, fit
from trimtab.intents.effects.samples import decode_state, encode_state
from trimtab.intents.effects.user_models import decode_user_model as given_by_hand
from trimtab.intents.objective import Objective
from trimtab.intents.planner import Purpose
from trimtab.intents.state import ContainerSize, TargetState
from trimtab.store.planner_records import Effect, PlannerEvent

WANTED = goal(latency(0.1))
WEB = ContainerSize(container="web", cpu_request=1.0, cpu_limit=2.0)


def truth(state: TargetState, *, floor: float = 0.02, work: float = 0.03, demand: float = 0.008) -> float:
    """A service as it really is: a queue, so that replicas and CPU both count."""
    busy = min(0.97, (state.load or 0) * demand / (state.replicas * (state.cpu or 1)))
    return floor + work / (state.cpu or 1) / (1 - busy)


def history(
    *, noise: float = 0.03, outliers: int = 0, count: int = 40, seed: int = 1
) -> list[tuple[float, TargetState]]:
    chance = np.random.default_rng(seed)
    found = []
    for at in range(count):
        state = service(
            replicas=int(chance.integers(1, 6)),
            cpu=float(chance.choice([0.5, 1.0, 2.0])),
            load=float(chance.uniform(20, 150)),
        )
        value = truth(state) * exp(chance.normal(0, noise))
        if at < outliers:
            value *= 20
        found.append((60.0 * at, replace(state, objectives={"p99": value})))
    return found


def predict_latency(effects: EffectModels, before: TargetState, after: TargetState) -> tuple[float, float]:
    (state,) = effects.predict(before, [after], group="scaling")
    return state.objectives["p99"] or 0.0, state.log_spread["p99"]


def test_prior_expects_more_pods_and_cpu_to_reduce_latency() -> None:
    state = service(p99=0.2, replicas=4, used=0.7)
    effects = add_priors(EffectModels(), WANTED, state)
    assert predict_latency(effects, state, replace(state, replicas=8))[0] < 0.2
    assert predict_latency(effects, state, replace(state, replicas=2))[0] > 0.3
    larger = replace(state, sizes=(replace(state.sizes[0], cpu_limit=2.0), *state.sizes[1:]))
    assert predict_latency(effects, state, larger)[0] < 0.15


def test_predict_under_load_expects_higher_latency() -> None:
    state = service(p99=0.05, load=100.0, used=0.6)
    effects = add_priors(EffectModels(), WANTED, state)
    assert predict_latency(effects, state, replace(state, load=150.0))[0] > 0.08


def test_latency_model_learns_samples_and_becomes_more_certain() -> None:
    before, after = service(replicas=2, load=120.0), service(replicas=4, load=120.0)
    before = replace(before, objectives={"p99": truth(before)})
    doubts = []
    for count in (0, 10, 80):
        effects = add_priors(learn_effects(WANTED, history(count=count), now=1e4), WANTED, before)
        value, doubt = predict_latency(effects, before, after)
        doubts.append(doubt)
    assert value == pytest.approx(truth(after), rel=0.1)
    assert max(doubts[1:]) < doubts[0] / 3


def test_latency_model_learns_without_load_and_usage() -> None:
    seen = [(at, replace(state, load=None)) for at, state in history()]
    before, after = (service(p99=0.1, replicas=many, load=None) for many in (2, 4))
    effects = add_priors(learn_effects(WANTED, seen, now=1e4), WANTED, before)
    assert 0.0 < predict_latency(effects, before, after)[0] <= 0.1


def test_latency_model_resists_outliers() -> None:
    before, after = service(replicas=2, load=120.0), service(replicas=4, load=120.0)
    before = replace(before, objectives={"p99": truth(before)})
    clean, dirty = (
        predict_latency(learn_effects(WANTED, history(count=60, outliers=outliers), now=1e4), before, after)[
            0
        ]
        for outliers in (0, 6)
    )
    assert dirty == pytest.approx(clean, rel=0.1)


def test_planner_uses_learned_effects() -> None:
    state = service(replicas=2, load=200.0)
    state, wanted = replace(state, objectives={"p99": truth(state)}), goal(latency(0.08))
    guessed = make_plan(state, wanted, by=("scaleOut",))
    learned = make_plan(
        state, wanted, by=("scaleOut",), effects=learn_effects(wanted, history(count=60), now=1e4)
    )
    assert guessed.purpose is not Purpose.REACH, "as far as can be guessed, pods alone are not enough"
    assert learned.purpose is Purpose.REACH
    assert [action.after.replicas for action in learned.actions] == [4]
    assert truth(replace(state, replicas=4)) <= 0.08 < truth(replace(state, replicas=3))


def test_planner_releases_more_with_better_known_effects() -> None:
    state = service(replicas=10, load=60.0)
    state = replace(state, objectives={"p99": truth(state)})
    wanted = goal(latency(0.12))
    guess = make_plan(state, wanted, by=("scaleIn",))
    sure = make_plan(
        state, wanted, by=("scaleIn",), effects=learn_effects(wanted, history(count=80), now=1e4)
    )
    assert sure.actions
    assert sure.saved >= guess.saved
    after = sure.actions[-1].after
    assert truth(after) <= 0.12


def test_user_model_takes_precedence_over_learned_model() -> None:
    state = service(p99=0.2, replicas=2)
    static = Effect(
        name="default/shop",
        group="vertical_scaling",
        profile_name="default/p99",
        data={"popt": [[0.3, 1.0, 0.01]], "cpuRange": [0.1, 4.0]},
        static=True,
        timestamp=0.0,
    )
    effects, troubles = decode_effects(
        WANTED,
        [static, *encode_effects(WANTED, learn_effects(WANTED, history(), now=1e4), cluster="prod", now=1e4)],
    )
    assert not troubles
    plan = make_plan(state, WANTED, by=("resizeCPU",), effects=effects)
    (action,) = plan.actions
    assert action.after.cpu == pytest.approx(1.8)
    assert action.after.objectives["p99"] == pytest.approx(
        0.2 * (0.3 * exp(-1.8) + 0.01) / (0.3 * exp(-1) + 0.01)
    )


def test_user_model_is_less_certain_outside_its_points() -> None:
    state = service(p99=0.2, replicas=2, load=4800.0)
    data = {"popt": [0.3, 0.2, 53.0, 0.015], "throughputScale": [0.002, 1.0], "replicaRange": [1, 4]}
    static = Effect(
        name="default/shop",
        group="scaling",
        profile_name="default/p99",
        data=data,
        static=True,
        timestamp=0.0,
    )
    effects, _ = decode_effects(WANTED, [static])
    inside, outside = (predict_latency(effects, state, replace(state, replicas=many))[1] for many in (4, 8))
    assert inside == 0
    assert outside > 0.3


def test_decode_effects_restores_encoded_models() -> None:
    wanted = goal(latency(0.1), availability(0.999), throughput(50.0), power(100.0))
    seen = [
        (
            at,
            replace(
                state,
                objectives={
                    **state.objectives,
                    "availability": 0.99,
                    "throughput": 40.0 + at / 60,
                    "power": 9.0,
                },
            ),
        )
        for at, state in history()
    ]
    effects = learn_effects(wanted, seen, now=1e4)
    kept = encode_effects(wanted, effects, cluster="prod", now=1e4)
    again, troubles = decode_effects(wanted, kept)
    assert not troubles
    state = replace(
        service(replicas=3), objectives={"p99": 0.1, "availability": 0.99, "throughput": 45.0, "power": 9.0}
    )
    assert again.predict(state, [replace(state, replicas=5)], group="scaling") == effects.predict(
        state, [replace(state, replicas=5)], group="scaling"
    )


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"model": "pickle"},
        {"model": "service", "parameters": {"level": 1.0}, "covariance": [[1.0]], "usualLoad": 1.0},
        {"model": "service", "parameters": "all"},
        {"model": "elastic", "powers": {"cpu": 1.0}, "covariance": []},
        {"model": "elastic", "powers": {"cpu": 1.0}, "covariance": [[1.0]]},
        {"model": "serving"},
    ],
)
def test_decode_effects_reports_unreadable_model_and_keeps_the_rest(data: dict[str, object]) -> None:
    effects, troubles = decode_effects(
        WANTED,
        [Effect(name="default/shop", group="learned", profile_name="default/p99", data=data, timestamp=0.0)],
    )
    assert not effects.learned_models
    assert len(troubles) == 1
    assert make_plan(service(p99=0.2), WANTED, effects=effects).actions


def test_learn_effects_skips_states_with_starting_pods() -> None:
    state = service(p99=5.0, replicas=3)
    half = replace(state, pods=(*state.pods[:2], replace(state.pods[2], state="Pending")))
    assert not learn_effects(WANTED, [(0.0, half)], now=0.0).learned_models


def test_decode_state_restores_encoded_state() -> None:
    state = replace(
        service(p99=None, replicas=2, used=0.5),
        cache_class="guaranteed",
        annotations={"team": "shop"},
        data={"cpu_value": {"node-0": 13.0}},
    )
    event = PlannerEvent(
        name="default/shop", timestamp=1.0, desired_objectives={"p99": 0.1}, **encode_state(state)
    )
    assert decode_state(event) == state


@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param(
            (WEB, ContainerSize(container="agent", cpu_request=0.1)), id="before one whose name comes first"
        ),
        pytest.param((ContainerSize(container="log"), WEB), id="after one that asks for nothing"),
    ],
)
def test_decode_state_restores_main_container(sizes: tuple[ContainerSize, ...]) -> None:
    state = replace(service(p99=0.2), sizes=sizes, main=sizes.index(WEB))
    event = PlannerEvent(
        name="default/shop", timestamp=1.0, desired_objectives={"p99": 0.1}, **encode_state(state)
    )
    assert decode_state(event).main_size == WEB
    assert learn_effects(WANTED, [(1.0, decode_state(event))], now=1.0).learned_models


def test_learn_effects_skips_states_without_main_container() -> None:
    """As those of before a change of the template do, in which it is called otherwise."""
    state = service(p99=0.2)
    before = replace(state, main=len(state.sizes))
    assert learn_effects(WANTED, [(0.0, before), (60.0, state)], now=60.0).learned_models
    assert add_priors(EffectModels(), WANTED, before).learned_models


def test_availability_model_learns_new_pod_availability_from_earlier_pods() -> None:
    wanted = goal(availability(0.99999))
    bad = [(0.0, service(replicas=30, pods=(0.5,) * 30, availability=0.9))]
    state = service(replicas=2, pods=(0.9, 0.9), availability=0.99)
    hopeful, wary = (
        add_priors(effects, wanted, state).predict(state, [replace(state, replicas=3)], group="scaling")[0]
        for effects in (EffectModels(), learn_effects(wanted, bad, now=0.0))
    )
    assert (hopeful.objectives["availability"] or 0) > (wary.objectives["availability"] or 0) > 0.99


def test_latency_model_expects_slowdown_below_needed_memory() -> None:
    seen = [
        (60.0 * at, service(p99=0.05 * max(1.0, (GIB / size)) ** 1.5, memory=size, memory_used=0.9 * GIB))
        for at in range(30)
        for size in (0.5 * GIB, GIB, 2 * GIB)
    ]
    state = service(p99=0.05, memory=2 * GIB, memory_used=0.9 * GIB)
    small = replace(state, sizes=(replace(state.sizes[0], memory_limit=GIB / 2), *state.sizes[1:]))
    assert predict_latency(learn_effects(WANTED, seen, now=0.0), state, small)[0] > 0.08


def test_robust_fit_matches_general_solver() -> None:
    from scipy.optimize import least_squares  # heavy, and else every process of the tests imports it

    chance = np.random.default_rng(3)
    x = chance.uniform(0, 3, 60)
    y = 1.0 - 0.7 * x + chance.normal(0, 0.1, 60)
    y[:5] += 3
    rows = np.column_stack([np.ones(60), x])
    prior, spread = np.zeros(2), np.full(2, 10.0)
    points = FitPoints(y, np.ones(60), np.zeros(60, dtype=np.bool_))
    ours = fit(lambda theta: (rows @ theta, rows), points, prior=prior, spread=spread)
    theirs = least_squares(lambda theta: rows @ theta - y, prior, loss="soft_l1", f_scale=ours.noise)
    assert ours.theta == pytest.approx(theirs.x, abs=5e-3)


@given(
    st.floats(0.001, 10), st.integers(1, 50), st.floats(0.05, 8), st.floats(0.02, 0.95), st.floats(1.05, 4.0)
)
def test_latency_prior_is_monotone_and_bounded_by_ideal_scaling(
    p99: float, replicas: int, cpu: float, used: float, factor: float
) -> None:
    state = service(p99=p99, replicas=replicas, cpu=cpu, used=used)
    effects = add_priors(EffectModels(), WANTED, state)
    faster = replace(state, sizes=(replace(state.sizes[0], cpu_limit=cpu * factor), *state.sizes[1:]))
    more = replace(state, replicas=replicas + 1)
    for after in (faster, more):
        value, doubt = predict_latency(effects, state, after)
        assert 0 < value <= p99
        assert doubt >= 0
    # Nothing gets faster by more than the CPU and the queue that are left explain.
    assert predict_latency(effects, state, faster)[0] >= p99 * 0.3


def test_latency_curve_passes_through_its_origin() -> None:
    from trimtab.intents.effects.samples import extract_samples

    (seen,) = extract_samples([(0.0, service(p99=0.123, used=0.4))], "p99")
    assert log(LatencyModel.from_prior(seen).predict_latency([seen.inputs])[0]) == pytest.approx(log(0.123))


def test_latency_model_ignores_saturation_at_timeout() -> None:
    """Saturated pods time out waiting requests, always after five seconds."""
    seen = [
        (60.0 * at, replace(service(p99=5.0, cpu=cpu, load=30 * cpu, used=0.99), objectives={"p99": 5.0}))
        for at, cpu in enumerate([0.5, 0.5, 0.6, 0.6, 0.8, 0.8, 1.0, 1.0, 1.2, 1.2] * 2)
    ]
    state = seen[-1][1]
    effects = learn_effects(WANTED, seen, now=1e4)
    larger = replace(state, sizes=(replace(state.sizes[0], cpu_limit=2.4), *state.sizes[1:]))
    value, doubt = predict_latency(effects, state, larger)
    assert value < 5.0 / 2, "as was thought beforehand"
    assert doubt > 0.1, "nothing was learned that would make it surer"
    assert make_plan(state, WANTED, by=("resizeCPU",), effects=effects).actions


def test_latency_model_ignores_last_histogram_bucket() -> None:
    seen = [
        (60.0 * at, replace(state, objectives={"p99": min(0.1, truth(state))}))
        for at, (_, state) in enumerate(history(count=60))
    ]
    assert sum(state.objectives["p99"] == 0.1 for _, state in seen) > 3
    before, after = service(cpu=0.5, replicas=1, load=40.0), service(cpu=1.0, replicas=1, load=40.0)
    before = replace(before, objectives={"p99": truth(before)})
    value, _ = predict_latency(learn_effects(WANTED, seen, now=1e4), before, after)
    assert value == pytest.approx(truth(after), rel=0.25)


def test_latency_model_learns_that_cpu_does_not_help_io_bound_service() -> None:
    """Idle pods that are slow: not a ceiling, but the truth."""
    seen = [
        (60.0 * at, service(p99=0.3 * (1 + 0.001 * (at % 3)), cpu=cpu, used=0.1))
        for at, cpu in enumerate([0.5, 1.0, 2.0, 4.0] * 10)
    ]
    state = seen[-1][1]
    larger = replace(state, sizes=(replace(state.sizes[0], cpu_limit=8.0), *state.sizes[1:]))
    assert predict_latency(learn_effects(WANTED, seen, now=1e4), state, larger)[0] > 0.28
    assert not make_plan(
        state, WANTED, by=("resizeCPU",), effects=learn_effects(WANTED, seen, now=1e4)
    ).actions


def test_latency_model_learns_limit_of_parallelism() -> None:
    seen = [
        (60.0 * at, service(p99=0.4 / min(cpu, 3.0), cpu=cpu, load=None, used=None))
        for at, cpu in enumerate([1.0, 1.5, 2.0, 4.0, 6.0] * 4)
    ]
    four, eight, half = (service(p99=0.4 / 3, cpu=cpu, load=None) for cpu in (4.0, 8.0, 0.75))
    effects = learn_effects(WANTED, seen, now=1e4)
    assert predict_latency(effects, four, eight)[0] == pytest.approx(0.4 / 3, rel=0.05)
    assert predict_latency(effects, four, half)[0] == pytest.approx(0.4 / 0.75, rel=0.15)


@settings(max_examples=100)
@given(
    st.lists(
        st.tuples(
            st.floats(0.001, 10),
            st.floats(0.1, 8),
            st.integers(1, 8),
            st.floats(1, 200),
            st.floats(0.02, 1.0),
        ),
        min_size=1,
        max_size=8,
    ),
    st.floats(1.05, 4.0),
)
def test_latency_model_never_expects_harm_from_more_resources(
    seen: list[tuple[float, float, int, float, float]], factor: float
) -> None:
    states = [
        (60.0 * at, service(p99=p99, cpu=cpu, replicas=replicas, load=load, used=used))
        for at, (p99, cpu, replicas, load, used) in enumerate(seen)
    ]
    state = states[-1][1]
    effects = learn_effects(WANTED, states, now=1e4)
    larger = replace(state, sizes=(replace(state.sizes[0], cpu_limit=(state.cpu or 1) * factor),))
    more = replace(state, replicas=state.replicas + 1)
    now = state.objectives["p99"] or 0.0
    assert predict_latency(effects, state, larger)[0] <= now * (1 + 1e-9)
    assert predict_latency(effects, state, more)[0] <= now * (1 + 1e-9)


@pytest.mark.parametrize(
    ("group", "data"),
    [
        ("vertical_scaling", {"popt": [[1.0, 0.5, -0.7]]}),
        ("scaling", {"popt": [-1.0, 0.2, 0.0, 0.01], "throughputScale": [0.002, 1.0]}),
    ],
)
def test_planner_accepts_user_curve_below_zero(group: str, data: dict[str, object]) -> None:
    effects = EffectModels(user_models={("p99", group): given_by_hand(group, data)})
    state = service(p99=0.3, used=0.8)
    changed = [service(p99=0.3, cpu=cpu, replicas=replicas) for cpu in (0.5, 4.0) for replicas in (1, 8)]
    assert all((each.objectives["p99"] or 0) > 0 for each in effects.predict(state, changed, group=group))


@pytest.mark.parametrize(
    ("group", "data"),
    [
        ("vertical_scaling", {"popt": [[1.0, -1000.0, 0.0]]}),
        ("vertical_scaling", {"popt": [[1e308, 1e308, 1e308]], "cpuRange": [0.0, 1e-300]}),
        ("scaling", {"popt": [1.0, 1e308, 1.0, 1e308], "throughputScale": [1e308, 1e308]}),
        ("scaling", {"popt": [1.0, 0.0, 1.0, -1000.0], "throughputScale": [1.0, 0.0]}),
        ("rdt", {"moves": {"guaranteed": 1e4}}),
        ("rdt", {"moves": {"guaranteed": 0.1}, "spread": 1e4}),
        ("rdt", {"moves": {"guaranteed": 0.1}, "spread": -1.0}),
    ],
)
def test_predict_rejects_user_model_with_impossible_values(group: str, data: dict[str, object]) -> None:
    effects = EffectModels(user_models={("p99", group): given_by_hand(group, data)})
    with pytest.raises(TrimtabError, match=f"the effect of {group} on p99 is out of range, .*: correct its"):
        make_plan(service(p99=0.3, used=0.8), goal(latency(0.1)), effects=effects)


def test_prior_predicts_finite_values_far_away() -> None:
    """As the dashboard does, of twice the pods that there are."""
    state = replace(service(replicas=300, used=0.5), objectives={"queue": 5.0})
    effects = add_priors(EffectModels(), goal(Objective(name="queue", value=10.0)), state)
    places = [replace(state, pods=(), replicas=count) for count in range(1, 601)]
    assert len(effects.predict(state, places, group="")) == 600


def test_robust_fit_rejects_values_too_far_apart() -> None:
    points = FitPoints(np.array([1.0, 2.0]), np.ones(2), np.zeros(2, dtype=np.bool_))
    with pytest.raises(ArithmeticError), np.errstate(all="ignore"):
        fit(lambda _: (np.zeros(2), np.full((2, 1), np.nan)), points, prior=np.zeros(1), spread=np.ones(1))


def test_latency_model_adapts_to_changed_unit_within_an_hour() -> None:
    """As after a KPIProfile is edited from milliseconds to seconds."""

    def observed_state(replicas: int, load: float, *, unit: float = 1.0) -> TargetState:
        busy = load * 0.008 / replicas
        return TargetState(
            objectives={"p99": 0.05 / (1 - min(busy, 0.95)) * unit},
            replicas=replicas,
            sizes=(ContainerSize(container="web", cpu_request=1.0, cpu_limit=1.0),),
            load=load,
            cpu_used=busy * replicas,
        )

    here = observed_state(7, 460)
    before = [
        (60.0 * n, observed_state(4 + (n // 60) % 3, 300 + 10 * (n % 20), unit=1000.0)) for n in range(300)
    ]
    recent = [(60.0 * (300 + n), observed_state(7, 450 + n % 30)) for n in range(60)]
    effects = learn_effects(WANTED, [*before, *recent], now=60.0 * 361)
    for replicas in (6, 8, 9):
        found, _ = predict_latency(effects, here, replace(here, replicas=replicas, objectives={}))
        assert found == pytest.approx(observed_state(replicas, 460).objectives["p99"], rel=0.05)


def test_decode_state_reads_an_event_of_the_first_version() -> None:
    event = PlannerEvent(
        name="shop/web",
        timestamp=1.0,
        current_objectives={"p99": 0.2},
        desired_objectives={},
        pods={"web-0": {"availability": 0.98, "nodename": "n", "state": "Running", "qosclass": "Burstable"}},
        resources={"web_cpu_limits": 0.5, "web_cpu_requests": 0.25},
        annotations={},
        plan=[{"name": "scaleOut", "properties": {"replicas": 2}}],
        data={
            "history": {"up": 10.0, "down": 1.0},
            "target": "Deployment/web uid",
            "state": {
                "replicas": 2,
                "containers": ["web"],
                "main": 0,
                "load": 30.0,
                "cpu_used": 0.1,
                "memory_used": None,
                "cache_class": None,
                "power_profile": None,
            },
        },
    )
    state = decode_state(event)
    assert (state.replicas, state.cpu, state.load, state.objectives) == (2, 0.5, 30.0, {"p99": 0.2})


@pytest.mark.parametrize(
    ("objective", "data"),
    [
        (availability(0.99), {"model": "serving", "version": 1, "new": 0.97, "samples": 3}),
        (
            throughput(100.0),
            {
                "model": "elastic",
                "version": 1,
                "powers": {"replicas": 1.0, "cpu": 0.5, "memory": 0.0, "load": 0.0},
                "order": ["replicas", "cpu", "memory", "load"],
                "covariance": np.eye(4).tolist(),
                "samples": 9,
            },
        ),
        (
            latency(0.1),
            {
                "model": "service",
                "version": 1,
                "parameters": dict.fromkeys(
                    ("level", "share", "speed", "demand", "scaling", "need", "knee"), 0.1
                ),
                "order": ["level", "share", "speed", "demand", "scaling", "need", "knee"],
                "covariance": np.eye(7).tolist(),
                "edge": 1.0,
                "usualLoad": 50.0,
                "usualReplicas": 2.0,
                "samples": 9,
                "noise": 0.1,
            },
        ),
    ],
)
def test_decode_effects_reads_models_of_the_first_version(objective: Objective, data: dict[str, Any]) -> None:
    wanted = goal(objective)
    stored = Effect(
        name=wanted.intent,
        group="learned",
        profile_name=objective.measured_by or objective.name,
        data={**data, "target": wanted.target},
        timestamp=1.0,
    )
    effects, problems = decode_effects(wanted, [stored])
    assert not problems
    assert effects.learned_models[objective.name].encode() == data


class ImpossibleModel:
    """A fit to measurements of many orders of magnitude."""

    def predict_changes(self, batch: InputBatch, value: float) -> PredictedChanges:
        del batch, value
        return [nan, nan], [0.0, 0.0]

    def encode(self) -> dict[str, Any]:
        return {}


def test_predict_knows_nothing_where_a_learned_model_is_impossible() -> None:
    now = service(p99=0.2)
    effects = EffectModels(learned_models={"p99": ImpossibleModel()})
    found = effects.predict(now, [now, now], group="scaling")
    assert [(each.objectives["p99"], each.log_spread["p99"]) for each in found] == [
        (now.objectives["p99"], MAX_SPREAD)
    ] * 2
