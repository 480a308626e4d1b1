"""The settings of a webhook process. Each setting has a default, and some have a command-line flag."""

from __future__ import annotations

from typing import Annotated

import msgspec

from certs.rotation import Policy
from cluster.controllers import Term
from serving.authentication import Credentials, client_ca_flag, client_names_flag, token_file_flag
from serving.flag import Flag
from serving.http import Address
from serving.process import own_namespace
from webhook.names import NAME, NAMESPACE
from webhook.service.pace import Pace

# How long an idle connection stays open after the port has closed, as a multiple of `notice`.
LINGER = 3.0


class WebhookSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one process. The help lists the flags in this order."""

    identity: str = ""
    secret: str = NAME
    # DNS names of the certificate with which the allocator serves reservations; () creates no such certificate.
    allocator_names: tuple[str, ...] = ()
    config: Annotated[str, Flag("The DrawbridgeConfiguration; changes take effect without a restart.", "FILE")] = ""
    reviews: Annotated[bool, Flag("Answer admission reviews.")] = True
    controllers: Annotated[bool, Flag("Create and delete ResourceClaimTemplates.")] = True
    authority: Annotated[
        bool | None, Flag("Maintain certificates, signing keys and caBundle.  [default: as --controllers]")
    ] = None
    listen: Annotated[Address, Flag("Where to answer admission reviews (TLS).")] = Address("127.0.0.1", 8443)
    metrics: Annotated[Address | None, Flag("Where to show metrics.", name="metrics-listen")] = Address(
        "127.0.0.1", 9090
    )
    namespace: Annotated[
        str,
        Flag(
            "drawbridge's own namespace. Default: that of this pod, else drawbridge-system.",
            "NAME",
            absent=own_namespace,
        ),
    ] = NAMESPACE
    service: Annotated[str, Flag("The Service that the API server calls.", "NAME")] = NAME
    names: Annotated[
        tuple[str, ...], Flag("A further DNS name or IP address of the certificate.", "HOST", name="name")
    ] = ()
    tls_cert: Annotated[
        str, Flag("Serve this certificate, which another program renews, instead of drawbridge's own.", "FILE")
    ] = ""
    tls_key: Annotated[str, Flag("The key of --tls-cert.", "FILE")] = ""
    client_ca: Annotated[str, client_ca_flag("reviews")] = ""
    client_names: Annotated[tuple[str, ...], client_names_flag()] = ()
    token_file: Annotated[str, token_file_flag("reviews")] = ""
    # After SIGTERM the process serves for `notice` more seconds, so that the Service's endpoints can change. Then requests in flight have
    # `grace` seconds.
    notice: Annotated[float, Flag("How long to continue serving after SIGTERM.", metavar="SECONDS", least=0)] = 5.0
    linger: float = LINGER
    grace: float = 10.0
    sweep_after: Annotated[float, Flag("How long to keep an unused template.", metavar="SECONDS", least=0)] = 3600.0
    sweep_every: float = 30.0
    term: Term = Term()  # the times of the leader election
    policy: Policy | None = None  # lifetimes of certificates; None: the defaults
    pace: Pace = Pace()

    @property
    def is_authority(self) -> bool:
        """Whether the process maintains the certificates, the signing keys and the bundle in the webhook configurations."""
        return self.controllers if self.authority is None else self.authority

    @property
    def reads_cluster(self) -> bool:
        """Whether the process reads nodes, slices and pods. A process that is only the authority does not."""
        return self.reviews or self.controllers

    @property
    def files(self) -> tuple[str, str] | None:
        """The files of a certificate that another program renews, and of its key."""
        return (self.tls_cert, self.tls_key) if self.tls_cert else None

    @property
    def credentials(self) -> Credentials:
        return Credentials(self.client_ca, self.client_names, self.token_file)
