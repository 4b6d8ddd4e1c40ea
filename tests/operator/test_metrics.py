"""The names that dashboards and alerts rely on: all there, well formed, and none in the dashboard that is not."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import REGISTRY, CollectorRegistry, Histogram, generate_latest

from trimtab.cli.docsgen import render_operator
from trimtab.node.metrics import QosMetrics
from trimtab.operator.metrics import LabelHistogram, Metrics

ROOT = Path(__file__).parents[2]
DASHBOARD = ROOT / "deploy" / "grafana" / "trimtab.json"
ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yaml"

# These modules register metrics of their own when they are imported.
for module in ("cache.informer", "runtime.event_recorder", "runtime.leader_election", "runtime.workqueue"):
    importlib.import_module(f"trimtab.kube.{module}")

SEED = {
    "trimtab_workloads_monitored": ("namespace", "policy"),
    "trimtab_workloads_updated": ("namespace", "policy"),
    "trimtab_workloads_skipped": ("namespace", "policy", "reason"),
    "trimtab_reconciliation_duration_seconds": ("policy",),
    "trimtab_metrics_collection_duration_seconds": ("provider",),
    "trimtab_reconciliation_errors_total": ("policy", "error_type"),
    "trimtab_recommendations_total": ("policy",),
    "trimtab_applications_total": ("policy", "method"),
}


def exposed_series() -> set[str]:
    """The names of the series that a scrape may find."""
    suffixes = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("_total",), "gauge": ("",)}
    return {
        family.name + suffix
        for registry in (Metrics().registry, REGISTRY)
        for family in registry.collect()
        for suffix in suffixes.get(family.type, ())
    }


def queries() -> list[str]:
    dashboard: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]


def test_metrics_include_the_list_of_the_seed_with_labels() -> None:
    found = dict(re.findall(r"\| `(trimtab_\w+)` \| \w+ \| ([^|]*) \|", render_operator()))
    labels = {name: tuple(re.findall(r"`(\w+)`", text)) for name, text in found.items()}
    assert SEED.items() <= labels.items()


def test_metrics_of_a_deleted_policy_or_namespace_disappear() -> None:
    metrics = Metrics()
    metrics.remove_stale_labels("policy", {"shop/web", "review-7/web"})
    metrics.remove_stale_labels("namespace", {"shop", "review-7"})
    for policy in ("shop/web", "review-7/web", "default", ""):
        metrics.reconciliation_errors.labels(policy, "Unreachable").inc()
        metrics.usage_ratio.labels(policy, "cpu").observe(0.5)
    for namespace in ("shop", "review-7"):
        metrics.intent_plans.labels(namespace, "repair").inc()
    metrics.remove_stale_labels("policy", {"shop/web"})
    metrics.remove_stale_labels("namespace", {"shop"})
    text = metrics.render().decode()
    assert "review-7" not in text
    for kept in ('policy="shop/web"', 'policy="default"', 'policy=""', 'namespace="shop"'):
        assert kept in text


def test_metrics_of_two_operators_in_a_process_are_separate() -> None:
    one, other = Metrics(), Metrics()
    one.oom_kills.labels("a").inc()
    assert other.registry.get_sample_value("trimtab_oom_kills_total", {"policy": "a"}) is None


@pytest.mark.parametrize("query", queries())
def test_metrics_in_dashboard_queries_exist(query: str) -> None:
    promql_parser.parse(query)
    names = set(re.findall(r"trimtab_\w+", query))
    assert names
    assert names <= exposed_series()


def test_metrics_in_alerts_exist() -> None:
    registry = CollectorRegistry()
    QosMetrics(registry)
    known = exposed_series() | {f"{family.name}_total" for family in registry.collect()}
    # An agent's own are in its file: to start one takes a node.
    known |= set(re.findall(r'"(trimtab_agent_\w+)"', (ROOT / "src/trimtab/node/agent.py").read_text()))
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    for rule in (rule for group in groups for rule in group["rules"]):
        named = set(re.findall(r"trimtab_\w+", rule["expr"]))
        assert named
        assert named <= known


def test_metrics_of_the_operator_are_all_on_the_dashboard() -> None:
    shown = {
        re.sub(r"_bucket$", "", name) for query in queries() for name in re.findall(r"trimtab_\w+", query)
    }
    own = {
        family.name + ("_total" if family.type == "counter" else "")
        for family in Metrics().registry.collect()
    }
    assert own <= shown


BOUNDS = (0.1, 0.5, 1.0, 2.5)

amounts = st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from((*BOUNDS, 0.0, 0.3, 7.0, 1e9))))


@given(amounts)
def test_label_histogram_renders_like_the_prometheus_client(observed: list[tuple[str, float]]) -> None:
    own, theirs = CollectorRegistry(), CollectorRegistry()
    ours = LabelHistogram("trimtab_share", "A share", ("policy",), bounds=BOUNDS)
    own.register(ours)
    model = Histogram("trimtab_share", "A share", ("policy",), buckets=BOUNDS, registry=theirs)
    for policy, amount in observed:
        ours.labels(policy).observe(amount)
        model.labels(policy).observe(amount)
    expected = [line for line in generate_latest(theirs).decode().splitlines() if "_created" not in line]
    assert generate_latest(own).decode().splitlines() == expected


def test_label_histogram_times_a_block() -> None:
    ours = LabelHistogram("trimtab_seconds", "Seconds", ("policy",), bounds=BOUNDS)
    with ours.labels("p").time():
        pass
    (family,) = ours.collect()
    assert {sample.name: sample.value for sample in family.samples}["trimtab_seconds_count"] == 1
