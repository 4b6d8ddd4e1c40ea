"""The operator process: connect its parts, wait to become the leader, and shut down cleanly.

Every replica keeps the cluster state, serves the webhook and reports its health; only the leader runs a `LeaderSession`.
Therefore another replica can take over at once.

One small HTTP server has the metrics and the checks: `/healthz` fails if a restart would help, `/readyz` if the process
cannot work now; both name each failed check and its reason, as the API server's own do. Checks run on request and must be
quick. The endpoints need no authentication, so they contain no secrets.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from typing import Never

import structlog
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from trimtab.actuation.kube_cluster import KubeCluster
from trimtab.api.kind import INSTALL_COMMAND
from trimtab.http_server import serve_application
from trimtab.kube.auth import Connection, is_running_in_pod
from trimtab.kube.cache.informer_set import NOT_SERVED, InformerSet
from trimtab.kube.rest.capabilities import ServerFeatures
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.resources import OPTIMIZATION_POLICIES
from trimtab.kube.rest.retry import RateLimiter, RetryPolicy
from trimtab.kube.rest.watched_namespaces import WatchedNamespaces
from trimtab.kube.runtime.event_recorder import EventRecorder
from trimtab.operator.cluster_state import ClusterState
from trimtab.operator.config.model import LearningSettings, OperatorConfig
from trimtab.operator.config.reloader import ConfigReloader
from trimtab.operator.intents.plugin_setup import open_plugin_registry
from trimtab.operator.leader import LeaderSession, lead
from trimtab.operator.metrics import Metrics
from trimtab.operator.usage_sources import UsageSources
from trimtab.operator.views import OperatorViews
from trimtab.operator.wiring import ElectionPort, Operator, Ports, build_operator
from trimtab.recommender.source_ingester import IngestSchedule
from trimtab.store import Store

Check = Callable[[], str]
"""A check; it returns the reason why it fails, or an empty string."""


class HealthChecks:
    """The liveness and readiness checks; parts of the operator add theirs when they start."""

    def __init__(self) -> None:
        self.liveness: dict[str, Check] = {}
        self.readiness: dict[str, Check] = {}

    def build_application(self, metrics: Metrics) -> web.Application:
        """Return the application that serves the checks and the metrics."""

        async def serve_metrics(_: web.Request) -> web.Response:
            return web.Response(body=metrics.render(), headers={"Content-Type": CONTENT_TYPE_LATEST})

        async def healthz(_: web.Request) -> web.Response:
            return _respond(self.liveness)

        async def readyz(_: web.Request) -> web.Response:
            return _respond(self.liveness | self.readiness)

        application = web.Application()
        application.add_routes(
            [web.get("/metrics", serve_metrics), web.get("/healthz", healthz), web.get("/readyz", readyz)]
        )
        return application


def _respond(checks: dict[str, Check]) -> web.Response:
    found = {name: check() for name, check in checks.items()}
    lines = [f"[-] {name}: {why}" if why else f"[+] {name}" for name, why in found.items()]
    failed = any(found.values())
    text = "\n".join([*lines, "not ok" if failed else "ok"]) + "\n"
    return web.Response(status=503 if failed else 200, text=text)


log = structlog.get_logger(__name__)

COMPONENT = "trimtab-operator"
_UNREACHABLE_REASON = (
    "The operator runs outside a pod, where the API server cannot reach the webhook through its Service; policies are"
    " validated by their CRD alone"
)
_UNREACHABLE_FIX = (
    "Set webhook.url to an address at which the API server reaches this process, or webhook.enabled to false"
)
PREREQUISITE_CHECK_INTERVAL = 30.0
"""The seconds between two checks for missing prerequisites."""

EmbeddedService = Callable[[Client, Callable[[], OperatorViews | None]], AbstractAsyncContextManager[None]]
"""A service in the operator's process, such as the dashboard.

