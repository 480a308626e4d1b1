"""A TLS context whose certificate can be replaced while it serves: new handshakes get the new certificate, connections stay open.

OpenSSL reads certificates only from files. Memory files (memfd) are used, so that private keys are not written to disk, and the root
filesystem can be read-only.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from certs.authority import Pair


def context() -> ssl.SSLContext:
    """Return a context for serving, without a certificate yet.

    Nothing that a peer can choose costs enough CPU for an attack (docs/security.md): TLS 1.3 has no compression, renegotiation, CBC or static
    RSA.
    """
    new_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    new_context.minimum_version = ssl.TLSVersion.TLSv1_3
    # OpenSSL's default groups include ffdhe8192, whose key share costs 120 ms of CPU, and P-384, which costs 2 ms. Python before 3.15 can set
    # only one group.
    # Every client must have P-256 (RFC 8446, 9.1). If a client sends the share of another group, OpenSSL requests this one, which costs
    # one round trip.
    new_context.set_ecdh_curve("prime256v1")
    # Without session tickets every new connection does a full handshake and so verifies the current certificate.
    new_context.options |= ssl.OP_NO_TICKET
    new_context.set_alpn_protocols(["http/1.1"])
    return new_context


def load(into: ssl.SSLContext, pair: Pair) -> None:
    """Serve this certificate from the next handshake on. Raises ssl.SSLError if the pair is unusable."""
    with _file(pair.certificate + pair.key) as path:
        # A failed load can leave a context without a key, so it is tried on an unused context first.
        context().load_cert_chain(path)
        into.load_cert_chain(path)


@contextmanager
def _file(content: bytes) -> Iterator[str]:
    if not hasattr(os, "memfd_create"):  # not Linux: a temporary file that only its owner can read
        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            yield file.name
        return
    descriptor = os.memfd_create("drawbridge-tls", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, content)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
