"""A replica as a process of its own, to be killed and frozen: it writes into a journal while it leads.

    python lease_replica.py KUBECONFIG NAMESPACE LEASE JOURNAL NAME DURATION RENEW_DEADLINE RETRY

Each line says when by the clock that all processes of a machine share, who, in which of its terms, and what.
Before its first term it says once that it stands: it has seen the lease.
"""

import asyncio
import os
import signal
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime

from trimtab.kube.auth.connection import load_connection
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.retry import RetryPolicy
from trimtab.kube.runtime.leader_election import LeaderElector, LeadershipLost
from trimtab.kube.runtime.lease_rules import LeaseTiming


class LeaseReplica:
    def __init__(self, candidate: LeaderElector, journal: str, name: str) -> None:
        self.candidate = candidate
        self.name = name
        self.term = 0
        self.journal = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(self, at: float, what: str) -> None:
        os.write(self.journal, f"{at} {self.name} {os.getpid()} {self.term} {what}\n".encode())

    def note(self, what: str) -> None:
        """Write as the leader, which two replicas must never do at once. The time is taken before the check of the lease."""
        at = time.monotonic()
        if self.candidate.is_leader:
            self.write(at, what)

    async def stand(self) -> None:
        while not self.candidate._observation.spec:
            await asyncio.sleep(0.01)
        self.write(time.monotonic(), "stands")

    async def work(self) -> None:
        self.term += 1
        self.note("begin")
        try:
            while True:
                await asyncio.sleep(0.01)
                self.note("beat")
        finally:
            self.note("end")


async def main(kubeconfig: str, namespace: str, lease: str, journal: str, name: str, *timing: str) -> None:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    connection = load_connection(kubeconfig=kubeconfig)
    async with Client(connection, retry=RetryPolicy(attempts=1)) as client:
        candidate = LeaderElector(
            client,
            name=lease,
            namespace=namespace,
            identity=name,
            timing=LeaseTiming(*map(float, timing)),
            now=lambda: datetime.now(UTC),
        )
        replica = LeaseReplica(candidate, journal, name)
        async with asyncio.TaskGroup() as group:
            group.create_task(replica.stand())
            while True:
                with suppress(LeadershipLost):
                    await candidate.lead(replica.work)


if __name__ == "__main__":
    with suppress(asyncio.CancelledError):
        asyncio.run(main(*sys.argv[1:]))
