"""The webhook behind a real API server: kubectl's output, and the life of its certificate."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from structlog.testing import capture_logs

from harness import process
from harness.builders.certificates import LOOPBACK, Authority, Pair
from harness.cluster.cluster import Cluster, KubectlError
from harness.e2e.informer_probe import eventually
from trimtab.kube.auth import load_connection
from trimtab.kube.cache.informer import Informer
from trimtab.kube.errors import ConfigError, NotFound
from trimtab.kube.kinds.policies import Policy, policy_projection
from trimtab.kube.rest.client import Client, Object
from trimtab.kube.rest.resources import OPTIMIZATION_POLICIES
from trimtab.operator.app import OperatorApp
from trimtab.operator.config.model import OperatorConfig
from trimtab.operator.config.reloader import ConfigReloader
from trimtab.operator.metrics import Metrics
from trimtab.operator.policy.validation import GUARDRAIL_ANNOTATION
from trimtab.operator.webhook import registration
from trimtab.operator.webhook.certificates import SECRETS, generate_certificate
from trimtab.operator.webhook.certificates import ServingCertificate as ServingPair
from trimtab.operator.webhook.lifecycle import WebhookLifecycle
from trimtab.operator.webhook.registration import CONFIGURATION_NAME, MUTATING, VALIDATING
from trimtab.operator.webhook.server import AdmissionHandlers

UNKNOWN_STRATEGY = {"strategy": {"name": "crystal-ball"}}
LIMITS = {"maxCpu": "4", "maxMemory": "8Gi", "forbiddenStrategies": ["krr"]}


def manifest(name: str, spec: dict[str, Any] | None = None, *, guardrail: str | None = None) -> str:
    annotations = {"annotations": {GUARDRAIL_ANNOTATION: guardrail}} if guardrail else {}
    kind = {"apiVersion": "trimtab.io/v1alpha1", "kind": "OptimizationPolicy"}
    return yaml.safe_dump({**kind, "metadata": {"name": name, **annotations}, "spec": spec or {}})


class WebhookReplica:
    """One operator's webhook on a port of its own, with a clock that can be set."""

    def __init__(
        self, client: Client, cluster: Cluster, namespace: str, *, port: int, **webhook: Any
    ) -> None:
        self._cluster = cluster
        self.namespace = namespace
        self.port = port
        place = {"address": f"127.0.0.1:{port}", "url": f"https://127.0.0.1:{port}"}
        self.config = OperatorConfig.model_validate(
            {"namespace": namespace, "limits": LIMITS, "webhook": place | webhook}
        )
        self.present: Callable[[], list[Policy]] = list
        self.now = datetime.now(UTC)
        self.metrics = Metrics()
        self.gate = WebhookLifecycle(client, self.config, now=lambda: self.now, metrics=self.metrics)
        self.admission = AdmissionHandlers(
            config=lambda: self.config, policies=self._policies, metrics=self.metrics
        )

    def _policies(self) -> list[Policy]:
        return self.present()

    async def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """In a thread: the API server asks us before it answers."""
        return await asyncio.to_thread(self._cluster.kubectl, "-n", self.namespace, *arguments, stdin=stdin)

    async def apply(self, text: str, *options: str) -> str:
        return await self.kubectl("apply", "-f", "-", *options, stdin=text)

    async def rejection(self, text: str, *options: str) -> str:
        with pytest.raises(KubectlError) as refused:
            await self.apply(text, *options)
        return str(refused.value)

    async def until(self, condition: Callable[[str], bool], text: str) -> None:
        """The API server hears of a new registration in its own time."""
        async with asyncio.timeout(60):
            while True:
                try:
                    answer = await self.apply(text, "--dry-run=server")
                except KubectlError as error:
                    answer = str(error)
                if condition(answer):
                    return

    async def until_asked(self) -> None:
        await self.until(lambda answer: "is invalid" in answer, manifest("probe", UNKNOWN_STRATEGY))

    def shown_certificate(self) -> str:
        """Return the certificate that the server presents."""
        return ssl.get_server_certificate(("127.0.0.1", self.port)).strip()


