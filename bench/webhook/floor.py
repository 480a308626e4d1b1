"""The floor for webhooks: the simplest webhook that gives a pod its claims. It answers each review at once with the same bytes.

It is registered like our webhook: for the same objects, with the same conditions, with TLS. It can answer reviews of one pod only: its patch
removes the legacy keys of that pod and names an existing template. It decides, signs, logs and records nothing. No validating webhook checks
its patch, and it does not follow a cluster. With any webhook that translates, an API server spends at least as much as with the floor. The
difference between our webhook and the floor is the cost of our webhook.

    python -m bench.webhook.floor CERTIFICATE KEY PATCH PORT serves
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import ssl
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from cli.loop import run
from webhook.registration import Registration, configurations
from webhook.state import Configuration

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NAME = "floor"
# An API server sends Content-Length near the beginning of the head, and the uid near the beginning of the body, in this form.
LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)\r\n")
UID = re.compile(rb'"uid": ?"([0-9a-f-]{36})"')
END = b"\r\n\r\n"
BEFORE = b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"allowed":true,"patchType":"JSONPatch","patch":"'
AFTER = b'","uid":"%b"}}'
UID_BYTES = 36


def patch(pod: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the fewest patch operations that turn a reviewed pod of one container into the spec of this pod."""
    [container] = pod["spec"]["containers"]
    resources = container["resources"] | {"requests": container["resources"]["limits"]}  # as an API server completes it
    return [
        {"op": "replace", "path": "/spec/containers/0/resources", "value": resources},
        {"op": "add", "path": "/spec/resourceClaims", "value": pod["spec"]["resourceClaims"]},
    ]


def registration(url: str, bundle: bytes) -> dict[str, Any]:
    """Return a registration with the same pods and conditions as our mutating webhook."""
    options = Registration(url=url, ca_bundle=base64.b64encode(bundle).decode())
    configuration: dict[str, Any] = json.loads(json.dumps(configurations(Configuration().dialects, options)[0]))
    configuration["metadata"]["name"] = NAME
    configuration["webhooks"][0]["timeoutSeconds"] = (
        20  # as in the registration of our webhook in this benchmark: no review fails because the machine is busy
    )
    return configuration


class Peer(asyncio.Protocol):
    """One connection. It does not validate requests, because only the API server of the benchmark connects."""

    def __init__(self, encoded: bytes) -> None:
        self.encoded = encoded
        self.received = b""
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop has a class of its own

    def data_received(self, data: bytes) -> None:
        self.received += data
        head, separator, body = self.received.partition(END)
        if not separator:
            return
        length = LENGTH.search(head + b"\r\n")
        if length is None or len(body) < int(length[1]):
            return
        self.received = b""
        uid = UID.search(body)
        self.transport.write(self.encoded + AFTER % (uid[1] if uid else b""))


def encoded_answer(operations: bytes) -> bytes:
    """Return the HTTP head and the body of the answer, up to the uid."""
    body = BEFORE + base64.b64encode(operations)
    length = len(body) + len(AFTER) - len(b"%b") + UID_BYTES
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % length + body


async def serve(certificate: str, key: str, operations: bytes, port: int) -> None:
    """Answer until the process ends."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    encoded = encoded_answer(operations)
    server = await asyncio.get_running_loop().create_server(lambda: Peer(encoded), "127.0.0.1", port, ssl=tls)
    await server.serve_forever()


if __name__ == "__main__":
    run(serve(sys.argv[1], sys.argv[2], Path(sys.argv[3]).read_bytes(), int(sys.argv[4])))
