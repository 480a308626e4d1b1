"""What a process of the allocator does and where, as the command line and a configuration say it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from allocator.decisions import PlacementRules
from allocator.service.periodic_checks import SWEEP_SECONDS
from allocator.service.preemption.extender_preemption import Preempting
from allocator.service.quota.reviews import Trust
from runtime.controllers import Term

if TYPE_CHECKING:
    from pathlib import Path

    from certs.mutual import Files
    from runtime.http import Address

LEASE = "drawbridge-allocator"
LOOK_SECONDS = 10.0  # between two looks at the files of TLS
TICK_SECONDS = 1.0
STARVED_SECONDS = 10.0
ANSWER_SECONDS = 10.0
BINDING_SECONDS = 600.0  # as long as the in-tree plugin waits for devices
REST_SECONDS = 60.0  # an API server answers a write within a minute, or drops it


class Settings(NamedTuple):
    """What a process does and where. A path is a unix socket."""

    identity: str
    namespace: str
    schedulers: tuple[str, ...] = ("drawbridge",)
    rules: PlacementRules = PlacementRules()
    preempting: Preempting = Preempting.ADVISE  # for the pods of the extender; the plugin asks for itself
    binding: float = BINDING_SECONDS  # that devices may take to be ready to be bound to
    answer: float = ANSWER_SECONDS  # that a question of people may take
    starved: float = STARVED_SECONDS  # without room, after which a node is kept for a pod
    plugin: Address | Path | None = None
    extender: Address | Path | None = None
    api: Address | Path | None = None
    metrics: Address | None = None
    quota: Address | None = None  # where API servers ask about quotas
    quota_tls: Files | None = None
    quota_place: str = ""  # where other replicas find us for that; by default the address itself
    quota_trust: Trust = Trust()
    reservations: Address | None = None  # where audit agents of nodes ask
    reservations_tls: Files | None = None
    agent: str = ""  # the account that is answered there
    tls: Files | None = None  # for addresses
    client_names: tuple[str, ...] = ()  # who of those with a certificate may ask; any if empty
    token_file: str = ""
    look: float = LOOK_SECONDS
    lease: str = LEASE
    term: Term = Term(rest=REST_SECONDS)
    tick: float = TICK_SECONDS
    sweep: float = SWEEP_SECONDS
