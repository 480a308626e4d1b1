"""What a process of the allocator does and where: each setting once, with its default and, where it has a flag, its option."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec

from allocator.decisions import PlacementRules
from allocator.strategies import DEFAULT, Placement, read_placement
from certs.mutual import Files
from runtime.authentication import client_ca_flag, client_names_flag, token_file_flag
from runtime.controllers import Term
from runtime.flag import Flag
from runtime.http import Address
from runtime.process import own_name, own_namespace

Place = Address | Path | None  # a path is a unix socket
LEASE = "drawbridge-allocator"
LOOK_SECONDS = 10.0  # between two looks at the files of TLS
TICK_SECONDS = 1.0
STARVED_SECONDS = 10.0
ANSWER_SECONDS = 10.0
SWEEP_SECONDS = 180.0
FORWARD_SECONDS = 2.5  # for a review that is forwarded; the API server waits for three
BINDING_SECONDS = 600.0  # as long as the in-tree plugin waits for devices
REST_SECONDS = 60.0  # an API server answers a write within a minute, or drops it


class Preempting(StrEnum):
    """What becomes of an important pod that waits for devices of others."""

    OFF = "off"
    ADVISE = "advise"  # an event names the pods that would have to go
    EVICT = "evict"


class LeaderIdentity(NamedTuple):
    """How a leader is known that is asked by address: by a file of authorities and a name in its certificate. In the clear without.

    Its answer is waited for so many seconds.
    """

    authorities: str = ""
    name: str = ""
    seconds: float = FORWARD_SECONDS


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What a process does and where. The help lists the options in this order."""

    read_only: Annotated[
        bool,
        Flag(
            "Decide nothing, alongside any scheduler: why pods wait as events, drift, and which claims hold what as a metric."
        ),
    ] = False
    plugin: Annotated[Place, Flag("Where the scheduler's plugin asks. Off loopback only by mutual TLS.")] = None
    extender: Annotated[Place, Flag("Where a stock kube-scheduler asks, as its HTTP extender.")] = None
    api: Annotated[Place, Flag("Where people ask: /api/v1/simulate-schedule, /claims, /fleet.")] = None
    quota: Annotated[Address | None, Flag("Where API servers ask whether a quota lets a pod or claim in (/quota).")] = (
        None
    )
    quota_certs: Annotated[
        str,
        Flag(
            "The folder with tls.crt and tls.key for --quota, and ca.crt for other replicas; followed while they change.",
            "DIR",
        ),
    ] = ""
    quota_client_ca: Annotated[
        str, Flag("Answer at --quota only to callers with a certificate of this authority.", "FILE")
    ] = ""
    reservations: Annotated[
        Address | None,
        Flag(
            "Where audit agents read the reservations on their nodes, with tokens of their account (docs/node.md).",
        ),
    ] = None
    reservations_certs: Annotated[
        str,
        Flag(
            "The folder with tls.crt and tls.key for --reservations; followed while they change.",
            "DIR",
        ),
    ] = ""
    metrics: Annotated[Address | None, Flag("Where to show metrics.", name="metrics-listen")] = Address(
        "127.0.0.1", 9091
    )
    tls_cert: Annotated[str, Flag("The certificate of plugin, extender and api (PEM); followed.", "FILE")] = ""
    tls_key: Annotated[str, Flag("The key of --tls-cert.", "FILE")] = ""
    client_ca: Annotated[str, client_ca_flag("plugin, extender and api")] = ""
    client_names: Annotated[tuple[str, ...], client_names_flag()] = ()
    token_file: Annotated[str, token_file_flag("plugin and api")] = ""
    schedulers: Annotated[
        tuple[str, ...], Flag("Place the pods of this scheduler. May be repeated.", "NAME", name="scheduler-name")
    ] = ("drawbridge",)
    strategy: Annotated[
        Placement | None,
        Flag(
            "How to place pods when neither they nor their Namespace name a strategy: NAME, or NAME=WEIGHT,NAME=WEIGHT."
            f"  [default: bridge.placement of --config, else {DEFAULT}]",
            "STRATEGY",
            read=read_placement,
        ),
    ] = None
    most_pods_per_node: Annotated[
        int | None,
        Flag(
            "The most pods with devices on one node; 0 for any number.  [default: bridge.placement of --config, else 0]",
            least=0,
        ),
    ] = None
    config: Annotated[
        str,
        Flag(
            "The DrawbridgeConfiguration: how pods are placed, and how legacy ones are read. Followed while it changes.",
            "FILE",
        ),
    ] = ""
    preempting: Annotated[
        Preempting,
        Flag(
            "For pods of --extender that devices of lower-priority pods would serve: name those pods in an event, or evict them.",
            name="extender-preemption",
        ),
    ] = Preempting.ADVISE
    binding: Annotated[
        float,
        Flag(
            "How long devices may take until pods can be bound to them (bindingConditions), before others are chosen.",
            "SECONDS",
            name="binding-timeout",
            least=1,
            most=86400,
        ),
    ] = BINDING_SECONDS
    namespace: Annotated[
        str,
        Flag("Where the lease is. Default: the one we run in, else drawbridge-system.", "NAME", absent=own_namespace),
    ]
    # The policy that fences the lease compares it with the pod's name, so nothing is added to that.
    identity: Annotated[str, Flag("Our name in the lease. Default: our pod's name.", "NAME", absent=own_name)]
    rules: PlacementRules = PlacementRules()
    answer: float = ANSWER_SECONDS  # that a question of people may take
    starved: float = STARVED_SECONDS  # without room, after which a node is kept for a pod
    quota_place: str = ""  # where other replicas find us for that; by default the address itself
    quota_trust: LeaderIdentity = LeaderIdentity()
    look: float = LOOK_SECONDS
    lease: str = LEASE
    term: Term = Term(rest=REST_SECONDS)
    tick: float = TICK_SECONDS
    sweep: float = SWEEP_SECONDS

    @property
    def tls(self) -> Files | None:
        """What plugin, extender and api show where they are addresses."""
        return Files(self.tls_cert, self.tls_key, self.client_ca) if self.tls_cert else None

    @property
    def quota_tls(self) -> Files | None:
        """What is shown to API servers."""
        folder = self.quota_certs
        return Files(f"{folder}/tls.crt", f"{folder}/tls.key", self.quota_client_ca) if folder else None

    @property
    def reservations_tls(self) -> Files | None:
        """What is shown to audit agents."""
        folder = self.reservations_certs
        return Files(f"{folder}/tls.crt", f"{folder}/tls.key", "") if folder else None

    @property
    def agent(self) -> str:
        """The account of the audit agents."""
        return f"system:serviceaccount:{self.namespace}-nodes:drawbridge-node-agent"
