"""What a process of the webhook does and where: each setting once, with its default and, where it has a flag, its option."""

from __future__ import annotations

from typing import Annotated

import msgspec

from certs.rotation import Policy
from runtime.authentication import Credentials, client_ca_flag, client_names_flag, token_file_flag
from runtime.controllers import Term
from runtime.flag import Flag
from runtime.http import Address
from runtime.process import own_namespace
from webhook.names import NAME, NAMESPACE
from webhook.service.pace import Pace

# How long a connection that no client uses is kept after the port has closed, in units of the notice.
LINGER = 3.0


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What a process does and where. The help lists the options in this order."""

    identity: str = ""
    secret: str = NAME
    # Likewise of the allocator's certificate as `names` of ours, where API servers ask about quotas.
    allocator_names: tuple[str, ...] = ()
    config: Annotated[str, Flag("The DrawbridgeConfiguration; followed while it changes.", "FILE")] = ""
    reviews: Annotated[bool, Flag("Answer reviews.")] = True
    controllers: Annotated[bool, Flag("Keep the templates.")] = True
    authority: Annotated[
        bool | None, Flag("Keep certificates, signing keys and caBundle.  [default: as --controllers]")
    ] = None
    listen: Annotated[Address, Flag("Where to answer reviews (TLS).")] = Address("127.0.0.1", 8443)
    metrics: Annotated[Address | None, Flag("Where to show metrics.", name="metrics-listen")] = Address(
        "127.0.0.1", 9090
    )
    namespace: Annotated[
        str,
        Flag("Our own namespace. Default: the one we run in, else drawbridge-system.", "NAME", absent=own_namespace),
    ] = NAMESPACE
    service: Annotated[str, Flag("The Service the API server calls.", "NAME")] = NAME
    names: Annotated[
        tuple[str, ...], Flag("A further name or address the certificate is for.", "HOST", name="name")
    ] = ()
    tls_cert: Annotated[
        str, Flag("Serve this certificate, which is renewed elsewhere, instead of our own.", "FILE")
    ] = ""
    tls_key: Annotated[str, Flag("The key of --tls-cert.", "FILE")] = ""
    client_ca: Annotated[str, client_ca_flag("reviews")] = ""
    client_names: Annotated[tuple[str, ...], client_names_flag()] = ()
    token_file: Annotated[str, token_file_flag("reviews")] = ""
    # After the order to stop: how long to serve on while endpoints change, and how long what is in flight may take.
    notice: Annotated[float, Flag("Seconds to serve on after SIGTERM.", least=0)] = 5.0
    linger: float = LINGER
    grace: float = 10.0
    sweep_after: Annotated[float, Flag("Seconds to keep an unused template.", least=0)] = 3600.0
    sweep_every: float = 30.0
    term: Term = Term()
    policy: Policy | None = None
    pace: Pace = Pace()

    @property
    def is_authority(self) -> bool:
        """Whether it keeps the certificates, the signing keys and the bundle in the webhook configurations."""
        return self.controllers if self.authority is None else self.authority

    @property
    def reads_cluster(self) -> bool:
        """Whether anything here decides on what there is in the cluster: the authority does not."""
        return self.reviews or self.controllers

    @property
    def files(self) -> tuple[str, str] | None:
        """A certificate that another program keeps, and its key."""
        return (self.tls_cert, self.tls_key) if self.tls_cert else None

    @property
    def credentials(self) -> Credentials:
        """What a caller has to show."""
        return Credentials(self.client_ca, self.client_names, self.token_file)
