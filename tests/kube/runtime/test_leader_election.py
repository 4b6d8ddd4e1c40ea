"""Leader election on the real API server, with faults in between, and with processes that are killed and frozen."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from harness.faults import faults
from harness.faults.faultproxy import FaultProxy
from trimtab.api.fields import format_micro_time
from trimtab.kube.auth.connection import load_connection
from trimtab.kube.errors import KubeError
from trimtab.kube.rest.client import Client, Object, PatchType
from trimtab.kube.rest.resources import LEASES
from trimtab.kube.rest.retry import RetryPolicy
from trimtab.kube.runtime.leader_election import LeaderElector, LeadershipLost
from trimtab.kube.runtime.lease_rules import LeaseTiming

SHORT = LeaseTiming(duration=2.0, renew_deadline=1.4, retry_period=0.3)
"""A leader's death shows soon."""
LASTING = LeaseTiming(duration=120.0, renew_deadline=60.0, retry_period=0.1)
"""A lease that is acquired within a test was released by its holder."""

NEVER_RETRY = RetryPolicy(attempts=1)


def wall_clock() -> datetime:
    return datetime.now(UTC)


@dataclass
class Stand:
    """A running candidate: `leads` is set while it leads, `stop` ends it."""

    candidate: LeaderElector
    leads: asyncio.Event = field(default_factory=asyncio.Event)
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    ended: bool = False

    async def work(self) -> str:
        self.leads.set()
        try:
            await self.stop.wait()
        finally:
            self.ended = True
        return "done"


@asynccontextmanager
async def standing(stand: Stand) -> AsyncIterator[asyncio.Task[str]]:
    task = asyncio.create_task(stand.candidate.lead(stand.work))
    try:
        yield task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError, KubeError):
            await task


Candidates = Callable[..., LeaderElector]


@pytest.fixture
def candidate(client: Client, namespace: str) -> Candidates:
    """Make a candidate for the one lease of the test."""

    def make(name: str = "a", *, timing: LeaseTiming = SHORT, using: Client = client) -> LeaderElector:
        return LeaderElector(
            using, name="boss", namespace=namespace, identity=name, timing=timing, now=wall_clock
        )

    return make


@pytest.fixture
async def proxied(fault_proxy: FaultProxy) -> AsyncIterator[Client]:
    async with Client(load_connection(kubeconfig=fault_proxy.kubeconfig), retry=NEVER_RETRY) as client:
        yield client


async def spec(client: Client, namespace: str) -> Object:
    lease: Object = (await client.get(LEASES, "boss", namespace=namespace))["spec"]
    return lease


async def set_spec(client: Client, namespace: str, **fields: Any) -> None:
    await client.patch(LEASES, "boss", {"spec": fields}, type=PatchType.MERGE, namespace=namespace)


async def make_lease(client: Client, namespace: str, **fields: Any) -> None:
    await client.create(LEASES, {"metadata": {"name": "boss"}, "spec": fields}, namespace=namespace)


