"""How much more there is to have: of nodes, quotas and caps."""

from __future__ import annotations

from msgspec.structs import replace

from trimtab.intents.capacity import Room
from trimtab.intents.constraints import Limits
from trimtab.intents.state import PodState, Size, State
from trimtab.kube.kinds.nodes import Node
from trimtab.kube.kinds.nodes import Room as NodeRoom
from trimtab.kube.kinds.pods import Container, Pod, Resources
from trimtab.kube.kinds.quotas import Amounts, Quota
from trimtab.operator.config.intents import IntentSettings
from trimtab.operator.intents.capacity import room_of

GIB = 1 << 30
STATE = State(
    objectives={},
    pods=(PodState(name="web-0", node="a"),),
    replicas=1,
    sizes=(Size(container="web", cpu_request=1.0, memory_request=float(GIB)),),
)


def node(name: str, *, cpu: int = 4000, unschedulable: bool = False) -> Node:
    room = NodeRoom(cpu=cpu, memory=16 * GIB, pods=110)
    return Node(name, name, 1, room, room, True, unschedulable, 0, (), ())


def pod(name: str, on: str, cpu: int) -> Pod:
    container = Container("web", "main", Resources(cpu, None, GIB, None))
    return Pod(
        "shop", name, name, 1, on, "Running", "", True, False, 0, 0, 0, None, (), (), (container,), (), None
    )


def narrowed(
    *,
    quotas: tuple[Quota, ...] = (),
    nodes: tuple[Node, ...] = (),
    other: Pod | None = None,
    **guardrail: object,
) -> Limits:
    settings = IntentSettings.model_validate({"guardrails": [guardrail]})
    room: Room = room_of(
        nodes=nodes or (node("a"),),
        pods=[pod("web-0", "a", 1000), other or pod("other", "a", 500)],
        quotas=quotas,
        targets={"shop": [STATE]},
        settings=settings,
    )
    return room.narrowed(Limits(), STATE, "shop")


def test_what_runs_on_a_node_leaves_the_rest() -> None:
    limits = narrowed()
    assert limits.more_cpu_in_place == 2.5
    assert limits.more_pods == 2


def test_room_of_a_node_is_without_what_pods_have_as_a_whole_and_their_overhead() -> None:
    other = replace(
        pod("other", "a", 500), whole=Resources(cpu_request=1500), overhead=Resources(cpu_request=250)
    )
    assert narrowed(other=other).more_cpu_in_place == 1.25


def test_on_a_node_that_takes_nothing_new_pods_may_still_grow() -> None:
    limits = narrowed(nodes=(node("a", unschedulable=True),))
    assert limits.more_pods == 0
    assert limits.more_cpu_in_place == 2.5


def test_a_quota_and_a_cap_both_hold() -> None:
    quota = Quota(
        "shop", "q", "q", 1, Amounts(3000, None), Amounts(), Amounts(1500, None), Amounts(), scoped=False
    )
    assert narrowed(quotas=(quota,)).more_cpu == 1.5
    assert narrowed(quotas=(quota,), capCpu="2").more_cpu == 1.0
    assert narrowed(capPods=2).more_pods == 1
