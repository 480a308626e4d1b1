import asyncio
import ssl

import pytest
from cryptography import x509

from certs import reload
from certs.authority import Pair
from tests.webhook import tls


async def served(port, context):
    """The certificate a new connection gets."""
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    await writer.wait_closed()
    return x509.load_der_x509_certificate(der).serial_number


@pytest.fixture
async def echo():
    """A TLS server that echoes, its context, and the client side's contexts for two authorities."""
    (first, leaf), (second, other) = tls.pair(), tls.pair()
    context = tls.server(leaf)
    done = asyncio.Event()

    async def serve(reader, writer):
        while data := await reader.read(100):
            writer.write(data)
        writer.close()
        done.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    yield server.sockets[0].getsockname()[1], context, tls.client(first, second), other
    server.close()


async def test_new_connections_get_the_new_leaf_and_old_ones_go_on(echo):
    port, context, client, other = echo
    before = await served(port, client)
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client)
    reload.load(context, other)
    assert await served(port, client) != before
    writer.write(b"still here")
    assert await reader.read(100) == b"still here"
    writer.close()
    await writer.wait_closed()


async def test_a_broken_pair_is_refused_and_the_old_leaf_stays(echo):
    port, context, client, other = echo
    before = await served(port, client)
    with pytest.raises(ssl.SSLError):
        reload.load(context, Pair(other.certificate, b"no key"))
    assert await served(port, client) == before


def test_a_connection_has_one_handshake_and_no_tickets():
    """A second request on the same connection would be answered without standing in line."""
    options = reload.context().options
    assert options & ssl.OP_NO_RENEGOTIATION
    assert options & ssl.OP_NO_TICKET
