"""The acting half of the agent, put together: strategies, arbiter, executor, evictions, and the runtime's hook."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from functools import partial

import structlog
from prometheus_client import CollectorRegistry

from trimtab.api.nodeqospolicy import NodeQoSPolicySpec
from trimtab.kube.rest.client import Client
from trimtab.node.arbiter import Wish
from trimtab.node.cgroups import Hierarchy
from trimtab.node.config import AgentSettings
from trimtab.node.executor import Executor, Surface
from trimtab.node.executor.devices import numbers
from trimtab.node.hooks.agent_socket import answering
from trimtab.node.hooks.tier_defaults import Entitlement
from trimtab.node.model import NodeView, Windows
from trimtab.node.qos.controller import Enforcer, installed
from trimtab.node.qos.evictor import by_eviction_api
from trimtab.node.qos.metrics import Tally
from trimtab.node.restore_journal import Journal, this_boot

log = structlog.get_logger(__name__)


class Quality:
    """Keeps quality of service on this node, by whatever policy holds."""

    def __init__(
        self, settings: AgentSettings, hierarchy: Hierarchy, client: Client, *, registry: CollectorRegistry
    ) -> None:
        surface = Surface(hierarchy, settings.proc / "sys", settings.sys / "fs" / "resctrl")
        journal = Journal(settings.state / "journal", boot=this_boot())
        self._settings = settings
        self._hierarchy = hierarchy
        self._executor = Executor(surface, journal, dry_run=settings.dry_run)
        self._enforcer = Enforcer(
            self._executor,
            installed(),
            evict=by_eviction_api(client, dry_run=settings.dry_run),
            tally=Tally(registry, dry_run=settings.dry_run),
            devices=partial(numbers, sys=settings.sys),
        )
        self._entitlement: Entitlement | None = None

    async def round(self, view: NodeView, windows: Windows, policy: NodeQoSPolicySpec | None) -> None:
        """One second's work; a file that cannot be read or written costs this second's."""
        if self._entitlement is not None:
            self._entitlement.policy, self._entitlement.view = policy, view
        try:
            await self._enforcer.round(view, windows, policy, now=time.monotonic())
        except OSError as error:
            log.warning("agent.round_failed", error=str(error))

    def holding(self) -> list[Wish]:
        """For each knob that is held, the wish that it is held by; a dry run holds none."""
        return [] if self._settings.dry_run else self._enforcer.holding()

    def release(self) -> None:
        """Leave the node as it was; what is restored and cannot be noted as such is restored."""
        try:
            self._enforcer.release(now=time.monotonic())
        except OSError as error:
            log.warning("agent.release_failed", error=str(error))

    async def hook(self, view: NodeView) -> None:
        """Adjust containers at their creation, by the ways that are asked for; a dry run changes none of them."""
        settings = self._settings
        if settings.dry_run or (settings.nri is None and settings.cri is None):
            return
        decide = self._entitlement = Entitlement(self._executor.held, self._hierarchy.version, view)
        async with AsyncExitStack() as stack:
            if settings.cri is not None:
                await stack.enter_async_context(answering(settings.cri, decide))
            if settings.nri is not None:
                # Protobuf takes memory: only who asks for it pays.
                from trimtab.node.hooks.nri import NriPlugin

                await NriPlugin(settings.nri, decide).run()
            await asyncio.Event().wait()
