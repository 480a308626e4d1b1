"""The settings of an allocator process, with their defaults and command line options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec

from certs.mutual import Files
from cluster.controllers import Term
from serving.authentication import client_ca_flag, client_names_flag, token_file_flag
from serving.flag import Flag
from serving.http import Address
from serving.process import own_name, own_namespace

Place = Address | Path | None  # a path is a unix socket
LEASE = "drawbridge-allocator"
LOOK_SECONDS = 10.0  # between two checks of the TLS files
TICK_SECONDS = 1.0
STARVED_SECONDS = 10.0
SWEEP_SECONDS = 180.0
BINDING_SECONDS = 600.0  # as long as the in-tree plugin waits for devices
REST_SECONDS = 60.0  # an API server drops a write that it has not finished within a minute


class AllocatorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a process. The help lists the options in this order."""

    read_only: Annotated[
        bool,
        Flag(
            "Run beside another scheduler: explain waiting pods in events, report inconsistencies, and show held devices as metrics."
        ),
    ] = False
    plugin: Annotated[Place, Flag("Listen here for the scheduler's plugin; beyond loopback only with mutual TLS.")] = (
        None
    )
    api: Annotated[Place, Flag("Listen here for the HTTP API: /api/v1/claims, /quota, /drift, /simulate.")] = None
    reservations: Annotated[
        Address | None,
        Flag(
            "Listen here for audit agents, which read the reservations of their node with their token (docs/node.md).",
        ),
    ] = None
    reservations_certs: Annotated[
        str,
        Flag(
            "The folder with tls.crt and tls.key for --reservations; files are reloaded when they change.",
            "DIR",
        ),
    ] = ""
    metrics: Annotated[Address | None, Flag("Serve metrics here.", name="metrics-listen")] = Address("127.0.0.1", 9091)
    tls_cert: Annotated[str, Flag("The certificate of plugin and api (PEM); reloaded when it changes.", "FILE")] = ""
    tls_key: Annotated[str, Flag("The key of --tls-cert.", "FILE")] = ""
    client_ca: Annotated[str, client_ca_flag("plugin and api")] = ""
    client_names: Annotated[tuple[str, ...], client_names_flag()] = ()
    token_file: Annotated[str, token_file_flag("plugin and api")] = ""
    schedulers: Annotated[
        tuple[str, ...], Flag("Place the pods of this scheduler. May be repeated.", "NAME", name="scheduler-name")
    ] = ("drawbridge",)
    config: Annotated[
        str,
        Flag(
            "The DrawbridgeConfiguration: how to place pods, and what the API server supports. Reloaded when it changes.",
            "FILE",
        ),
    ] = ""
    binding: Annotated[
        float,
        Flag(
            "How long to wait for a device's bindingConditions before other devices are chosen.",
            "SECONDS",
            name="binding-timeout",
            least=1,
            most=86400,
        ),
    ] = BINDING_SECONDS
    namespace: Annotated[
        str,
        Flag("The namespace of the Lease. Default: our own, else drawbridge-system.", "NAME", absent=own_namespace),
    ]
    # The policy that lets only the Lease holder write compares the holder with the pod's name, so the identity is exactly that name.
    identity: Annotated[str, Flag("Our identity in the Lease. Default: our pod's name.", "NAME", absent=own_name)]
    starved: float = STARVED_SECONDS  # a node is kept for a pod that has waited for room for this many seconds
    look: float = LOOK_SECONDS
    lease: str = LEASE
    term: Term = Term(rest=REST_SECONDS)
    tick: float = TICK_SECONDS
    sweep: float = SWEEP_SECONDS

    @property
    def tls(self) -> Files | None:
        """The TLS files of plugin and api."""
        return Files(self.tls_cert, self.tls_key, self.client_ca) if self.tls_cert else None

    @property
    def reservations_tls(self) -> Files | None:
        """The TLS files of `reservations`."""
        folder = self.reservations_certs
        return Files(f"{folder}/tls.crt", f"{folder}/tls.key", "") if folder else None

    @property
    def agent(self) -> str:
        """The account of the audit agents."""
        return f"system:serviceaccount:{self.namespace}-nodes:drawbridge-node-agent"