async def until(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    try:
        async with asyncio.timeout(30):
            while not await condition():
                await asyncio.sleep(0.02)
    except TimeoutError:
        pytest.fail(f"timed out waiting for {what}")


def metric(name: str, namespace: str) -> float | None:
    return REGISTRY.get_sample_value(f"trimtab_lease_{name}", {"lease": f"{namespace}/boss"})


async def test_elector_leads_alone_and_writes_the_lease(
    candidate: Candidates, client: Client, namespace: str
) -> None:
    stand = Stand(candidate())
    assert metric("leading", namespace) == 0.0
    async with standing(stand):
        await stand.leads.wait()
        assert metric("leading", namespace) == 1.0
        assert metric("acquisitions_total", namespace) == 1.0
        lease = await spec(client, namespace)
    assert lease["holderIdentity"] == stand.candidate.identity
    assert lease["leaseDurationSeconds"] == 2
    assert lease["leaseTransitions"] == 0
    assert lease["acquireTime"] <= lease["renewTime"]
    assert metric("leading", namespace) == 0.0


async def test_elector_renews_without_a_new_session(
    candidate: Candidates, client: Client, namespace: str
) -> None:
    stand = Stand(candidate())
    async with standing(stand):
        await stand.leads.wait()
        first = await spec(client, namespace)

        async def renewed() -> bool:
            return bool((await spec(client, namespace))["renewTime"] > first["renewTime"])

        await until(renewed, "a renewal")
        later = await spec(client, namespace)
    assert later["acquireTime"] == first["acquireTime"]
    assert later["leaseTransitions"] == 0


async def test_elector_ends_its_session_with_the_work(
    candidate: Candidates, client: Client, namespace: str
) -> None:
    stand = Stand(candidate())
    stand.stop.set()
    assert await stand.candidate.lead(stand.work) == "done"
    assert (await spec(client, namespace))["holderIdentity"] == ""


async def test_elector_releases_the_lease_and_raises_if_its_work_fails(
    candidate: Candidates, client: Client, namespace: str
) -> None:
    async def fail() -> None:
        raise ZeroDivisionError("at work")

    with pytest.raises(ZeroDivisionError, match="at work"):
        await candidate().lead(fail)
    assert (await spec(client, namespace))["holderIdentity"] == ""


async def test_elector_hands_over_to_one_of_three_at_once_when_it_leaves(
    candidate: Candidates, client: Client, namespace: str
) -> None:
    stands = [Stand(candidate(name, timing=LASTING)) for name in "abc"]
    tasks = {
        stand.candidate.identity: asyncio.create_task(stand.candidate.lead(stand.work)) for stand in stands
    }
    led = []
    async with asyncio.timeout(60):
        for term in range(3):
            waits = [asyncio.create_task(stand.leads.wait()) for stand in stands]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
            (leader,) = [stand for stand in stands if stand.candidate.is_leader]
            lease = await spec(client, namespace)
            assert lease["holderIdentity"] == leader.candidate.identity
            assert lease["leaseTransitions"] == term
            led.append(leader)
            stands.remove(leader)
            task = tasks[leader.candidate.identity]
            task.cancel()
            await asyncio.wait({task})
            assert task.cancelled()
    assert len({leader.candidate.identity for leader in led}) == 3


async def test_elector_trusts_no_clock_of_another_machine(
    candidate: Candidates, client: Client, namespace: str
) -> None:
    """A lease with a renew time in the far future is taken over if its holder does not renew it."""
    far = format_micro_time(wall_clock() + timedelta(days=365))
    await make_lease(
        client, namespace, holderIdentity="ghost", leaseDurationSeconds=1, renewTime=far, leaseTransitions=4
    )
    stand = Stand(candidate())
    async with standing(stand), asyncio.timeout(30):
        await stand.leads.wait()
        assert (await spec(client, namespace))["leaseTransitions"] == 5


async def test_elector_observes_a_lease_before_it_takes_it(
    candidate: Candidates, client: Client, proxied: Client, fault_proxy: FaultProxy, namespace: str
) -> None:
    past = format_micro_time(wall_clock() - timedelta(days=365))
    await make_lease(client, namespace, holderIdentity="ghost", leaseDurationSeconds=3600, renewTime=past)
    stand = Stand(candidate(using=proxied))

    async def looked_often() -> bool:
        return len(fault_proxy.asked) >= 6

    async with standing(stand):
        await until(looked_often, "six looks")
        assert not stand.leads.is_set()
    assert {asked.method for asked in fault_proxy.asked} == {"GET"}


async def test_elector_ends_its_work_when_it_sees_another_holder(
    candidate: Candidates, client: Client, namespace: str
) -> None:
    stand = Stand(candidate())
    async with standing(stand) as task:
        await stand.leads.wait()
        await set_spec(client, namespace, holderIdentity="usurper")
        with pytest.raises(
            LeadershipLost, match=f"lease {namespace}/boss was lost: usurper holds the lease now"
        ):
            await task
    assert stand.ended
    assert not stand.candidate.is_leader
    assert metric("losses_total", namespace) == 1.0
    assert (await spec(client, namespace))["holderIdentity"] == "usurper"


async def saw_it(stand: Stand) -> bool:
    return stand.candidate._observation.holder != ""


async def test_elector_recreates_its_deleted_lease_without_losing_it(
    candidate: Candidates, client: Client, namespace: str
) -> None:
    leader = Stand(candidate("leader", timing=LeaseTiming(duration=30, renew_deadline=20, retry_period=1.0)))
    rival = Stand(candidate("rival", timing=LeaseTiming(duration=30, renew_deadline=20, retry_period=0.05)))
    async with standing(leader):
        await leader.leads.wait()
        async with standing(rival):
            await until(lambda: saw_it(rival), "a look at the lease")
            for _ in range(3):
                before = await client.get(LEASES, "boss", namespace=namespace)
                await client.delete(LEASES, "boss", namespace=namespace)

                async def is_back(gone: str = before["metadata"]["uid"]) -> bool:
                    leases = await client.list_objects(LEASES, namespace=namespace)
                    return any(lease["metadata"]["uid"] != gone for lease in leases)

                await until(is_back, "the recreated lease")
                now = await spec(client, namespace)
                assert now["holderIdentity"] == leader.candidate.identity
                assert now["acquireTime"] == before["spec"]["acquireTime"]
            assert not rival.leads.is_set()
        assert leader.candidate.is_leader


@pytest.mark.parametrize(
    "fault",
    [
        faults.status(500),
        faults.status(429, retry_after=1),
        faults.drop(),
        faults.lose_answer(),
        faults.silence(),
    ],
    ids=lambda fault: fault.name,
)
async def test_faults_shorter_than_the_deadline_cost_no_term(
    candidate: Candidates,
    client: Client,
    proxied: Client,
    fault_proxy: FaultProxy,
    namespace: str,
    fault: faults.Fault,
) -> None:
    timing = LeaseTiming(duration=12.0, renew_deadline=8.0, retry_period=0.2)
    stand = Stand(candidate(timing=timing, using=proxied))
    async with standing(stand):
        await stand.leads.wait()
        often = 1 if fault.kind is faults.Kind.SILENCE else 6
        fault_proxy.fail_next(fault, count=often)

        async def recovered() -> bool:
            return fault_proxy.injected[fault.name] == often and not stand.candidate._errors.current()

        await until(recovered, "a renewal after the faults")
        assert stand.candidate.is_leader
        assert not stand.ended
        assert (await spec(client, namespace))["leaseTransitions"] == 0


async def test_work_has_ended_before_the_lease_of_an_unreachable_leader_runs_out(
    candidate: Candidates, proxied: Client, fault_proxy: FaultProxy
) -> None:
    leader = Stand(candidate("leader", using=proxied))
    rival = Stand(candidate("rival"))
    async with standing(leader) as task:
        await leader.leads.wait()
        async with standing(rival), fault_proxy.refusing(), asyncio.timeout(60):
            watching = asyncio.create_task(rival.leads.wait())
            await asyncio.wait({watching, task}, return_when=asyncio.FIRST_COMPLETED)
            assert leader.ended
            with pytest.raises(LeadershipLost, match=r"not renewed for [\d.]+ s"):
                await task
            await watching
            assert not leader.candidate.is_leader


async def test_elector_recognizes_its_write_after_a_lost_response(
    candidate: Candidates, client: Client, proxied: Client, fault_proxy: FaultProxy, namespace: str
) -> None:
    fault_proxy.fail_next(faults.lose_answer(), match=lambda asked: asked.method == "POST")
    stand = Stand(candidate(timing=LASTING, using=proxied))
    async with standing(stand), asyncio.timeout(30):
        await stand.leads.wait()
        assert (await spec(client, namespace))["leaseTransitions"] == 0
    assert fault_proxy.injected["lose answer"] == 1


async def test_elector_releases_a_lease_that_it_does_not_know_it_has(
    candidate: Candidates, client: Client, proxied: Client, fault_proxy: FaultProxy, namespace: str
) -> None:
    fault_proxy.fail_next(faults.silence(), match=lambda asked: asked.method == "POST")
    stand = Stand(candidate(timing=LASTING, using=proxied))

    async def written() -> bool:
        return bool(await client.list_objects(LEASES, namespace=namespace))

    async with standing(stand):
        await until(written, "the claim")
        assert not stand.leads.is_set()
    assert (await spec(client, namespace))["holderIdentity"] == ""


async def test_elector_leads_until_its_work_has_cleaned_up(candidate: Candidates) -> None:
    leading_at_the_end = None

    async def slow_to_end() -> None:
        nonlocal leading_at_the_end
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(SHORT.duration)
            leading_at_the_end = leader.is_leader

    began = asyncio.Event()
    leader = candidate()
    task = asyncio.create_task(leader.lead(slow_to_end))
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert leading_at_the_end


async def test_work_that_will_not_end_is_cancelled_again_and_complained_about(
    candidate: Candidates, client: Client, namespace: str
) -> None:
    async def stubborn() -> None:
        began.set()
        for _ in range(2):
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()

    began = asyncio.Event()
    with capture_logs() as lines:
        task = asyncio.create_task(candidate().lead(stubborn))
        await began.wait()
        await set_spec(client, namespace, holderIdentity="usurper")
        with pytest.raises(LeadershipLost):
            await task
    assert [line["log_level"] for line in lines if line["event"] == "lease.work_still_running"] == ["error"]


async def test_elector_cancelled_while_losing_does_not_try_again(
    candidate: Candidates, client: Client, namespace: str
) -> None:
    async def tidy() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaning.set()
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()

    began, cleaning = asyncio.Event(), asyncio.Event()
    task = asyncio.create_task(candidate().lead(tidy))
    await began.wait()
    await set_spec(client, namespace, holderIdentity="usurper")
    await cleaning.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_elector_logs_the_reason_of_a_failure_once(client: Client) -> None:
    nowhere = LeaderElector(
        client, name="boss", namespace="no-such-namespace", identity="a", timing=SHORT, now=wall_clock
    )
    with capture_logs() as lines:
        for _ in range(3):
            assert await nowhere._try_acquire_or_renew() is None
    (line,) = lines
    assert 'namespaces "no-such-namespace" not found' in line["error"]
