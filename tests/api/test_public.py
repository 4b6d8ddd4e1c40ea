"""The public names of `trimtab.api`: adding or removing one requires a change here."""

import trimtab.api

PROMISED = {
    "API_VERSION",
    "GROUP",
    "KINDS",
    "VERSION",
    "Condition",
    "Duration",
    "DurationError",
    "Intent",
    "InvalidObjectError",
    "KPIProfile",
    "LabelSelector",
    "NodeMetric",
    "NodeQoSPolicy",
    "ObjectMeta",
    "OptimizationPolicy",
    "OptimizationPolicySpec",
    "PolicyMode",
    "Quantity",
    "QuantityError",
    "Kind",
    "build_crd",
    "render_crd",
    "parse_memory_bytes",
    "parse_millicores",
    "format_problems",
}


def test_api_package_exports_what_it_lists() -> None:
    assert set(trimtab.api.__all__) == PROMISED
    assert all(hasattr(trimtab.api, name) for name in PROMISED)


def test_api_package_lists_each_kind_once() -> None:
    assert [kind.__name__ for kind in trimtab.api.KINDS] == [
        "OptimizationPolicy",
        "Intent",
        "KPIProfile",
        "NodeMetric",
        "NodeQoSPolicy",
    ]
