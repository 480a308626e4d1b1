"""The proxy to the API server: a planned break happens once."""

import http.client
import socketserver
import ssl
import threading

import pytest

from e2e.actors.proxy import Proxy, read_request
from tests.certs.peers import Peers
from tests.limits import PATIENCE

CLAIM = "/apis/resource.k8s.io/v1/namespaces/a/resourceclaims/c"
RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine"


class Server(socketserver.BaseRequestHandler):
    """Answers every request with the same response."""

    def handle(self):
        with self.server.context.wrap_socket(self.request, server_side=True) as connection:
            if read_request(connection):
                connection.sendall(RESPONSE)


@pytest.fixture
def proxy(tmp_path):
    peers = Peers(tmp_path)
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Server) as server:
        server.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.context.load_cert_chain(peers.cert, peers.key)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        instance = Proxy(f"https://127.0.0.1:{server.server_address[1]}", peers.ca)
        yield instance
        instance.close()
        server.shutdown()


def patch(proxy):
    """Patch a claim; return whether there was a response."""
    connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=PATIENCE)
    try:
        connection.request("PATCH", CLAIM, b"{}")
        return connection.getresponse().read() == b"fine"
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def test_the_proxy_breaks_at_a_write_after_a_held_write(proxy):
    assert patch(proxy)
    for _ in range(2):
        proxy.hold_at(1)
        thread = threading.Thread(target=patch, args=(proxy,))
        thread.start()
        assert proxy.held.wait(PATIENCE)
        assert not proxy.late
        proxy.let_go.set()
        thread.join(PATIENCE)
        assert proxy.late.endswith(b"fine")
    proxy.restore()
    assert patch(proxy)
    proxy.break_at(2, answered=True)
    assert patch(proxy)
    assert not proxy.broken.is_set()
    assert not patch(proxy)
    assert proxy.broken.wait(PATIENCE)
