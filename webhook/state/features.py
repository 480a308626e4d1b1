"""What the API server and the pod's scheduler understand, as a value that the rim hands in.

A field that the server does not know is dropped without a word, and a scheduler built on older libraries ignores shares
or fails on them. A claim that would suffer that is never made. Stages follow
kubernetes:pkg/features/kube_features.go; nothing here asks a server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dra import server as servers
from dra.server import Declared, KnownServer, Server
from webhook.dialects import ALTERNATIVES, CLAIMS, SHARES, Need, Scheduler
from webhook.names import TABLES

if TYPE_CHECKING:
    from collections.abc import Mapping

EXTENDED = servers.EXTENDED  # classes that serve a legacy name by themselves
# Gate: the first minor version of Kubernetes 1.x that has it on by default.
_DECIDING = (servers.CLAIMS, servers.ALTERNATIVES, servers.CAPACITY, servers.COUNTERS, servers.TAINTS, EXTENDED)
_ON_SINCE = {gate: min(stage.since for stage in servers.GATES[gate] if stage.on) for gate in _DECIDING}


# The cluster's own, ours by the name that it is shipped with, and those of systems whose words are not read yet; a vocabulary brings what
# its own understand, and `schedulers:` in the configuration adds and overrides.
SCHEDULERS: Mapping[str, Scheduler] = {
    "default-scheduler": Scheduler(like_cluster=True),
    "drawbridge": Scheduler(like_cluster=True),
    "kai-scheduler": Scheduler(),
    "runai-scheduler": Scheduler(),
    "volcano": Scheduler(),
    "tensor-fusion-scheduler": Scheduler(),
}


class Features(KnownServer, frozen=True, kw_only=True):
    """The server's version and gates. The default is what an offline run assumes: the newest Kubernetes we know."""

    @classmethod
    def of(cls, server: Server) -> Features:
        """Take all gates from a server that is known in every respect."""
        gates = {gate: server.on(gate) for gate in servers.known_gates(server.minor)}
        return cls(minor=server.minor, gates=gates, found=gates)

    @classmethod
    def seen(cls, minor: int, found: Mapping[str, bool], declared: Declared = Declared()) -> Features:  # noqa: B008  a value
        """Take what a server tells of itself, and for the rest what was declared."""
        known = servers.known_of(minor, found, declared)
        return cls(minor=minor, gates=known.gates, found=known.found, declared=declared)

    def as_declared(self, declared: Declared) -> Features:
        """Say the same of the same server, where other things are declared."""
        return Features.seen(self.minor, self.found, declared)

    def on(self, gate: str) -> bool:
        """Say whether the server has a gate on."""
        return self.gates.get(gate, self.minor >= _ON_SINCE[gate])

    @staticmethod
    def known() -> tuple[str, ...]:
        """The gates that decide about what we write."""
        return tuple(_ON_SINCE)

    def missing(self, needs: tuple[Need, ...], name: str, schedulers: Mapping[str, Scheduler]) -> str:
        """Say what stands in the way of claims with these needs for a pod of this scheduler; "" if nothing does."""
        for need in needs:
            if not self.on(need.gate):
                return f"the API server (1.{self.minor}, {need.gate} off) would drop {need.title}"
        scheduler = schedulers.get(name)
        if scheduler is None:
            return f"whether scheduler {name!r} serves {needs[0].title} is not declared; if it does, {_declared(name, needs)}"
        for need in needs:
            if not scheduler.serves(need):
                return f"scheduler {name!r} is not known to serve {need.title}; if it does, {_declared(name, needs)}"
        return ""


_WORDS = {CLAIMS: "claims", ALTERNATIVES: "prioritizedList", SHARES: "shares"}


def _declared(name: str, needs: tuple[Need, ...]) -> str:
    """Write the table that declares that a scheduler serves these."""
    serves = ", ".join(f"{_WORDS[need]}: true" for need in needs)
    return f"an administrator can declare `schedulers: {{{name}: {{{serves}}}}}` ({TABLES})"
