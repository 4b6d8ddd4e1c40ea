"""The node agent process: observes, decides and reports every second, and restores at its end.

This module only connects the parts. A round is: the node view, the collectors, the prediction, then the
strategies, the arbiter and the executor. Tasks that wait for others (the kubelet, the API server, the
runtime) run concurrently, so that a slow one delays data and never a round.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import resource
import signal
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Never

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge

from trimtab.aio import task_group
from trimtab.api.nodemetric import MetricCollectPolicy, NodeMetricStatus
from trimtab.errors import TrimtabError
from trimtab.kube.auth import Connection
from trimtab.kube.auth.credential_sources import FileCredentialSource
from trimtab.kube.auth.credentials import LocalCredentialProvider
from trimtab.kube.auth.tls import Trust
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.retry import RetryPolicy
from trimtab.node.cgroups import Hierarchy
from trimtab.node.collectors import CollectorManager, build_collectors
from trimtab.node.config import AgentSettings
from trimtab.node.http import build_health_page, serve_http
from trimtab.node.informer import NodeInformer
from trimtab.node.metrics import UsageMetrics, render_metrics
from trimtab.node.prediction import Predictor
from trimtab.node.qos.manager import QosManager
from trimtab.node.reporter import Reporter, build_status
from trimtab.node.restore_journal import RestoreJournal, read_boot_id
from trimtab.node.series import SeriesRetention, SeriesSnapshot, SeriesStore
from trimtab.timing import Interval

log = structlog.get_logger(__name__)

PERIOD = 1.0
SAVE_EVERY = 60.0
POLICY_WAIT_SECONDS = 30.0
"""The seconds after which an agent without any policy restores the knobs that its predecessor left."""
STALLED_AFTER = 30.0
_PEAKS = "peaks"


class NodeAgent:
    """One agent. Without a connection it only measures and reports nothing."""

    def __init__(self, settings: AgentSettings, connection: Connection | None) -> None:
        self._settings = settings
        self._connection = connection
        self._registry = CollectorRegistry()
        self._hierarchy = Hierarchy.detect(settings.cgroups)
        self._informer = NodeInformer(
            settings.node,
            hierarchy=self._hierarchy,
            parent=settings.cgroup_parent,
            proc=settings.proc,
            sys=settings.sys,
        )
        self.series = SeriesStore(now=time.time())
        self._registry.register(UsageMetrics(self.series))
        self._collectors = CollectorManager(
            build_collectors(self._hierarchy, settings.proc), self.series, registry=self._registry
        )
        self._predictor = Predictor()
        _lock_state_directory(settings.state)
        self._snapshot = SeriesSnapshot(settings.state / "series")
        self._saving = Interval(SAVE_EVERY, last=time.time())
        self._started = self._last_round = time.monotonic()
        self._policy_known = False
        self._qos: QosManager | None = None
        self._rounds = Counter("trimtab_agent_rounds_total", "Rounds completed", registry=self._registry)
        self._late_rounds = Counter(
            "trimtab_agent_rounds_late_total",
            "Rounds that took longer than a second",
            registry=self._registry,
        )
        self._round_cpu = Counter(
            "trimtab_agent_round_cpu_seconds_total", "CPU seconds that rounds used", registry=self._registry
        )

        Gauge(
            "trimtab_agent_kubelet_up",
            "Whether the kubelet lists its pods to the agent; if not, the API server describes them",
            registry=self._registry,
        ).set_function(lambda: self._informer.has_kubelet)

    async def run(self) -> None:
        """Run until SIGTERM or SIGINT, then restore all written values."""
        working = asyncio.create_task(self._work())
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, working.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await working
        log.info("agent.stopped")

    async def _work(self) -> Never:
        _raise_open_file_limit()
        self._restore()
        async with AsyncExitStack() as stack:
            stack.callback(self._informer.close)
            stack.callback(self._collectors.close)
            pages = {
                "/metrics": lambda: (200, render_metrics(self._registry)),
                "/healthz": build_health_page({"rounds": self._stalled_reason}),
                "/readyz": build_health_page(
                    {"rounds": self._stalled_reason, "states": self._unready_reason}
                ),
            }
            port = await stack.enter_async_context(serve_http(self._settings.address, pages))
            log.info("agent.listening", port=port, node=self._settings.node)
            self._informer.watch_cgroups()
            client = await self._open_client(stack)
            kubelet = await self._open_kubelet_client(stack)
            qos = None
            if client is None or self._settings.read_only:
                _warn_unrestored_knobs(self._settings.state)
            else:
                qos = QosManager(self._settings, self._hierarchy, client, registry=self._registry)
                self._qos = qos
                stack.callback(qos.release)
            stack.callback(self._save)
            group = await stack.enter_async_context(task_group())  # entered last, so that it ends first
            if client is not None:
                self._start_api_tasks(client, group)
            if kubelet is not None:
                group.create_task(self._informer.poll_kubelet(kubelet, clock=time.time))
            if qos is not None:
                group.create_task(qos.run_hooks(self._informer.view(time.time())))
            await self._run_rounds(qos)
        raise AssertionError("unreachable")

    async def _open_client(self, stack: AsyncExitStack) -> Client | None:
        if self._connection is None:
            return None
        return await stack.enter_async_context(Client(self._connection))

    async def _open_kubelet_client(self, stack: AsyncExitStack) -> Client | None:
        if self._connection is None or not self._settings.kubelet:
            return None
        connection = connect_to_kubelet(self._connection, self._settings)
        return await stack.enter_async_context(
            Client(connection, retry=RetryPolicy(attempts=1), timeout=10.0)
        )

    def _start_api_tasks(self, client: Client, group: asyncio.TaskGroup) -> None:
        """Watch the API server and report to it."""
        informers = self._informer.watch_api(client, namespace=self._settings.namespace)
        reporter = Reporter(
            client,
            self._settings.node,
            self._build_status,
            uid=lambda: self._informer.uid,
            registry=self._registry,
        )
        for task in (informers.run(), self._wait_policy_synced(), reporter.run()):
            group.create_task(task)

    async def _run_rounds(self, qos: QosManager | None) -> Never:
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            began = time.thread_time()
            await self._run_round(qos)
            self._round_cpu.inc(time.thread_time() - began)
            self._rounds.inc()
            self._last_round = time.monotonic()
            due += PERIOD
            if due < loop.time():
                self._late_rounds.inc()
                # Late rounds are not made up for: several at once would measure the same second again.
                due = loop.time()
            await asyncio.sleep(due - loop.time())

    async def _run_round(self, qos: QosManager | None) -> None:
        now = time.time()
        view = self._informer.view(now)
        self._collectors.collect(view, now)
        self._predictor.learn(view, self.series, now)
        if qos is not None and self._can_act():
            # Without a policy everything is restored and nothing is written, evicted or adjusted.
            policy = None if self._informer.stop_reason else self._informer.policy
            await qos.run_round(view, self.series, policy.spec if policy else None)
        if self._saving.due(now):
            self._save()

    def _can_act(self) -> bool:
        return self._policy_known or time.monotonic() - self._started > POLICY_WAIT_SECONDS

    async def _wait_policy_synced(self) -> None:
        await self._informer.wait_synced()
        self._policy_known = True

    def _build_status(self, policy: MetricCollectPolicy) -> NodeMetricStatus:
        now = time.time()
        windows = [duration.seconds for duration in policy.node_aggregate_policy.durations]
        own = float(policy.aggregate_duration_seconds)
        self.series.set_retention(SeriesRetention(node=max(*windows, own), pods=own))
        view = self._informer.view(now)
        spare = self._predictor.estimate_reclaimable(view, self._settings.prediction)
        acts = not (self._settings.read_only or self._settings.dry_run)
        active_policy = self._informer.policy if acts and not self._informer.stop_reason else None
        policy_name = active_policy.name if active_policy else None
        requests = self._qos.active_requests() if self._qos and acts else ()
        return build_status(
            view, self.series, policy, spare, policy_name=policy_name, requests=requests, now=now
        )

    def _restore(self) -> None:
        facts = self._snapshot.load(self.series)
        with contextlib.suppress(ValueError):
            self._predictor.restore(facts.get(_PEAKS, b""))

    def _save(self) -> None:
        self._saving.restart(time.time())
        try:
            self._snapshot.save(self.series, {_PEAKS: self._predictor.state()})
        except OSError as error:
            log.warning("agent.snapshot_save_failed", error=str(error))

    def _stalled_reason(self) -> str:
        silent = time.monotonic() - self._last_round
        return f"no round for {silent:.0f} s" if silent > STALLED_AFTER else ""

    def _unready_reason(self) -> str:
        return "; ".join(f"{name}: {reason}" for name, reason in self._informer.errors_by_source().items())


def connect_to_kubelet(connection: Connection, settings: AgentSettings) -> Connection:
    """Return the connection to the node's kubelet, with the agent's credentials only if the kubelet is verified.

    Whoever listens at the kubelet's address could else take the token, which may evict pods.
    """
    trust, name = connection.trust, None
    if settings.kubelet_ca is not None:
        # The certificate that a kubelet signs itself names the host and not its addresses.
        trust, name = Trust(FileCredentialSource(settings.kubelet_ca, where="--kubelet-ca")), settings.node
    elif settings.kubelet_insecure:
        trust = Trust(None, insecure=True)
    is_verified = settings.kubelet.startswith("https:") and (
        settings.kubelet_ca is not None or not settings.kubelet_insecure
    )
    return replace(
        connection,
        server=settings.kubelet,
        trust=trust,
        server_hostname=name,
        proxy=None,
        credentials=connection.credentials if is_verified else LocalCredentialProvider(),
        impersonation=connection.impersonation if is_verified else (),
    )


def _lock_state_directory(state: Path) -> None:
    """Create and lock the state directory for the lifetime of the process.

    Two agents on one node would each take the other's writes for the original values.
    """
    try:
        state.mkdir(parents=True, exist_ok=True)
        writable = os.access(state, os.W_OK)
        if writable:
            fcntl.flock(os.open(state, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise TrimtabError(
            f"--state {state}: another agent uses this directory; stop it, or choose another directory"
        ) from None
    except OSError:
        writable = False
    if not writable:
        raise TrimtabError(f"--state {state}: the directory is not writable; mount a persistent one there")


def _warn_unrestored_knobs(state: Path) -> None:
    """Warn of knobs that a killed agent left changed, since this one may not write."""
    left = RestoreJournal(state / "journal", boot=read_boot_id()).originals
    if left:
        remedy = "start the agent once without --read-only to restore them"
        log.warning("agent.restore_pending", knobs=sorted(map(str, left)), remedy=remedy)


def _raise_open_file_limit() -> None:
    """Raise the limit of open files: three per cgroup are kept open, often more than the default."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
