"""Several things at once."""

import asyncio
import threading

import pytest

from trimtab.aio import FairSlots, run_in_thread, task_group
from trimtab.errors import TrimtabError


async def test_task_group_ends_the_others_and_raises_the_first_failure() -> None:
    ended = asyncio.Event()

    async def wait_for_ever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def fail() -> None:
        raise TrimtabError("no")

    with pytest.raises(TrimtabError, match="no"):
        async with task_group() as group:
            group.create_task(wait_for_ever())
            group.create_task(fail())
    assert ended.is_set()


async def test_to_thread_waits_for_its_thread_however_often_it_is_cancelled() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def work() -> int:
        begun.set()
        go_on.wait(10)
        return 7

    waiting = asyncio.create_task(run_in_thread(work))
    await asyncio.to_thread(begun.wait, 10)
    for _ in range(3):
        waiting.cancel()
        await asyncio.sleep(0)
        assert not waiting.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await run_in_thread(work) == 7


async def test_fair_slots_let_groups_take_turns() -> None:
    slots, order = FairSlots(1), []

    async def work(group: str) -> None:
        async with slots.hold(group):
            order.append(group)
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as tasks:
        for group in ("loud",) * 5 + ("quiet",) * 2:
            tasks.create_task(work(group))
    assert order == ["loud", "loud", "quiet", "loud", "quiet", "loud", "loud"]


@pytest.mark.parametrize("steps", range(4))
async def test_fair_slots_pass_on_the_slot_of_a_cancelled_task(steps: int) -> None:
    slots = FairSlots(1)

    async def work() -> None:
        async with slots.hold("a"):
            await asyncio.sleep(0)

    first, second = asyncio.create_task(work()), asyncio.create_task(work())
    for _ in range(steps):
        await asyncio.sleep(0)
    second.cancel()
    await asyncio.wait([first, second])
    async with asyncio.timeout(1), slots.hold("b"):
        pass