@pytest.fixture
async def replica_of(
    client: Client, cluster: Cluster, kinds: None, namespace: str
) -> AsyncIterator[Callable[..., WebhookReplica]]:
    """Makes replicas, which are not listening yet; at the end the API server knows of none."""

    def make(*, port: int | None = None, **webhook: Any) -> WebhookReplica:
        return WebhookReplica(client, cluster, namespace, port=port or process.free_port(), **webhook)

    yield make
    for resource in (VALIDATING, MUTATING):
        await client.delete(resource, CONFIGURATION_NAME)


@pytest.fixture
async def replica(replica_of: Callable[..., WebhookReplica], client: Client) -> AsyncIterator[WebhookReplica]:
    """One that is asked, and knows the policies that are there."""
    one = replica_of()
    informer = Informer(client, OPTIMIZATION_POLICIES, policy_projection())
    one.present = lambda: list(informer.cache)
    async with one.gate.serve(one.admission.build_application()):
        following = asyncio.create_task(informer.run())
        keeping = asyncio.create_task(one.gate.run())
        await informer.wait_synced(60)
        await one.until_asked()
        yield one
        for task in (following, keeping):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def test_webhook_rejects_with_field_and_fix(replica: WebhookReplica) -> None:
    output = await replica.rejection(manifest("web", UNKNOWN_STRATEGY))
    assert (
        "The OptimizationPolicy \"web\" is invalid: spec.strategy.name: strategy 'crystal-ball' is not known"
        in output
    )
    both = {"metricsConfig": {"provider": "abacus"}, "strategy": {"name": "krr"}}
    output = await replica.rejection(manifest("web", both, guardrail="sum(rate(errors))"))
    assert "spec.metricsConfig.provider: the operator has no usage source 'abacus'" in output
    assert "spec.strategy.name: krr is forbidden by your organisation" in output
    assert "is not valid PromQL" in output
    output = await replica.rejection(manifest("web", {"resourceBounds": {"cpu": {"max": "8"}}}))
    assert "spec.resourceBounds.cpu.max: 8 is above the limit of your organisation; use at most 4" in output
    output = await replica.rejection(manifest("web", {"resourceBounds": {"cpu": {"min": "2", "max": "1"}}}))
    assert "must not exceed max" in output, "the CRD says so before we are asked"
    assert "NotFound" in await asyncio.to_thread(_missing, replica)


def _missing(replica: WebhookReplica) -> str:
    with pytest.raises(KubectlError) as absent:
        replica._cluster.kubectl("-n", replica.namespace, "get", "optimizationpolicy", "web")
    return str(absent.value)


async def test_webhook_admits_with_the_maxima_of_the_organisation(replica: WebhookReplica) -> None:
    bounds = {"resourceBounds": {"memory": {"max": "1Gi"}}}
    assert "created" in await replica.apply(manifest("web", {"mode": "Auto", **bounds}))
    kept = json.loads(await replica.kubectl("get", "optimizationpolicy", "web", "-o", "json"))["spec"]
    assert kept["resourceBounds"]["cpu"]["max"] == "4"
    assert kept["resourceBounds"]["memory"]["max"] == "1Gi"
    reviews = "trimtab_webhook_reviews_total"
    asked = {"webhook": "validate", "answer": "admitted"}
    assert (replica.metrics.registry.get_sample_value(reviews, asked) or 0) >= 1


async def test_webhook_warns_of_an_overlap_with_equal_weight(replica: WebhookReplica) -> None:
    await replica.apply(manifest("one", {"weight": 137}))
    async with asyncio.timeout(60):
        while "one" not in [policy.name for policy in replica.present()]:
            await asyncio.sleep(0.02)
    output = await replica.rejection(
        manifest("two", {"weight": 137}), "--warnings-as-errors", "--dry-run=server"
    )
    assert f"Warning: spec.weight: 137 is the weight of {replica.namespace}/one too" in output
    assert "created" in await replica.apply(manifest("two", {"weight": 137}))


async def test_webhook_admits_labels_and_deletion_of_a_policy_that_limits_exclude(
    replica: WebhookReplica,
) -> None:
    def limit(**limits: Any) -> None:
        output = OperatorConfig.model_validate({"limits": limits}).limits
        replica.config = replica.config.model_copy(update={"limits": output})

    limit()
    await replica.apply(manifest("web", {"mode": "Auto", "strategy": {"name": "vpa"}}))
    limit(maxCpu="4", forbiddenModes=["Auto"], forbiddenStrategies=["vpa"])
    assert "labeled" in await replica.kubectl("label", "optimizationpolicy", "web", "team=shop")
    patch = ("patch", "optimizationpolicy", "web", "--type=merge", "-p", '{"spec":{"weight":7}}')
    with pytest.raises(KubectlError, match=r"spec\.mode: Auto is forbidden"):
        await replica.kubectl(*patch)
    assert "deleted" in await replica.kubectl("delete", "optimizationpolicy", "web")


