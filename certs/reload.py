"""A TLS context whose certificate can be changed while it serves: new handshakes get the new leaf, old ones go on.

OpenSSL reads certificates from files only. They are memory files here, so a private key never touches a disk and a
read-only root filesystem is enough.
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
    """A context for serving, without a certificate yet."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    # Without a ticket every new connection is a full handshake, and so proves the present certificate.
    made.options |= ssl.OP_NO_TICKET
    # A second handshake on one connection costs the server what a first one does, and waits in no queue. Go's client does not know it either.
    made.options |= ssl.OP_NO_RENEGOTIATION
    made.set_alpn_protocols(["http/1.1"])
    return made


def load(into: ssl.SSLContext, pair: Pair) -> None:
    """Serve this certificate from the next handshake on. Raises ssl.SSLError if the pair is unusable."""
    with _file(pair.certificate + pair.key) as path:
        # A load that fails halfway leaves a context without a key: try it on one that is not used.
        context().load_cert_chain(path)
        into.load_cert_chain(path)


@contextmanager
def _file(content: bytes) -> Iterator[str]:
    if not hasattr(os, "memfd_create"):  # not Linux: a file that only we can read, for as long as a load takes
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