It gets the client, and a function that returns the views of the current leader session; None while another replica leads."""


def read_replica_name(environ: Mapping[str, str]) -> str:
    """Return the name of this replica, as the Lease and Events show it: its pod's, or else this machine's."""
    # With hostNetwork, the host name is the node's, of which nobody can forward a port.
    return environ.get("POD_NAME") or socket.gethostname()


class OperatorApp:
    """One operator process; `run` it until it is asked to stop."""

    def __init__(
        self,
        connection: Connection,
        config: ConfigReloader,
        *,
        embedded: Sequence[EmbeddedService] = (),
        in_pod: bool | None = None,
    ) -> None:
        """Connect the parts; `in_pod` says whether the webhook's Service points here, and is detected if left out."""
        self._in_pod = is_running_in_pod() if in_pod is None else in_pod
        self._embedded = embedded
        self._connection = connection
        self._config = config
        self._metrics = config.metrics
        self._health = HealthChecks()

    async def run(self) -> None:
        """Work until SIGTERM or SIGINT, then save the recommender's state and release the Lease."""
        working = asyncio.create_task(self._run_tasks())
        # Cancelled instead of killed: otherwise the Lease would block the next leader until it expires.
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, working.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await working
        log.info("operator.stopped")

    async def _run_tasks(self) -> Never:
        config = self._config.current
        async with AsyncExitStack() as stack:
            health = serve_application(self._health.build_application(self._metrics), config.address)
            log.info("operator.listening", port=await stack.enter_async_context(health))
            # Without a limit, a reconcile of all workloads would flood the API server.
            limit = RateLimiter(per_second=200.0, burst=400)
            within = config.watch_namespaces
            scope = WatchedNamespaces(within, config.namespace) if within else None
            client = await stack.enter_async_context(Client(self._connection, rate=limit, scope=scope))
            # An unavailable store costs history only: sizing and admission must start without it.
            store = await stack.enter_async_context(Store.open(config.store.url, allow_unavailable=True))
            sources = await stack.enter_async_context(UsageSources(config, client=client, store=store))
            # A separate client without retries: a renewal that waits behind other requests comes too late.
            lease_client = await stack.enter_async_context(
                Client(self._connection, retry=RetryPolicy(attempts=1))
            )
            registry = stack.enter_context(open_plugin_registry(config.intents.plugins))
            events = EventRecorder(
                client, component=COMPONENT, instance=read_replica_name(os.environ), now=_now
            )
            operator = build_operator(
                Ports(
                    informers=InformerSet(client),
                    objects=client,
                    cluster=lambda kinds: KubeCluster(client, events, kinds=kinds),
                    features=ServerFeatures(client),
                    events=events,
                    sources=sources,
                    source_lifecycle=sources,
                    store=store,
                    config=self._config,
                    metrics=self._metrics,
                    schedule=_build_schedule(config.learning),
                    plugin_registry=registry,
                    election=ElectionPort(client=lease_client, identity=read_replica_name(os.environ)),
                    webhook_client=client,
                )
            )
            for companion in self._embedded:
                await stack.enter_async_context(companion(client, lambda: _session_views(operator)))
            group = await stack.enter_async_context(asyncio.TaskGroup())
            for task in (self._config.run(), events.run(), operator.cluster_state.run()):
                group.create_task(task)
            if within:
                log.info(
                    "webhook.not_registered", reason="watchNamespaces is set; only a ClusterRole permits it"
                )
            elif config.webhook.enabled and not (self._in_pod or config.webhook.url):
                # No Service points at a process outside the cluster: the API server would deny every policy write.
                log.warning("webhook.not_registered", reason=_UNREACHABLE_REASON, fix=_UNREACHABLE_FIX)
            # A disabled webhook removes its registration, but a dry run must not remove anyone's.
            elif config.webhook.enabled or not config.dry_run:
                await stack.enter_async_context(self._serve_webhook(operator, group))
            # Before `wait_synced`, so that the Service sends no request to a replica that would admit all
            # pods unchanged.
            self._health.readiness["cluster"] = lambda: sync_problem(operator.cluster_state)
            # A leader without a synced state would take every workload for deleted.
            await operator.cluster_state.wait_synced()
            group.create_task(
                report_missing_prerequisites(operator.cluster_state, lambda: self._config.current)
            )
            await lead(operator, self._run_session)
        raise AssertionError("unreachable")

    @asynccontextmanager
    async def _serve_webhook(self, operator: Operator, group: asyncio.TaskGroup) -> AsyncIterator[None]:
        lifecycle = operator.webhook
        assert lifecycle is not None
        async with lifecycle.serve(operator.admission.build_application()) as port:
            if port:
                log.info("webhook.listening", port=port)
            self._health.readiness["webhook"] = lifecycle.readiness_error
            registration = group.create_task(lifecycle.run())
            try:
                yield
            finally:
                # Stopped first: its next cycle would register again what is removed here.
                registration.cancel()
                await asyncio.wait([registration])
                # In a pod the Service and the other replicas remain; outside nothing listens at the address any more.
                if port and not self._in_pod:
                    await lifecycle.unregister()

    async def _run_session(self, session: LeaderSession) -> Never:
        """Run a session of leadership; the reconcile benchmark takes its steps one by one instead."""
        await session.run()


def _session_views(operator: Operator) -> OperatorViews | None:
    session = operator.session
    return session.views if session else None


def sync_problem(cluster_state: ClusterState) -> str:
    """Return what the cluster state still waits for, for the readiness probe; empty once it is synced."""
    if cluster_state.is_synced:
        return ""
    # An optional kind that is not installed never syncs, and is no reason to wait.
    errors = [
        f"{kind}: {why}" for kind, why in cluster_state.errors_by_resource().items() if why != NOT_SERVED
    ]
    return "; ".join(["the informers are listing the cluster's objects", *errors])


async def report_missing_prerequisites(
    cluster_state: ClusterState, config: Callable[[], OperatorConfig]
) -> Never:
    """Log each missing prerequisite once: a CRD or a namespace may also be deleted while the operator runs."""
    reported: set[tuple[str, str]] = set()
    while True:
        namespaces = {each.name for each in cluster_state.namespaces}
        missing = set(find_missing_prerequisites(cluster_state.errors_by_resource(), namespaces, config()))
        for prerequisite, fix in sorted(missing - reported):
            log.warning("operator.prerequisite_missing", prerequisite=prerequisite, fix=fix)
        # Not added up, so that a CRD that is deleted a second time is reported a second time.
        reported = missing
        await asyncio.sleep(PREREQUISITE_CHECK_INTERVAL)


def find_missing_prerequisites(
    errors_by_resource: Mapping[str, str], namespaces: Collection[str], config: OperatorConfig
) -> Iterator[tuple[str, str]]:
    """List the missing prerequisites of the operator, each with the command that fixes it."""
    if errors_by_resource.get(str(OPTIMIZATION_POLICIES)) == NOT_SERVED:
        yield str(OPTIMIZATION_POLICIES), INSTALL_COMMAND
    if config.leader_election.enabled and config.namespace not in namespaces:
        fix = f"kubectl create namespace {config.namespace}, or choose another with --set namespace=NAME"
        yield f"namespace {config.namespace}", fix


def _build_schedule(settings: LearningSettings) -> IngestSchedule:
    return IngestSchedule(
        step=settings.step.seconds,
        backfill_step=settings.history_step.seconds,
        backfill_period=settings.history.seconds,
        max_lateness=settings.lateness.seconds,
    )


def _now() -> datetime:
    return datetime.now(UTC)