@pytest.mark.parametrize("body", [b"", b"[]", b'{"request": {}}', b"\xff", b'{"request": {"uid": "\xff"}}'])
async def test_webhook_does_not_answer_an_invalid_request(replica: WebhookReplica, body: bytes) -> None:
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"https://127.0.0.1:{replica.port}/validate", data=body, ssl=False) as answer,
    ):
        assert answer.status == 400
        assert "not an AdmissionReview" in await answer.text()


async def test_webhook_failure_is_no_decision(replica: WebhookReplica) -> None:
    def broken() -> list[Policy]:
        raise RuntimeError("a bug")

    replica.present = broken
    output = await replica.rejection(manifest("web"))
    assert "failed calling webhook" in output, "and failurePolicy decides"


async def test_webhook_fails_closed_or_open_as_configured(replica_of: Callable[..., WebhookReplica]) -> None:
    closed = replica_of()
    async with closed.gate.serve(closed.admission.build_application()):
        await closed.gate.reconcile()
        await closed.until_asked()
    output = await closed.rejection(manifest("web"))
    assert "failed calling webhook" in output
    opened = replica_of(port=closed.port, failurePolicy="Ignore")
    await opened.gate.reconcile()  # registers the webhook but does not listen
    await opened.until(lambda answer: "created" in answer, manifest("web", UNKNOWN_STRATEGY))
    assert "created" in await opened.apply(manifest("web", UNKNOWN_STRATEGY))


async def test_webhook_that_is_disabled_rejects_nothing(replica_of: Callable[..., WebhookReplica]) -> None:
    before = replica_of()
    await before.gate.reconcile()
    await before.until(lambda answer: "failed calling webhook" in answer, manifest("web"))
    after = replica_of(port=before.port, enabled=False)
    async with after.gate.serve(after.admission.build_application()):
        await after.gate.reconcile()
        await after.until(lambda answer: "created" in answer, manifest("web", UNKNOWN_STRATEGY))
    assert after.gate.readiness_error() == ""


@pytest.mark.parametrize("dry_run", [False, True])
async def test_webhook_is_removed_when_disabled_unless_in_dry_run(
    replica_of: Callable[..., WebhookReplica],
    cluster: Cluster,
    client: Client,
    tmp_path: Path,
    *,
    dry_run: bool,
) -> None:
    """A dry run on a laptop must not remove the webhook of the operator in the cluster."""
    before = replica_of()
    await before.gate.reconcile()
    settings = {
        "namespace": before.namespace,
        "dryRun": dry_run,
        "webhook": {"enabled": False},
        "metricsSource": {"provider": "metrics-server"},
        "store": {"url": str(tmp_path / "trimtab.db")},
        "address": "127.0.0.1:0",
    }
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(settings))
    config = ConfigReloader(tmp_path / "config.yaml", environment={})
    with capture_logs() as logs:
        running = asyncio.create_task(
            OperatorApp(load_connection(kubeconfig=cluster.kubeconfig), config).run()
        )
        if dry_run:
            await eventually(lambda: any(each["event"] == "lease.acquired" for each in logs), what="it leads")
            found = await client.get(VALIDATING, CONFIGURATION_NAME)
            assert found["webhooks"][0]["failurePolicy"] == "Fail"
        else:
            await before.until(lambda answer: "created" in answer, manifest("web", UNKNOWN_STRATEGY))
        running.cancel()
        await asyncio.wait([running])


async def registered_webhooks(client: Client) -> list[Object]:
    """Return our webhook configurations of the API server."""
    found = []
    for resource in (VALIDATING, MUTATING):
        with suppress(NotFound):
            found.append(await client.get(resource, CONFIGURATION_NAME))
    return found


