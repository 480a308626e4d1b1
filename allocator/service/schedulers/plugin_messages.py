"""The request bodies of the plugin's calls (`allocator.service.schedulers.plugin`)."""

from __future__ import annotations

from allocator.decisions import KnownNodes
from dra.objects import Pod
from dra.wire import Wire


class PodQuestion(Wire, frozen=True, kw_only=True):
    pod: Pod
    nodes: KnownNodes | None = None  # count and checksum of the nodes that the scheduler knows
    # The pod's extended resources that a DeviceClass serves, as far as the scheduler knows.
    served: frozenset[str] = frozenset()
    claim_versions: tuple[str, ...] = ()  # the resourceVersions of the pod's claims, as far as the scheduler knows
    suppose: str = ""
    below: int = 1 << 31  # by default above every priority


class FilterQuestion(Wire, frozen=True, kw_only=True):
    token: str
    node: str
    add: tuple[Pod, ...] = ()
    remove: tuple[Pod, ...] = ()


class NodeQuestion(Wire, frozen=True, kw_only=True):
    token: str
    node: str


class ReservationQuestion(Wire, frozen=True, kw_only=True):
    reservation: str = ""
    token: str = ""
    node: str = ""


class GroupMember(Wire, frozen=True, kw_only=True):
    pod: Pod
    node: str


class PreemptionQuestion(Wire, frozen=True, kw_only=True):
    pod: Pod | None = None
    nodes: tuple[str, ...] = ()
    group: tuple[GroupMember, ...] = ()
