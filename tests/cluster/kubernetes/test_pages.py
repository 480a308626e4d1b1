"""The client requests fewer objects per page if objects are large, so that the size of a page is bounded."""

import asyncio
import json
from urllib.parse import parse_qs

from cluster.kubernetes.client import LARGEST_PAGE, PageSizes
from cluster.resources import CONFIG_MAPS
from tests.cluster.kubernetes.server import connected

OBJECT_COUNT = 40


def test_page_sizes_follow_the_size_of_objects():
    sizes = PageSizes()
    assert sizes.limit("pods", 500) == 500
    sizes.shrink("pods", 500)
    assert sizes.limit("pods", 500) == 125
    assert sizes.limit("pods", 50) == 50
    assert sizes.limit("nodes", 500) == 500
    for limit in (125, 31, 7, 1):
        sizes.shrink("pods", limit)
    assert sizes.limit("pods", 500) == 1
    sizes.learn("pods", LARGEST_PAGE)
    assert sizes.limit("pods", 500) == 1
    for _ in range(20):
        sizes.learn("pods", 1000)
    assert sizes.limit("pods", 500) == 500


def test_an_unpaged_list_that_is_too_large_is_paged():
    sizes = PageSizes()
    assert sizes.limit("pods", 0) == 0
    sizes.shrink("pods", 0)
    assert sizes.limit("pods", 0) == 100


async def test_large_objects_are_listed_in_small_pages(tmp_path):
    """Of forty objects, one is larger than a page, and each of the others has 1.5 MiB."""
    sizes = [3 << 19] * OBJECT_COUNT
    sizes[7] = LARGEST_PAGE + 1000
    requested_limits = []

    async def answer(exchange):
        query = parse_qs(exchange.request.split()[1].partition("?")[2])
        start, limit = (int(query.get(name, ["0"])[0]) for name in ("continue", "limit"))
        requested_limits.append(limit)
        end = min(start + limit, OBJECT_COUNT)
        # Built as bytes, because encoding 60 MB would block the loop.
        await asyncio.sleep(0)
        items = b",".join(b'{"metadata":{"name":"c%d","resourceVersion":"1"},"data":{"x":"%b"}}' % (n, b"y" * sizes[n]) for n in range(start, end))  # fmt: skip
        await asyncio.sleep(0)
        meta = {"resourceVersion": "9", "continue": str(end) if end < OBJECT_COUNT else ""}
        await exchange.reply("200 OK", b'{"metadata":%b,"items":[%b]}' % (json.dumps(meta).encode(), items))

    names, continue_token = [], ""
    async with connected(answer, tmp_path) as (client, _):
        while True:
            page = await client.list(CONFIG_MAPS, more=continue_token)
            names += [item.metadata.name for item in page.items]
            continue_token = page.more
            if not continue_token:
                break
    assert names == [f"c{number}" for number in range(OBJECT_COUNT)]
    assert requested_limits[:4] == [500, 125, 31, 7]
    assert 1 in requested_limits
