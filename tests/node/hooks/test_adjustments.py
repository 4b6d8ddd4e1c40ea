"""Adjustments of containers at their creation, and their encoding for the runtime."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from harness.builders.node_views import pod_view
from trimtab.api.nodeqospolicy import (
    CACHE_CLASS,
    CPUBurstPolicy,
    CPUBurstSpec,
    NodeQoSPolicySpec,
    ResctrlSpec,
    TierNamespacesSpec,
)
from trimtab.node.arbiter import KnobRef, Value
from trimtab.node.arbiter.host_knobs import CACHE_SHARES
from trimtab.node.cgroups import CgroupVersion
from trimtab.node.cgroups.knobs import CPU_PERIOD, CPU_QUOTA, CPUSET_CPUS
from trimtab.node.hooks import cri_codec, nri_codec
from trimtab.node.hooks.adjustments import NO_ADJUSTMENT, Adjustment, RuntimeContainer
from trimtab.node.hooks.messages import cri_pb2, nri_pb2
from trimtab.node.hooks.tier_defaults import TierDefaults, resolve_container_tier
from trimtab.node.model import NodeView, Tier

BE = "kubepods/besteffort"
HELD: Mapping[tuple[str, Any], Value] = {
    (BE, CPUSET_CPUS): frozenset({2, 3}),
    (BE, CPU_QUOTA): 40_000,
    (BE, CPU_PERIOD): 100_000,
    ("BE", CACHE_SHARES): {"L3:0": 3},
}


VIEW = NodeView(name="node", cpus=(), memory=1, pods=(pod_view(f"{BE}/pod7", uid="7"),))


def _subject(parent: str = f"/{BE}/pod1", **more: Any) -> RuntimeContainer:
    return RuntimeContainer(
        **{"namespace": "ns", "pod": "p", "uid": "u", "container": "c", "cgroup_parent": parent} | more
    )


async def _apply_defaults(
    subject: RuntimeContainer, policy: NodeQoSPolicySpec | None, version: CgroupVersion = CgroupVersion.V1
) -> Adjustment:
    def held(ref: KnobRef) -> Value | None:
        return HELD.get((ref.path, ref.knob))

    entitlement = TierDefaults(held, version, VIEW)
    entitlement.policy = policy
    return await entitlement(subject)


@pytest.mark.parametrize(
    ("parent", "labels", "expected"),
    [
        ("/kubepods/besteffort/pod1", {}, Tier.BE),
        ("kubepods-burstable-pod1.slice", {}, Tier.LS),
        ("/kubepods/pod1", {}, Tier.LS),
        ("/kubepods/burstable/pod1", {"trimtab.io/qos": "be"}, Tier.BE),
        ("/kubepods/pod1", {"trimtab.io/qos": "LSR"}, Tier.LSR),
    ],
)
def test_tier_defaults_read_tier_from_label_or_cgroup(
    parent: str, labels: dict[str, str], expected: Tier
) -> None:
    assert resolve_container_tier(_subject(parent, labels=labels), TierNamespacesSpec()) is expected


@pytest.mark.parametrize("parent", [f"/{BE}/pod1", "kubepods-besteffort-pod1.slice"])
async def test_tier_defaults_start_best_effort_container_with_its_tiers_cpus(parent: str) -> None:
    """CRI-O reports only the name of a slice."""
    found = await _apply_defaults(
        _subject(parent, quota=90_000, period=50_000), NodeQoSPolicySpec(resctrl=ResctrlSpec(enable=True))
    )
    assert found == Adjustment(cpus="2-3", quota=20_000, cache_class="BE", env={"TRIMTAB_QOS": "BE"})


@pytest.mark.parametrize(
    ("pod", "priority", "expected"),
    [
        pytest.param(f"{BE}/pod8", 0, Adjustment(cpus="1", quota=10_000), id="beside a critical pod"),
        pytest.param("kubepods/burstable/pod8", 0, Adjustment(cpus="1", quota=10_000), id="by its label"),
        pytest.param(f"{BE}/pod8", 2_000_001_000, Adjustment(cpus="0-3"), id="critical itself"),
    ],
)
async def test_tier_defaults_start_best_effort_container_with_its_own_pods_cpus(
    pod: str, priority: int, expected: Adjustment
) -> None:
    limits: Mapping[tuple[str, Any], Value] = {
        (BE, CPUSET_CPUS): frozenset(range(4)),
        (pod, CPUSET_CPUS): frozenset({1}),
        (pod, CPU_QUOTA): 10_000,
        (pod, CPU_PERIOD): 100_000,
    }
    view = pod_view(pod, uid="8", tier=Tier.BE, priority=priority)
    entitlement = TierDefaults(
        lambda ref: limits.get((ref.path, ref.knob)), CgroupVersion.V1, replace(VIEW, pods=(view,))
    )
    entitlement.policy = NodeQoSPolicySpec()
    subject = _subject(f"/{pod}", uid="8", quota=50_000, labels={"trimtab.io/qos": "BE"})
    assert replace(await entitlement(subject), env={}) == expected


async def test_tier_defaults_find_the_pods_cgroup_when_the_runtime_omits_it() -> None:
    found = await _apply_defaults(_subject("", uid="7", quota=90_000), NodeQoSPolicySpec())
    assert (found.quota, found.env) == (40_000, {"TRIMTAB_QOS": "BE"})
    assert await _apply_defaults(_subject("", uid="unheard of"), NodeQoSPolicySpec()) == NO_ADJUSTMENT


async def test_tier_defaults_keep_exclusive_cpus_of_a_container() -> None:
    assert (await _apply_defaults(_subject(cpus="0"), NodeQoSPolicySpec())).cpus is None


async def test_tier_defaults_set_no_resctrl_class_without_resctrl() -> None:
    policy = NodeQoSPolicySpec(resctrl=ResctrlSpec(enable=True))
    assert (await _apply_defaults(_subject("/kubepods/pod1"), policy)).cache_class is None


async def test_tier_defaults_prefer_the_annotated_resctrl_class() -> None:
    policy = NodeQoSPolicySpec(resctrl=ResctrlSpec(enable=True))
    named = {CACHE_CLASS: "besteffort"}
    assert (await _apply_defaults(_subject("/kubepods/pod1", annotations=named), policy)).cache_class == "BE"
    unknown = {CACHE_CLASS: "gold"}
    assert (await _apply_defaults(_subject(annotations=unknown), policy)).cache_class == "BE"


async def test_tier_defaults_set_no_burst_because_it_could_not_be_restored() -> None:
    policy = NodeQoSPolicySpec(cpu_burst=CPUBurstSpec(policy=CPUBurstPolicy.AUTO))
    found = await _apply_defaults(_subject("/kubepods/pod1", quota=30_000), policy, CgroupVersion.V2)
    assert found == Adjustment(env={"TRIMTAB_QOS": "LS"})


async def test_tier_defaults_change_nothing_without_a_policy() -> None:
    assert await _apply_defaults(_subject(), None) == NO_ADJUSTMENT


WANTED = Adjustment(cpus="1", quota=5000, cache_class="BE", env={"TRIMTAB_QOS": "BE"})


def test_nri_codec_sends_only_changed_fields() -> None:
    adjustment = nri_codec.build_adjustment(WANTED)
    assert [(each.key, each.value) for each in adjustment.env] == [("TRIMTAB_QOS", "BE")]
    resources = adjustment.linux.resources
    assert (resources.cpu.cpus, resources.cpu.quota.value, resources.rdt_class.value) == ("1", 5000, "BE")
    assert not resources.cpu.HasField("shares")
    assert nri_codec.build_update("id", Adjustment(cpus="0")).linux.resources == nri_pb2.LinuxResources(
        cpu=nri_pb2.LinuxCPU(cpus="0")
    )


def test_cri_codec_sends_the_same_changes_and_keeps_the_rest() -> None:
    request = cri_pb2.CreateContainerRequest(pod_sandbox_id="s")
    request.config.linux.resources.memory_limit_in_bytes = 7
    request.config.envs.add(key="A", value=b"b")
    cri_codec.adjust_create_request(request, WANTED)
    resources = request.config.linux.resources
    assert (resources.cpuset_cpus, resources.cpu_quota, resources.memory_limit_in_bytes) == ("1", 5000, 7)
    assert {each.key: each.value for each in request.config.envs} == {"A": b"b", "TRIMTAB_QOS": b"BE"}
    assert dict(request.config.annotations) == {"io.kubernetes.cri.rdt-class": "BE"}


def test_cri_codec_reads_only_fields_that_the_kubelet_set() -> None:
    pod = cri_pb2.PodSandbox(metadata=cri_pb2.PodSandboxMetadata(name="p", uid="u", namespace="ns"))
    seen = cri_codec.parse_update_request(pod, "c", cri_pb2.LinuxContainerResources(cpu_quota=20_000))
    assert seen == _subject("", quota=20_000)
