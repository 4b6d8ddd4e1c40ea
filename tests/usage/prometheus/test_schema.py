"""Test detection of container labels, throttling and OOM metrics."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from harness.peers.recorded_prometheus import RecordedServers
from trimtab.usage.errors import SourceRefused
from trimtab.usage.prometheus import Prometheus, PrometheusSettings
from trimtab.usage.prometheus.client import PrometheusClient
from trimtab.usage.source import Capabilities, UsageQuery
from trimtab.usage.usage import Oom, PodContainer, Usage
from usage.recording import CPU, MEMORY, SCRAPE, T0, MetricRecording, container_labels

QUERY = UsageQuery(start=T0, end=T0 + 3600, step=60)
APP = PodContainer("shop", "web", "app")


def _slug(request: pytest.FixtureRequest) -> str:
    """Return the name of the case, as the name of its server."""
    return str(request.node.callspec.id).replace(" ", "-")


def with_renamed_labels(**names: str) -> dict[str, str]:
    return {names.get(label, label): value for label, value in container_labels("web").items()}


Read = Callable[..., Awaitable[tuple[Usage, Capabilities]]]


@pytest.fixture
def read(servers: RecordedServers) -> Read:
    """Return a function that reads from a server of a name with these metrics."""
    return partial(read_from, servers)


async def read_from(
    servers: RecordedServers,
    name: str,
    recording: MetricRecording,
    *,
    ask: UsageQuery = QUERY,
    **settings: object,
) -> tuple[Usage, Capabilities]:
    with servers.serve(name, recording.text) as url:
        chosen = PrometheusSettings.model_validate({"url": url, **settings})
        async with Prometheus(chosen) as prometheus:
            return await prometheus.read(ask), prometheus.capabilities


@pytest.mark.parametrize(
    "labels",
    [
        pytest.param(container_labels("web"), id="cadvisor"),
        pytest.param({"namespace": "shop", "pod": "web", "container": "app"}, id="kubelet resource metrics"),
        pytest.param(with_renamed_labels(pod="pod_name", container="container_name"), id="before 1.16"),
        pytest.param(
            with_renamed_labels(
                namespace="exported_namespace", pod="exported_pod", container="exported_container"
            )
            | {"namespace": "kube-system", "pod": "cadvisor-x", "container": "cadvisor"},
            id="pushed aside by the scrape's own",
        ),
        pytest.param(
            {
                "container_label_io_kubernetes_pod_namespace": "shop",
                "container_label_io_kubernetes_pod_name": "web",
                "container_label_io_kubernetes_container_name": "app",
                "namespace": "kube-system",
                "pod": "cadvisor-x",
                "container": "cadvisor",
            },
            id="a cAdvisor that is a pod itself",
        ),
    ],
)
async def test_schema_detects_container_labels(
    labels: dict[str, str], read: Read, request: pytest.FixtureRequest
) -> None:
    recording = MetricRecording()
    recording.container(labels, cores=0.5, memory=1e8)
    usage, capabilities = await read(_slug(request), recording)
    assert usage.containers == (APP,)
    np.testing.assert_allclose(usage.cpu[3:, 0], 0.5)
    assert capabilities.interval == pytest.approx(SCRAPE, rel=0.1)
    assert replace(capabilities, interval=0.0) == Capabilities(history=True)
    assert usage.throttled is None
    assert usage.ooms is None


def second_cadvisor_labels(pod: str) -> dict[str, str]:
    """The labels of a container as a cAdvisor that is a pod itself has them, scraped with labels of its own."""
    own = {"namespace": "kube-system", "pod": "cadvisor-x", "container": "cadvisor", "job": "cadvisor"}
    return own | {"exported_namespace": "shop", "exported_pod": pod, "exported_container": "app"}


@pytest.mark.parametrize("raw", [True, False], ids=["raw samples", "queries"])
async def test_prometheus_reads_each_scrape_job_by_its_own_labels(
    read: Read, request: pytest.FixtureRequest, *, raw: bool
) -> None:
    """The exported_* labels of a second cAdvisor must not hide the series of the kubelets."""
    recording = MetricRecording()
    recording.container(container_labels("web"), cores=0.5, memory=1e8)
    recording.container(container_labels("db"), cores=0.25, memory=2e8)
    recording.container(second_cadvisor_labels("web"), cores=0.5, memory=1.5e8)
    recording.container(second_cadvisor_labels("elsewhere"), cores=0.125, memory=3e8)
    # The root cgroup of the node, which is not the usage of a container.
    machine = {**second_cadvisor_labels(""), "exported_namespace": "", "exported_container": "", "id": "/"}
    recording.container(machine, cores=60, memory=2e11)
    usage, _ = await read(f"two-cadvisors-{_slug(request)}", recording, raw_samples=raw)
    assert [container.pod for container in usage.containers] == ["db", "elsewhere", "web"]
    assert np.nanmax(usage.memory, axis=0).tolist() == [2e8, 3e8, 1.5e8]
    np.testing.assert_allclose(np.nanmax(usage.cpu, axis=0), [0.25, 0.125, 0.5], rtol=1e-3)


async def test_schema_error_names_the_exporters_that_are_not_trusted(read: Read) -> None:
    """A cAdvisor that runs in a namespace of its own is not left out without a word."""
    recording = MetricRecording()
    labels = second_cadvisor_labels("web") | {"namespace": "cadvisor"}
    recording.container(labels, cores=0.5, memory=1e8)
    with pytest.raises(
        SourceRefused, match=r"only from exporters in namespace cadvisor, .* exporter_namespaces"
    ):
        await read("untrusted-exporter", recording)
    usage, _ = await read("trusted-exporter", recording, exporter_namespaces=["cadvisor"])
    assert usage.containers == (APP,)


async def test_settings_can_name_custom_labels(read: Read) -> None:
    recording = MetricRecording()
    recording.container({"ns": "shop", "p": "web", "c": "app"}, cores=0.5, memory=1e8)
    usage, _ = await read(
        "custom-labels", recording, namespace_label="ns", pod_label="p", container_label="c"
    )
    assert usage.containers == (APP,)


async def test_schema_error_lists_labels_that_name_no_container(read: Read) -> None:
    recording = MetricRecording()
    recording.container({"name": "docker-1"}, cores=0.5, memory=1e8)
    with pytest.raises(SourceRefused, match=r"has only the labels __name__, name; let Prometheus scrape"):
        await read("no-container", recording)


async def test_schema_requires_selecting_one_of_several_clusters(read: Read) -> None:
    recording = MetricRecording()
    recording.container(container_labels("web", cluster="prod"), cores=0.5, memory=2e8)
    recording.container(container_labels("web", cluster="test"), cores=0.1, memory=1e8)
    with pytest.raises(
        SourceRefused,
        match=r"several clusters \(prod, test\); select one, for example with labels.cluster=prod",
    ):
        await read("two-clusters", recording)
    usage, _ = await read("two-clusters", recording, labels={"cluster": "test"})
    assert usage.memory[5, 0] == 1e8


@pytest.mark.parametrize("raw", [True, False], ids=["raw samples", "queries"])
async def test_exporter_of_a_tenant_forges_no_usage_of_other_namespaces(
    read: Read, request: pytest.FixtureRequest, *, raw: bool
) -> None:
    """A scrape keeps the namespace of the exporter, and its series may name any pods in labels beside it."""
    recording = MetricRecording()
    recording.container(container_labels("web"), cores=0.5, memory=1e8)
    exporter = {"namespace": "evil", "pod": "exporter-0", "container": "exporter"}
    forged = (
        {"exported_namespace": "shop", "exported_pod": "web", "exported_container": "app"},
        {
            "container_label_io_kubernetes_pod_namespace": "shop",
            "container_label_io_kubernetes_pod_name": "web",
            "container_label_io_kubernetes_container_name": "app",
        },
        {
            "kubernetes_namespace": "shop",
            "kubernetes_pod_name": "web",
            "container_name": "app",
        },
    )
    for number, labels in enumerate(forged):
        series = exporter | labels | {"job": f"evil-{number}"}
        recording.container(series, cores=8, memory=9e9)
        state = [(SCRAPE * i, float(i >= 40)) for i in range(120)]
        recording.add("container_oom_events_total", series, state)
        recording.add("kube_pod_container_status_restarts_total", series, state)
        killed = {**series, "reason": "OOMKilled"}
        recording.add("kube_pod_container_status_last_terminated_reason", killed, state)
    usage, _ = await read(f"forged-{_slug(request)}", recording, raw_samples=raw)
    assert {each.container.namespace for each in usage.ooms or ()} <= {"evil"}
    place = usage.containers.index(APP)
    assert np.nanmax(usage.memory[:, place]) == 1e8
    assert np.nanmax(usage.cpu[:, place]) < 0.51
    assert {each.namespace for each in usage.containers} <= {"shop", "evil"}


async def test_exporter_of_a_tenant_does_not_make_a_server_one_of_several_clusters(read: Read) -> None:
    recording = MetricRecording()
    own = {"namespace": "kube-system", "cluster": "prod"}
    recording.container(container_labels("dns") | own, cores=0.5, memory=1e8)
    recording.container(container_labels("web") | {"cluster": "prod"}, cores=0.5, memory=1e8)
    for cluster in ("test", "other"):
        recording.container(
            {"namespace": "evil", "pod": "a", "container": "b", "cluster": cluster}, cores=1, memory=1
        )
    usage, _ = await read("forged-clusters", recording)
    assert APP in usage.containers


async def test_prometheus_reads_throttling_and_ooms_if_available(read: Read) -> None:
    recording = MetricRecording()
    scrapes = range(120)
    app = container_labels("web")
    recording.container(app, cores=0.5, memory=1e8, scrapes=scrapes)
    for metric, each in (("periods", 300), ("throttled_periods", 75)):
        name = f"container_cpu_cfs_{metric}_total"
        recording.add(name, app, [(SCRAPE * i, each * i) for i in scrapes])
    recording.add("container_oom_events_total", app, [(SCRAPE * i, float(i >= 40)) for i in scrapes])
    # The same kill and a later one, as kube-state-metrics reports them under exported_* labels.
    state = {"exported_namespace": "shop", "exported_pod": "web", "exported_container": "app"}
    state |= {"namespace": "monitoring", "pod": "kube-state-metrics", "container": "main"}
    recording.add(
        "kube_pod_container_status_restarts_total",
        state,
        [(SCRAPE * i, float(i >= 41) + float(i >= 80)) for i in scrapes],
    )
    recording.add(
        "kube_pod_container_status_last_terminated_reason",
        {**state, "reason": "OOMKilled"},
        [(SCRAPE * i, 1) for i in scrapes if i >= 41],
    )
    usage, capabilities = await read("throttled-and-killed", recording)
    assert replace(capabilities, interval=0.0) == Capabilities(history=True, throttling=True, ooms=True)
    assert usage.throttled is not None
    np.testing.assert_allclose(usage.throttled[3:, 0], 0.25)
    assert usage.ooms == (Oom(T0 + 40 * SCRAPE, APP), Oom(T0 + 80 * SCRAPE, APP))
    without, capabilities = await read("throttled-and-killed", recording, throttling=False, ooms=False)
    assert without.throttled is None
    assert without.ooms is None
    assert replace(capabilities, interval=0.0) == Capabilities(history=True)


async def test_prometheus_reads_cpu_scraped_less_often_than_memory_rule(read: Read) -> None:
    recording = MetricRecording()
    for every, metric in ((15, "pod:memory"), (120, "container_cpu_usage_seconds_total")):
        times = [every * number for number in range(3600 // every + 1)]
        recording.add(
            metric, container_labels("web"), [(t, 0.5 * t if metric != "pod:memory" else 1e8) for t in times]
        )
    usage, _ = await read("rare-cpu", recording, memory_rule="pod:memory")
    assert np.isfinite(usage.cpu[10:50, 0]).all()
    np.testing.assert_allclose(usage.cpu[10:50, 0], 0.5)


async def test_capabilities_ignore_metrics_of_other_clusters(read: Read) -> None:
    recording = MetricRecording()
    recording.container(container_labels("web", cluster="test"), cores=0.5, memory=1e8)
    recording.add(
        "container_oom_events_total",
        container_labels("web", cluster="prod"),
        [(SCRAPE * i, 0.0) for i in range(120)],
    )
    _, capabilities = await read("ooms-elsewhere", recording, labels={"cluster": "test"})
    assert replace(capabilities, interval=0.0) == Capabilities(history=True)


async def test_has_usage_uses_memory_rule_and_cluster_label(servers: RecordedServers) -> None:
    recording = MetricRecording()
    for cluster, scrapes in (("prod", range(240)), ("test", range(120, 240))):
        samples = [(SCRAPE * i, 1e8) for i in scrapes]
        recording.add("pod:memory", container_labels("web", cluster=cluster), samples)
    with servers.serve("memory-rule", recording.text) as url:
        settings = PrometheusSettings(url=url, memory_rule="pod:memory", labels={"cluster": "test"})
        async with Prometheus(settings) as prometheus:
            assert await prometheus.has_usage(at=T0 + 200 * SCRAPE)
            assert not await prometheus.has_usage(at=T0 + 60 * SCRAPE)


def record_pods(pods: dict[str, int], *, until: int = 7200) -> MetricRecording:
    """Record pods that use half a core each, scraped at the given intervals in seconds."""
    recording = MetricRecording()
    for pod, every in pods.items():
        seconds = range(every // 2, until, every)
        recording.add(CPU, container_labels(pod), [(at, 0.5 * at) for at in seconds])
        recording.add(MEMORY, container_labels(pod), [(at, 1e8) for at in seconds])
    return recording


@pytest.mark.parametrize("minutes", [pytest.param(4, id="by queries"), pytest.param(60, id="by raw samples")])
async def test_prometheus_reads_cpu_of_containers_scraped_less_often(minutes: int, read: Read) -> None:
    every = {"a": 15, "b": 30, "c": 60, "d": 90, "e": 120}
    recording = record_pods(every)
    recording.add(CPU, container_labels("new"), [(at, 0.5 * at) for at in range(6780, 7200, 15)])
    recording.add(MEMORY, container_labels("new"), [(at, 1e8) for at in range(6780, 7200, 15)])
    ask = UsageQuery(start=T0 + 6900 - 60 * minutes, end=T0 + 6900, step=60)
    usage, _ = await read(f"{minutes}-minutes", recording, ask=ask)
    assert [name.pod for name in usage.containers] == [*every, "new"]
    known = np.isfinite(usage.cpu)
    assert (known[:, :5].sum(axis=0) >= minutes // 2).all()
    assert (known[:, 5].sum()) == 1  # its first steps, where a wide window is mostly empty, are not filled in
    np.testing.assert_allclose(usage.cpu[known], 0.5, rtol=1e-3)


async def test_prometheus_does_not_query_cpu_again_for_new_pods(
    read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = record_pods({"a": 30, "b": 30})
    recording.add(MEMORY, container_labels("new"), [(6890, 1e8)])
    for metric, each in ((CPU, 0.5), (MEMORY, 0.0)):  # its node was away for eight minutes
        there = [at for at in range(15, 7200, 30) if not 6330 < at < 6820]
        recording.add(metric, container_labels("c"), [(at, 1e8 + each * at) for at in there])
    queries: list[str] = []
    query_range = PrometheusClient.query_range

    async def record_query(self: PrometheusClient, promql: str, *rest: Any, **options: Any) -> Any:
        queries.append(promql)
        return await query_range(self, promql, *rest, **options)

    monkeypatch.setattr(PrometheusClient, "query_range", record_query)
    usage, _ = await read("new-pods", recording, ask=UsageQuery(start=T0 + 6900, end=T0 + 6960, step=60))
    assert [name.pod for name in usage.containers] == ["a", "b", "c", "new"]
    np.testing.assert_array_equal(np.isfinite(usage.cpu[0]), [True, True, True, False])
    assert len([promql for promql in queries if "rate(" in promql]) == 1


async def test_prometheus_reports_each_oom_once_between_steps(servers: RecordedServers) -> None:
    kills = {f"web-{number}": 600 + 60 * number for number in range(10)}
    recording = record_pods(dict.fromkeys(kills, 60), until=3600)
    for pod, killed in kills.items():
        counted = [(at, float(at >= killed)) for at in range(30, 3600, 60)]
        recording.add("container_oom_events_total", container_labels(pod), counted)
    reported: list[str] = []
    with servers.serve("ten-kills", recording.text) as url:
        async with Prometheus(PrometheusSettings(url=url)) as prometheus:
            for start in range(0, 3600, 600):  # part by part, as the past is read
                usage = await prometheus.read(UsageQuery(start=T0 + start, end=T0 + start + 600, step=300))
                reported += [oom.container.pod for oom in usage.ooms or ()]
            unasked = await prometheus.read(UsageQuery(start=T0, end=T0 + 3600, step=300, include_ooms=False))
            assert prometheus.capabilities.ooms, "capabilities do not depend on the query"
    assert sorted(reported) == list(kills)
    assert unasked.ooms is None


async def test_prometheus_check_reports_containers_scraped_less_often(
    servers: RecordedServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = record_pods({"often": 15, "seldom": 60}, until=3600)
    recording.add(MEMORY, container_labels("new"), [(3540, 1e8), (3555, 1e8)])
    monkeypatch.setattr("trimtab.usage.prometheus.source.time.time", lambda: T0 + 3590)
    with servers.serve("seldom-scraped", recording.text) as url:
        async with Prometheus(PrometheusSettings(url=url)) as source:
            detail = (await source.check()).detail
    assert "a sample every 15 s" in detail
    assert detail.endswith("; some containers only every 60 s")
