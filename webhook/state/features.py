"""The features of the API server and of schedulers. They determine which claims the webhook can make.

The API server silently drops fields whose feature gate is off. A scheduler that is built on older libraries ignores shares of devices, or
fails on them. The webhook makes no claims that need a missing feature. Stages follow kubernetes:pkg/features/kube_features.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dra import server as servers
from dra.server import DeclaredServer, KnownServer, Server
from webhook.dialects import ALTERNATIVES, CLAIMS, SHARES, Need, SchedulerSupport
from webhook.names import CONFIGURATION_PAGE

if TYPE_CHECKING:
    from collections.abc import Mapping

EXTENDED = servers.EXTENDED  # DeviceClasses with an extendedResourceName
_DECIDING = (servers.CLAIMS, servers.ALTERNATIVES, servers.CAPACITY, servers.COUNTERS, servers.TAINTS, EXTENDED)
# By feature gate: the first minor version of Kubernetes in which the gate is on by default.
_ON_SINCE = {gate: min(stage.since for stage in servers.GATES[gate] if stage.on) for gate in _DECIDING}

# The cluster's scheduler, drawbridge's scheduler by its default name, and schedulers that are not known to allocate claims. Each vocabulary
# adds the schedulers of its system. The configuration's `schedulers` adds further ones and replaces these.
SCHEDULERS: Mapping[str, SchedulerSupport] = {
    "default-scheduler": SchedulerSupport(like_cluster=True),
    "drawbridge": SchedulerSupport(like_cluster=True),
    "kai-scheduler": SchedulerSupport(),
    "runai-scheduler": SchedulerSupport(),
    "volcano": SchedulerSupport(),
    "tensor-fusion-scheduler": SchedulerSupport(),
}


class Features(KnownServer, frozen=True, kw_only=True):
    """The server's version and feature gates. The default is the newest known Kubernetes, for commands without a cluster."""

    @classmethod
    def from_server(cls, server: Server) -> Features:
        """Return the features of a server that reported all gates."""
        gates = {gate: server.enabled(gate) for gate in servers.known_gates(server.minor)}
        return cls(minor=server.minor, gates=gates, reported=gates)

    @classmethod
    def combine(cls, minor: int, reported: Mapping[str, bool], declared: DeclaredServer = DeclaredServer()) -> Features:  # noqa: B008  a value
        """Combine the gates that a server reports with those that the configuration declares. A reported gate takes precedence."""
        known = servers.known_of(minor, reported, declared)
        return cls(minor=minor, gates=known.gates, reported=known.reported, declared=declared)

    def as_declared(self, declared: DeclaredServer) -> Features:
        return Features.combine(self.minor, self.reported, declared)

    def enabled(self, gate: str) -> bool:
        return self.gates.get(gate, self.minor >= _ON_SINCE[gate])

    @staticmethod
    def known() -> tuple[str, ...]:
        """Return the feature gates that decide which claims may be made."""
        return tuple(_ON_SINCE)

    def missing(self, needs: tuple[Need, ...], name: str, schedulers: Mapping[str, SchedulerSupport]) -> str:
        """Explain why a pod of this scheduler cannot have claims with these needs; "" if it can."""
        for need in needs:
            if not self.enabled(need.gate):
                return f"the API server (1.{self.minor}, {need.gate} off) would drop {need.title}"
        scheduler = schedulers.get(name)
        if scheduler is None:
            return f"scheduler {name!r} is not declared to support {needs[0].title}; if it does, {_declaration(name, needs)}"
        for need in needs:
            if not scheduler.serves(need):
                declaration = _declaration(name, needs)
                return f"scheduler {name!r} is not known to support {need.title}; if it does, {declaration}"
        return ""


_FIELDS = {CLAIMS: "claims", ALTERNATIVES: "prioritizedList", SHARES: "shares"}


def _declaration(name: str, needs: tuple[Need, ...]) -> str:
    serves = ", ".join(f"{_FIELDS[need]}: true" for need in needs)
    return f"an administrator can declare `schedulers: {{{name}: {{{serves}}}}}` ({CONFIGURATION_PAGE})"