@asynccontextmanager
async def beside_the_cluster(
    cluster: Cluster, namespace: str, folder: Path, **webhook: Any
) -> AsyncIterator[list[Any]]:
    """An operator that runs outside the cluster, with what it logs; it has ended with the block."""
    settings = {
        "namespace": namespace,
        "webhook": webhook,
        "metricsSource": {"provider": "metrics-server"},
        "store": {"url": str(folder / "trimtab.db")},
        "address": "127.0.0.1:0",
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(settings))
    config = ConfigReloader(folder / "config.yaml", environment={})
    with capture_logs() as logs:
        operator = OperatorApp(load_connection(kubeconfig=cluster.kubeconfig), config)
        running = asyncio.create_task(operator.run())
        yield logs
        running.cancel()
        await asyncio.wait([running])


async def test_operator_outside_the_cluster_registers_no_unreachable_webhook(
    replica_of: Callable[..., WebhookReplica], cluster: Cluster, client: Client, tmp_path: Path
) -> None:
    namespace = replica_of().namespace
    async with beside_the_cluster(cluster, namespace, tmp_path) as logs:
        await eventually(lambda: any(each["event"] == "lease.acquired" for each in logs), what="it leads")
        (output,) = [each for each in logs if each["event"] == "webhook.not_registered"]
        assert "Set webhook.url" in output["fix"]
        assert await registered_webhooks(client) == []
        await asyncio.to_thread(
            cluster.kubectl, "apply", "-n", namespace, "-f", "-", stdin=manifest("web", UNKNOWN_STRATEGY)
        )
    assert await registered_webhooks(client) == []


async def test_webhook_by_url_replaces_the_service_of_the_manifests_and_returns_to_it(
    replica_of: Callable[..., WebhookReplica], client: Client
) -> None:
    one = replica_of()
    service = registration.build_service_reference("/", service="trimtab-webhook", namespace=one.namespace)
    for resource in (VALIDATING, MUTATING):
        webhook = registration.build_policy_webhook(client=service)
        await client.create(resource, registration.build_configuration(resource, webhook))  # as Helm does
    authority = generate_certificate([one.namespace], validity=timedelta(days=1), now=one.now).authority
    in_cluster = one.config.webhook.model_copy(update={"url": None})
    for settings, reached_by in ((one.config.webhook, "url"), (in_cluster, "service")):
        await registration.WebhookRegistration(client, settings, one.namespace).publish(
            authority, now=one.now
        )
        for each in await registered_webhooks(client):
            (webhook,) = each["webhooks"]
            assert webhook["clientConfig"].keys() == {reached_by, "caBundle"}


async def test_operator_outside_the_cluster_removes_its_webhook_when_it_ends(
    replica_of: Callable[..., WebhookReplica], cluster: Cluster, client: Client, tmp_path: Path
) -> None:
    one = replica_of()
    place = {"address": f"127.0.0.1:{one.port}", "url": f"https://127.0.0.1:{one.port}"}
    async with beside_the_cluster(cluster, one.namespace, tmp_path, **place):
        await one.until_asked()
        assert len(await registered_webhooks(client)) == 2
    assert await registered_webhooks(client) == []
    await one.until(lambda answer: "created" in answer, manifest("web", UNKNOWN_STRATEGY))


async def test_webhook_lifecycle_removes_only_its_own_registration(
    replica_of: Callable[..., WebhookReplica], client: Client
) -> None:
    first, second = replica_of(), replica_of()
    await first.gate.reconcile()
    await second.gate.reconcile()
    await first.gate.unregister()
    assert len(await registered_webhooks(client)) == 2, "the API server asks the second by now"
    await second.gate.unregister()
    assert await registered_webhooks(client) == []


async def test_replicas_share_one_certificate_in_any_start_order(
    replica_of: Callable[..., WebhookReplica], client: Client
) -> None:
    replicas = [replica_of() for _ in range(3)]
    async with AsyncExitStack() as stack:
        for one in replicas:
            await stack.enter_async_context(one.gate.serve(one.admission.build_application()))
        assert {one.gate.readiness_error() for one in replicas} == {"the webhook has no certificate yet"}
        # Each calls itself by its own address here; what is shared is the certificate, which is for 127.0.0.1.
        await asyncio.gather(*(one.gate.reconcile() for one in replicas))
        shown = {await asyncio.to_thread(one.shown_certificate) for one in replicas}
        assert len(shown) == 1
        assert {one.gate.readiness_error() for one in replicas} == {""}
        secret = await client.get(SECRETS, "trimtab-webhook", namespace=replicas[0].namespace)
        assert secret["type"] == "kubernetes.io/tls"


