"""`Latest` delivers only the latest messages of a fast stream."""

import asyncio

import pytest

from node.service.adapting.plugin_host import Latest


async def test_superseded_messages_are_skipped_and_the_last_is_delivered():
    resume = asyncio.Event()

    async def numbers():
        yield 0
        await resume.wait()
        for number in range(1, 1000):
            yield number

    latest = Latest(numbers(), interval=0.0)
    assert await anext(latest) == 0
    resume.set()
    await latest._reading
    assert [message async for message in latest] == [999]


async def test_the_stream_is_not_read_during_the_interval():
    read_numbers = []

    async def numbers():
        for number in range(1000):
            read_numbers.append(number)
            yield number

    latest = Latest(numbers(), interval=3600.0)
    assert await anext(latest) == 0
    await asyncio.sleep(0)
    assert read_numbers == [0]
    await latest.close()


async def test_a_streams_error_is_raised_after_its_last_message():
    async def broken():
        yield 1
        raise OSError("gone")

    latest = Latest(broken(), interval=0.0)
    assert await anext(latest) == 1
    for _ in range(2):
        with pytest.raises(OSError, match="gone"):
            await anext(latest)
