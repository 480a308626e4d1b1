"""A TLS server gets a new certificate while it runs, and refuses handshakes that cost much CPU."""

import asyncio
import ssl
from contextlib import suppress

import pytest
from cryptography import x509

from certs import reload
from certs.authority import Pair
from tests.webhook import tls


async def served_serial_number(port, context):
    """Return the serial number of the certificate that a new connection receives."""
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    await writer.wait_closed()
    return x509.load_der_x509_certificate(der).serial_number


@pytest.fixture
async def echo_server():
    """Yield the port and the context of a TLS server that echoes, a client's context, and another leaf that the client trusts."""
    (first, leaf), (second, second_leaf) = tls.authority_and_leaf(), tls.authority_and_leaf()
    context = tls.server(leaf)
    done = asyncio.Event()

    async def serve(reader, writer):
        while data := await reader.read(100):
            writer.write(data)
        writer.close()
        done.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    yield server.sockets[0].getsockname()[1], context, tls.client(first, second), second_leaf
    server.close()


async def test_new_connections_get_the_new_leaf(echo_server):
    port, context, client, second_leaf = echo_server
    before = await served_serial_number(port, client)
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client)
    reload.load(context, second_leaf)
    assert await served_serial_number(port, client) != before
    writer.write(b"still here")
    assert await reader.read(100) == b"still here"
    writer.close()
    await writer.wait_closed()


async def test_a_broken_pair_is_refused_and_the_old_leaf_stays(echo_server):
    port, context, client, second_leaf = echo_server
    before = await served_serial_number(port, client)
    with pytest.raises(ssl.SSLError):
        reload.load(context, Pair(second_leaf.certificate, b"no key"))
    assert await served_serial_number(port, client) == before


def shake_hands(client):
    """Return the TLS version of a handshake with the context of this client. Raise SSLError if the handshake fails."""
    context = tls.server(tls.authority_and_leaf()[1])
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    server, peer = context.wrap_bio(to_server, to_client, server_side=True), client.wrap_bio(to_client, to_server)
    for _ in range(3):
        for side in (peer, server):
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
    return peer.version()


@pytest.mark.parametrize("group", ["ffdhe8192", "ffdhe2048", "secp521r1", "secp384r1", "X448"])
def test_a_peer_with_only_costly_groups_gets_no_handshake(group):
    """A client can repeat its first message, and with such a group for the key exchange each handshake would cost up to 120 ms of CPU."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        client.set_ecdh_curve(group)
    except ValueError:
        pytest.fail(f"this OpenSSL has no {group}")
    with pytest.raises(ssl.SSLError, match="NO_SUITABLE_KEY_SHARE"):
        shake_hands(client)


@pytest.mark.parametrize("group", ["", "prime256v1"])
def test_a_client_with_default_groups_or_p256_is_served(group):
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if group:
        client.set_ecdh_curve(group)
    assert shake_hands(client) == "TLSv1.3"


def test_a_connection_needs_tls_13_and_gets_no_tickets():
    """TLS before 1.3 has renegotiations, which bypass the limit of handshakes, and CBC ciphers, which cost ten times as much CPU."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError, match="UNSUPPORTED_PROTOCOL"):
        shake_hands(client)
    assert reload.context().options & ssl.OP_NO_TICKET
