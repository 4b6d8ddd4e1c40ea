"""Pods choose their QoS tier and cache class only where the administrator allows it."""

import pytest

from trimtab.api.nodeqospolicy import CACHE_CLASS, NodeQoSPolicySpec, TierNamespacesSpec
from trimtab.node.arbiter import KnobRef, Value
from trimtab.node.cgroups import CgroupVersion, QosClass
from trimtab.node.hooks.adjustments import RuntimeContainer
from trimtab.node.hooks.tier_defaults import TierDefaults
from trimtab.node.model import NodeView, Tier, resolve_cache_tier, resolve_tier

BANK_ONLY = TierNamespacesSpec.model_validate({"lsr": ["bank"], "ls": ["bank", "shop"]})


@pytest.mark.parametrize(
    ("namespace", "label", "qos", "tier"),
    [
        ("bank", "LSR", QosClass.BURSTABLE, Tier.LSR),
        ("shop", "LSR", QosClass.BURSTABLE, Tier.LS),
        ("shop", "LS", QosClass.BEST_EFFORT, Tier.LS),
        ("tenant", "LS", QosClass.BEST_EFFORT, Tier.BE),
        ("tenant", "LSR", QosClass.BEST_EFFORT, Tier.BE),
        ("tenant", "LSR", QosClass.GUARANTEED, Tier.LS),
        ("tenant", "BE", QosClass.GUARANTEED, Tier.BE),
        ("", "LSR", QosClass.GUARANTEED, Tier.LS),
    ],
)
def test_pod_chooses_a_better_tier_only_where_its_namespace_may(
    namespace: str, label: str, qos: QosClass, tier: Tier
) -> None:
    assert resolve_tier(label, qos, namespace, BANK_ONLY) is tier


@pytest.mark.parametrize(
    ("namespace", "named", "own", "tier"),
    [
        ("bank", "guaranteed", Tier.BE, Tier.LSR),
        ("shop", "guaranteed", Tier.LS, Tier.LS),
        ("shop", "burstable", Tier.BE, Tier.LS),
        ("tenant", "burstable", Tier.BE, Tier.BE),
        ("tenant", "guaranteed", Tier.BE, Tier.BE),
        ("tenant", "besteffort", Tier.LS, Tier.BE),
    ],
)
def test_pod_chooses_a_better_cache_class_only_where_its_namespace_may(
    namespace: str, named: str, own: Tier, tier: Tier
) -> None:
    assert resolve_cache_tier({CACHE_CLASS: named}, own, namespace, BANK_ONLY) is tier


@pytest.mark.parametrize(("namespace", "tier"), [("bank", "LSR"), ("tenant", "BE")])
async def test_container_starts_in_the_tier_that_its_namespace_may_choose(namespace: str, tier: str) -> None:
    def read_knob(_ref: KnobRef) -> Value | None:
        return None

    defaults = TierDefaults(read_knob, CgroupVersion.V2, NodeView(name="node", cpus=(), memory=0))
    defaults.policy = NodeQoSPolicySpec(tier_namespaces=BANK_ONLY)
    container = RuntimeContainer(
        namespace=namespace,
        pod="web",
        uid="uid",
        container="web",
        labels={"trimtab.io/qos": "LSR"},
        cgroup_parent="/kubepods/besteffort/poduid",
    )
    assert (await defaults(container)).env == {"TRIMTAB_QOS": tier}
