"""Requests that the client retries, and those that it does not, over a faulty connection to a real server."""

from collections.abc import AsyncIterator

import pytest

from harness.faults import faults
from harness.faults.faultproxy import FaultProxy
from trimtab.kube import errors
from trimtab.kube.auth import load_connection
from trimtab.kube.rest.client import Client, Object, PatchType
from trimtab.kube.rest.resources import CONFIG_MAPS
from trimtab.kube.rest.retry import RetryPolicy
from trimtab.timing import Backoff

QUICK = RetryPolicy(attempts=4, backoff=Backoff(first=0.01, ceiling=0.05))


@pytest.fixture
async def unlucky(fault_proxy: FaultProxy) -> AsyncIterator[Client]:
    """A client whose every request passes the fault proxy."""
    async with Client(load_connection(kubeconfig=fault_proxy.kubeconfig), retry=QUICK, timeout=1.0) as client:
        yield client


def config_map(name: str) -> Object:
    return {"metadata": {"name": name}}


@pytest.mark.parametrize(
    "fault",
    [
        faults.status(429, retry_after=0),
        faults.status(500),
        faults.status(503),
        faults.status(504),
        faults.drop(),
        faults.lose_answer(),
        faults.tear(),
        faults.silence(),
        faults.garble(),
    ],
    ids=lambda fault: fault.name,
)
async def test_retry_repeats_reads_until_they_succeed(
    unlucky: Client, fault_proxy: FaultProxy, namespace: str, fault: faults.Fault
) -> None:
    fault_proxy.fail_next(fault, count=2)
    assert isinstance(await unlucky.list_objects(CONFIG_MAPS, namespace=namespace), list)
    assert len(fault_proxy.asked) == 3


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (429, errors.TooManyRequests),
        (500, errors.InternalError),
        (502, errors.ServerError),
        (503, errors.Unavailable),
        (504, errors.ServerTimeout),
    ],
)
async def test_retry_ends_with_the_last_response_of_the_server(
    unlucky: Client, fault_proxy: FaultProxy, namespace: str, code: int, kind: type[errors.ApiError]
) -> None:
    fault_proxy.fail_next(faults.status(code), count=99)
    with pytest.raises(kind):
        await unlucky.list_objects(CONFIG_MAPS, namespace=namespace)
    assert len(fault_proxy.asked) == QUICK.attempts


async def test_retry_gives_up_a_silent_server_in_time(
    unlucky: Client, fault_proxy: FaultProxy, namespace: str
) -> None:
    fault_proxy.fail_next(faults.silence(), count=99)
    with pytest.raises(errors.TimedOut) as caught:
        await unlucky.list_objects(CONFIG_MAPS, namespace=namespace)
    assert caught.value.sent


@pytest.mark.parametrize("code", [403, 404, 409, 422])
async def test_retry_accepts_a_rejection(
    unlucky: Client, fault_proxy: FaultProxy, namespace: str, code: int
) -> None:
    fault_proxy.fail_next(faults.status(code), count=99)
    with pytest.raises(errors.ApiError):
        await unlucky.get(CONFIG_MAPS, "a", namespace=namespace)
    assert len(fault_proxy.asked) == 1


async def test_retry_does_not_repeat_a_create_that_may_have_succeeded(
    client: Client, unlucky: Client, fault_proxy: FaultProxy, namespace: str
) -> None:
    fault_proxy.fail_next(faults.lose_answer())
    with pytest.raises(errors.Unreachable) as caught:
        await unlucky.create(CONFIG_MAPS, config_map("once"), namespace=namespace)
    assert caught.value.sent
    assert len(fault_proxy.asked) == 1
    assert await client.get(CONFIG_MAPS, "once", namespace=namespace), "it was made, only the answer was lost"


async def test_retry_reports_a_response_that_is_not_from_an_api_server(
    unlucky: Client, fault_proxy: FaultProxy, namespace: str
) -> None:
    fault_proxy.fail_next(faults.garble())
    with pytest.raises(
        errors.KubeResponseError, match=r"not from a Kubernetes API server .*<html>We are back soon</html>"
    ) as caught:
        await unlucky.create(CONFIG_MAPS, config_map("perhaps"), namespace=namespace)
    assert caught.value.sent


async def test_retry_repeats_a_create_that_surely_failed(
    unlucky: Client, fault_proxy: FaultProxy, namespace: str
) -> None:
    async with fault_proxy.refusing():
        with pytest.raises(errors.Unreachable) as caught:
            await unlucky.create(CONFIG_MAPS, config_map("never"), namespace=namespace)
    assert not caught.value.sent
    fault_proxy.fail_next(faults.status(429), count=2)
    assert await unlucky.create(CONFIG_MAPS, config_map("late"), namespace=namespace)


async def test_retry_repeats_an_idempotent_change_whose_response_was_lost(
    client: Client, unlucky: Client, fault_proxy: FaultProxy, namespace: str
) -> None:
    await client.create(CONFIG_MAPS, config_map("a"), namespace=namespace)
    fault_proxy.fail_next(faults.lose_answer())
    patched = await unlucky.patch(
        CONFIG_MAPS, "a", {"data": {"size": "2"}}, type=PatchType.MERGE, namespace=namespace
    )
    assert patched["data"] == {"size": "2"}
    fault_proxy.fail_next(faults.lose_answer())
    assert not await unlucky.delete(CONFIG_MAPS, "a", namespace=namespace), (
        "the lost answer was the deletion's"
    )