async def test_webhook_renewal_interrupts_nobody(
    replica_of: Callable[..., WebhookReplica], client: Client
) -> None:
    first, second = replica_of(), replica_of()
    real = first.now
    for one in (first, second):
        one.now = real - timedelta(days=61)  # of 90 that it is good for
    async with AsyncExitStack() as stack:
        for one in (first, second):
            await stack.enter_async_context(one.gate.serve(one.admission.build_application()))
        await second.gate.reconcile()
        await first.gate.reconcile()
        await first.until_asked()
        old = await asyncio.to_thread(first.shown_certificate)
        for one in (first, second):
            one.now = real
        await first.gate.reconcile()
        assert await asyncio.to_thread(first.shown_certificate) == old, (
            "until every API server trusts the new one"
        )
        assert "is invalid" in await first.rejection(manifest("web", UNKNOWN_STRATEGY))
        await first.gate.reconcile()
        new = await asyncio.to_thread(first.shown_certificate)
        assert new != old
        assert "is invalid" in await first.rejection(manifest("web", UNKNOWN_STRATEGY))
        await second.gate.reconcile()  # points the API server at itself; it still shows the old one
        assert await asyncio.to_thread(second.shown_certificate) == old
        await second.gate.reconcile()
        assert await asyncio.to_thread(second.shown_certificate) == new
    expiry = first.metrics.registry.get_sample_value("trimtab_webhook_certificate_expiry_timestamp_seconds")
    assert expiry is not None
    assert expiry > (real + timedelta(days=89)).timestamp()


async def test_webhook_refills_a_secret_without_a_certificate(
    replica_of: Callable[..., WebhookReplica], client: Client
) -> None:
    one = replica_of()
    broken = {"tls.crt": "", "tls.key": "bm8=", "ca.crt": "bm8="}
    secret = {"metadata": {"name": "trimtab-webhook"}, "type": "kubernetes.io/tls", "data": broken}
    await client.create(SECRETS, secret, namespace=one.namespace)
    await one.gate.reconcile()
    assert one.gate.readiness_error() == ""


@asynccontextmanager
async def kept(gate: WebhookLifecycle) -> AsyncIterator[None]:
    """Looked after, as by the operator."""
    keeping = asyncio.create_task(gate.run(interval=0.01))
    try:
        yield
    finally:
        keeping.cancel()
        with suppress(asyncio.CancelledError):
            await keeping


async def test_webhook_rereads_a_changed_certificate_file(
    replica_of: Callable[..., WebhookReplica], tmp_path: Path
) -> None:
    place = {name: tmp_path / name for name in ("certificate", "key", "authority")}

    def put(authority: Authority, pair: Pair) -> None:
        place["certificate"].write_bytes(pair.cert.read_bytes())
        place["key"].write_bytes(pair.key.read_bytes())
        place["authority"].write_bytes(authority.cert.read_bytes())

    authority = Authority(tmp_path / "made", "theirs")
    put(authority, authority.issue("first", hosts=LOOPBACK))
    one = replica_of(certificateFiles={name: str(path) for name, path in place.items()})
    async with one.gate.serve(one.admission.build_application()):
        await one.gate.reconcile()
        await one.until_asked()
        first = await asyncio.to_thread(one.shown_certificate)
        put(authority, authority.issue("second", hosts=LOOPBACK))
        await one.gate.reconcile()
        assert await asyncio.to_thread(one.shown_certificate) != first
        place["authority"].write_text("no certificate")
        with pytest.raises(ConfigError, match=r"certificateFiles\.authority: .* is not a certificate"):
            await one.gate.reconcile()
        place["key"].write_text("half a key")
        async with kept(one.gate):
            await one.until_asked()  # what worked goes on


