"""Conversion between manifests and objects."""

import pytest
from pydantic import ValidationError

from trimtab.api import InvalidObjectError, OptimizationPolicy, Quantity
from trimtab.api.optimizationpolicy import OptimizationPolicySpec, PolicySelector, UpdateStrategy


def test_model_uses_field_names_of_kubernetes() -> None:
    spec = OptimizationPolicySpec(update_strategy=UpdateStrategy(allow_recreate=True))
    assert spec.model_dump()["updateStrategy"]["allowRecreate"] is True
    assert OptimizationPolicySpec.model_validate({"updateStrategy": {"allowRecreate": True}}) == spec


def test_model_omits_fields_that_were_omitted() -> None:
    written = OptimizationPolicy.read({"metadata": {"name": "it"}, "spec": {}}).to_manifest()
    assert written["metadata"] == {"name": "it"}
    assert "selector" not in written["spec"]
    assert "limitPolicy" not in written["spec"]
    assert "status" not in written


def test_model_distinguishes_an_empty_selector_from_none() -> None:
    everything = PolicySelector.model_validate({"namespaceSelector": {}})
    assert everything.model_dump() == {"namespaceSelector": {}}
    assert everything != PolicySelector()


def test_null_means_left_out() -> None:
    policy = OptimizationPolicy.read({"spec": {"weight": None, "resourceBounds": {"cpu": {"min": None}}}})
    assert policy.spec == OptimizationPolicySpec()


def test_model_objects_are_immutable() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        OptimizationPolicySpec().weight = 5  # type: ignore[misc]


def test_quantities_and_durations_are_written_canonically() -> None:
    policy = OptimizationPolicy.read(
        {"spec": {"reconciliationInterval": "90s", "resourceBounds": {"memory": {"max": "1.5Gi"}}}}
    )
    written = policy.to_manifest()["spec"]
    assert written["reconciliationInterval"] == "1m30s"
    assert written["resourceBounds"]["memory"]["max"] == "1536Mi"
    assert policy.spec.resource_bounds.memory.max == Quantity.from_bytes(1536 * 2**20)


def test_model_reports_all_problems_with_their_place() -> None:
    with pytest.raises(InvalidObjectError) as refused:
        OptimizationPolicy.read({"spec": {"mode": "auto", "wieght": 3}}, origin="policy.yaml")
    assert refused.value.problems == [
        "spec.mode: must be one of 'Auto', 'Recommend' or 'Disabled'",
        "spec.wieght: unknown field; check its spelling",
    ]
    assert str(refused.value).startswith("policy.yaml: spec.mode: ")
    assert "\n" not in str(refused.value)


def test_metadata_and_status_of_a_newer_version_are_read_past() -> None:
    policy = OptimizationPolicy.read(
        {"metadata": {"name": "it", "managedFields": []}, "status": {"observedGeneration": 2, "novelty": 1}}
    )
    assert policy.status.observed_generation == 2


def test_model_rejects_another_version_or_kind() -> None:
    with pytest.raises(InvalidObjectError, match=r"apiVersion: must be one of 'trimtab.io/v1alpha1'"):
        OptimizationPolicy.read({"apiVersion": "optipod.io/v1alpha1"})
    with pytest.raises(InvalidObjectError, match="kind: must be one of 'OptimizationPolicy'"):
        OptimizationPolicy.read({"kind": "Intent"})
