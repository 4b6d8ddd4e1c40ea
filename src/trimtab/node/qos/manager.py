"""The acting half of the agent: strategies, arbiter, executor, evictions and runtime hooks."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import structlog
from prometheus_client import CollectorRegistry

from trimtab.api.nodeqospolicy import NodeQoSPolicySpec
from trimtab.kube.rest.client import Client
from trimtab.node.arbiter import KnobRequest
from trimtab.node.cgroups import Hierarchy
from trimtab.node.config import AgentSettings
from trimtab.node.executor import Executor, KnobFiles
from trimtab.node.executor.devices import find_device_numbers
from trimtab.node.hooks.agent_socket import serve_agent_socket
from trimtab.node.hooks.tier_defaults import TierDefaults
from trimtab.node.metrics import QosMetrics
from trimtab.node.model import MetricWindows, NodeView
from trimtab.node.qos.controller import QosController, load_strategies
from trimtab.node.qos.evictor import build_api_evict
from trimtab.node.restore_journal import RestoreJournal, read_boot_id

log = structlog.get_logger(__name__)


def _find_sysctls(settings: AgentSettings) -> Path:
    # Without the mount, the container's own are there, read-only: its writes are then counted as rejected.
    own, mounted = settings.proc / "sys", settings.sysctls
    return mounted if mounted and (mounted / "vm" / "min_free_kbytes").exists() else own


class QosManager:
    """Maintains quality of service on this node by the policy that applies."""

    def __init__(
        self, settings: AgentSettings, hierarchy: Hierarchy, client: Client, *, registry: CollectorRegistry
    ) -> None:
        files = KnobFiles(hierarchy, _find_sysctls(settings), settings.sys / "fs" / "resctrl")
        journal = RestoreJournal(settings.state / "journal", boot=read_boot_id())
        self._settings = settings
        self._hierarchy = hierarchy
        self._executor = Executor(files, journal, dry_run=settings.dry_run)
        self._metrics = QosMetrics(registry, dry_run=settings.dry_run)
        self._controller = QosController(
            self._executor,
            load_strategies(),
            evict=build_api_evict(client, dry_run=settings.dry_run),
            metrics=self._metrics,
            devices=partial(find_device_numbers, sys=settings.sys),
        )
        self._tier_defaults: TierDefaults | None = None

    async def run_round(
        self, view: NodeView, windows: MetricWindows, policy: NodeQoSPolicySpec | None
    ) -> None:
        """Run one round; a file that cannot be read or written fails only this round."""
        if self._tier_defaults is not None:
            self._tier_defaults.policy, self._tier_defaults.view = policy, view
        try:
            await self._controller.run_round(view, windows, policy, now=time.monotonic())
        except OSError as error:
            log.warning("agent.round_failed", error=str(error))

    def active_requests(self) -> list[KnobRequest]:
        """Return the request that decided each held knob; empty in a dry run."""
        return [] if self._settings.dry_run else self._controller.active_requests()

    def release(self) -> None:
        """Restore the node; a failure to record that in the journal is only logged."""
        try:
            self._controller.release(now=time.monotonic())
        except OSError as error:
            log.warning("agent.release_failed", error=str(error))

    async def run_hooks(self, view: NodeView) -> None:
        """Adjust containers at their creation by the enabled hooks; a dry run enables none."""
        settings = self._settings
        if settings.dry_run or (settings.nri is None and settings.cri is None):
            return
        decide = self._tier_defaults = TierDefaults(self._executor.read_knob, self._hierarchy.version, view)
        async with AsyncExitStack() as stack:
            if settings.cri is not None:
                await stack.enter_async_context(
                    serve_agent_socket(
                        settings.cri, decide, count_result=self._metrics.count_hook_results("cri")
                    )
                )
            if settings.nri is not None:
                # Imported only if needed, because protobuf takes memory.
                from trimtab.node.hooks.nri import NriPlugin

                await NriPlugin(
                    settings.nri, decide, count_result=self._metrics.count_hook_results("nri")
                ).run()
            await asyncio.Event().wait()