async def test_expired_certificate_by_files_is_not_ready_until_it_is_renewed(
    replica_of: Callable[..., WebhookReplica], tmp_path: Path
) -> None:
    place = {name: tmp_path / name for name in ("certificate", "key", "authority")}
    one = replica_of(certificateFiles={name: str(path) for name, path in place.items()})
    expired, good = (
        generate_certificate(["127.0.0.1"], now=one.now - timedelta(days=days), validity=timedelta(days=90))
        for days in (100, 1)
    )

    def put(pair: ServingPair) -> None:
        for name, path in place.items():
            path.write_bytes(getattr(pair, name))

    put(replace(good, authority=expired.authority))
    await one.gate.reconcile()
    assert "expired on" in one.gate.readiness_error(), "its authority did"
    put(expired)
    async with one.gate.serve(one.admission.build_application()):
        with capture_logs() as logs:
            async with kept(one.gate):
                await one.until(
                    lambda answer: "certificate has expired" in answer, manifest("web", UNKNOWN_STRATEGY)
                )
        ended = f"{one.now - timedelta(days=10):%Y-%m-%d %H:%M}"
        assert one.gate.readiness_error() == (
            f"the certificate expired on {ended} UTC, so the API server rejects the webhook;"
            " renew the files of webhook.certificateFiles"
        )
        output = [log for log in logs if log["event"] == "webhook.certificate_expired"]
        assert [log["log_level"] for log in output] == ["error"], "once"
        put(good)
        await one.gate.reconcile()
        assert one.gate.readiness_error() == "", "an untrusted certificate is replaced at once"
        await one.until_asked()


async def test_expired_own_certificate_that_cannot_be_renewed_is_not_ready(
    replica_of: Callable[..., WebhookReplica],
) -> None:
    one = replica_of()
    real, one.now = one.now, one.now - timedelta(days=100)
    await one.gate.reconcile()
    assert one.gate.readiness_error() == ""
    await one.kubectl("patch", "secret", "trimtab-webhook", "-p", '{"immutable": true}')
    one.now = real
    async with kept(one.gate):
        await eventually(
            lambda: "immutable" in one.gate.readiness_error(), what="the readiness error names the reason"
        )
    assert one.gate.readiness_error().startswith("the certificate expired on ")
    assert one.gate.readiness_error().endswith(
        "allow the operator to update the Secret trimtab-webhook, or delete the Secret"
    )
    await one.kubectl("delete", "secret", "trimtab-webhook")
    await one.gate.reconcile()
    assert one.gate.readiness_error() == ""


async def test_new_certificate_authority_by_files_is_trusted_before_its_certificate_is_served(
    replica_of: Callable[..., WebhookReplica], tmp_path: Path
) -> None:
    """As cert-manager's selfSigned issuer renews it; each kubelet brings the new files in its own time."""
    folders = [tmp_path / "one", tmp_path / "two"]

    def files(folder: Path) -> dict[str, Path]:
        folder.mkdir(exist_ok=True)
        return {name: folder / name for name in ("certificate", "key", "authority")}

    def put(folder: Path, name: str) -> None:
        authority = Authority(tmp_path / name, name)
        pair, place = authority.issue("webhook", hosts=LOOPBACK), files(folder)
        place["certificate"].write_bytes(pair.cert.read_bytes())
        place["key"].write_bytes(pair.key.read_bytes())
        place["authority"].write_bytes(authority.cert.read_bytes())

    def replicate() -> None:
        for name, path in files(folders[0]).items():
            files(folders[1])[name].write_bytes(path.read_bytes())

    put(folders[0], "first")
    replicate()
    one = replica_of(certificateFiles={name: str(path) for name, path in files(folders[0]).items()})
    two = replica_of(
        port=one.port, certificateFiles={name: str(path) for name, path in files(folders[1]).items()}
    )

    async def refused_by_us() -> None:
        """The API server reaches us and believes us."""
        assert "is invalid" in await one.rejection(manifest("web", UNKNOWN_STRATEGY), "--dry-run=server")

    async with one.gate.serve(one.admission.build_application()):
        for replica in (one, two):
            await replica.gate.reconcile()
        await one.until_asked()
        old = await asyncio.to_thread(one.shown_certificate)
        put(folders[0], "second")
        await one.gate.reconcile()
        assert await asyncio.to_thread(one.shown_certificate) == old, (
            "until every API server trusts the new one"
        )
        await refused_by_us()
        for _ in range(2):
            await two.gate.reconcile()  # whose files are yet to come
            await refused_by_us()
            await one.gate.reconcile()
            await refused_by_us()
        assert await asyncio.to_thread(one.shown_certificate) != old
        replicate()
        for _ in range(2):
            await two.gate.reconcile()
        await refused_by_us()
        assert two.gate.readiness_error() == ""
