"""Only clients with a certificate reach the allocator over the network, even after the certificate files have changed."""

import asyncio
import contextlib
import datetime as dt
import ssl

import aiohttp
import pytest

from allocator.service import AllocatorServer, AllocatorSettings
from allocator.service.app import AllocatorApp
from allocator.service.metrics import Metrics
from allocator.service.ports import Ports
from allocator.service.read_only.allocator import ReadOnlyAllocator
from serving.http import Address, Head
from tests.allocator.service.sidecar import TERM, fleet, loaded, until
from tests.certs.peers import Peers, certificate
from tests.webhook import tls

PATHS_BY_PORT = {"plugin": "/plugin/v1/state", "api": "/api/v1/claims"}


@pytest.fixture
def peers(tmp_path):
    return Peers(tmp_path)


@contextlib.asynccontextmanager
async def serving(peers, process=AllocatorServer, ports=tuple(PATHS_BY_PORT), **settings):
    """Run a service on network addresses; yield the service and its addresses."""
    default_settings = {name: Address() for name in ports} | {"term": TERM, "tick": 0.05, "look": 0.02}
    service = process(
        loaded(*fleet()),
        AllocatorSettings(
            identity="one", namespace="default", metrics=Address(), **peers.settings, **default_settings, **settings
        ),
    )
    stop, ready = asyncio.Event(), asyncio.get_running_loop().create_future()
    run = asyncio.create_task(service.run(stop, ready.set_result))
    try:
        await until(lambda: run.done() or ready.done())
        if run.done():
            await run
        yield service, ready.result()
    finally:
        stop.set()
        await run


async def status_of(address, path, context, **headers):
    """Return the status of an answer."""
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session,
        session.get(f"https://{address}{path}", headers=headers) as answer,
    ):
        return answer.status


async def send_requests_forever(session, url):
    while True:
        async with session.get(url) as answer:
            assert answer.status == 200
        await asyncio.sleep(0.01)


async def is_let_in(address, path, context):
    try:
        return await status_of(address, path, context) != 0
    except (aiohttp.ClientError, ssl.SSLError, ConnectionError):
        return False


@pytest.mark.parametrize("setting", ["tls", "reservations_certs"])
def test_an_expired_certificate_of_any_port_is_reported(peers, setting):
    settings = peers.settings if setting == "tls" else {setting: str(peers.folder)}

    def problem():
        return Ports(AllocatorSettings(identity="one", namespace="default", **settings), Metrics()).what_is_wrong()

    assert problem() == ""
    _, expired = tls.authority_and_leaf(start=dt.datetime.now(dt.UTC) - dt.timedelta(days=100))
    peers.cert.write_bytes(expired.certificate)
    peers.key.write_bytes(expired.key)
    assert problem() == "expired"


@pytest.mark.parametrize("port", PATHS_BY_PORT)
async def test_a_client_without_a_valid_certificate_is_refused(peers, port):
    async with serving(peers) as (_, listening):
        address, path = getattr(listening, port), PATHS_BY_PORT[port]
        assert await is_let_in(address, path, peers.context())
        assert not await is_let_in(address, path, peers.context(has_certificate=False))
        peers.replace_client_certificate("scheduler", certificate("other"))
        assert not await is_let_in(address, path, peers.context())


async def test_only_metrics_and_probes_are_served_without_tls(peers):
    async with serving(peers) as (_, listening), aiohttp.ClientSession() as session:
        for port, path in PATHS_BY_PORT.items():
            with pytest.raises(aiohttp.ClientError):
                await session.get(f"http://{getattr(listening, port)}{path}")
        async with session.get(f"http://{listening.metrics}/livez") as answer:
            assert answer.status == 200


async def test_only_clients_with_an_allowed_name_are_answered(peers):
    async with serving(peers, client_names=("system:kube-scheduler",)) as (_, listening):
        assert await status_of(listening.api, PATHS_BY_PORT["api"], peers.context()) == 403
        peers.replace_client_certificate("system:kube-scheduler")
        assert await status_of(listening.api, PATHS_BY_PORT["api"], peers.context()) == 200


async def test_a_renewed_certificate_is_served_without_a_restart(peers):
    async with serving(peers) as (service, listening):
        old_context = peers.context()
        peers.renew()
        new_context = peers.context()
        await until(lambda: is_let_in(listening.api, PATHS_BY_PORT["api"], new_context))
        assert not await is_let_in(listening.api, PATHS_BY_PORT["api"], old_context)
        assert service.ports.note() == ""


async def test_connections_of_a_removed_authority_are_closed(peers):
    """An open connection could otherwise send requests forever."""
    async with serving(peers) as (_, listening):
        connector = aiohttp.TCPConnector(ssl=peers.context())
        async with aiohttp.ClientSession(connector=connector) as session:
            url = f"https://{listening.api}{PATHS_BY_PORT['api']}"
            async with session.get(url) as answer:
                assert answer.status == 200
            peers.client_ca.write_bytes(tls.authority_and_leaf()[0].certificate)
            with pytest.raises((aiohttp.ClientError, ssl.SSLError)):
                await send_requests_forever(session, url)


async def test_unreadable_certificate_files_are_reported_and_the_last_certificate_served(peers):
    async with serving(peers) as (service, listening):
        context = peers.context()
        peers.key.unlink()
        await until(service.ports.note)
        assert await status_of(listening.api, PATHS_BY_PORT["api"], context) == 200
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://{listening.metrics}/readyz?verbose") as answer:
                assert f"{peers.key} cannot be read" in await answer.text()
            async with session.get(f"http://{listening.metrics}/metrics") as answer:
                assert "drawbridge_allocator_certificate_days 0.9" in await answer.text()


async def test_a_read_only_allocator_also_requires_client_certificates(peers):
    async with serving(peers, ReadOnlyAllocator, ports=("api",)) as (_, listening):
        assert await is_let_in(listening.api, PATHS_BY_PORT["api"], peers.context())
        assert not await is_let_in(listening.api, PATHS_BY_PORT["api"], peers.context(has_certificate=False))


async def test_a_refusal_by_certificate_name_mentions_the_client_name_option():
    head = Head("GET", "/x", "", {}, 0, certified=True, name="node")
    refusal = AllocatorApp({("GET", "/x"): print}, names=("scheduler",)).refuse(head)
    assert (refusal.status, b"--client-name" in refusal.body) == (403, True)
