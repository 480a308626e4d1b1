"""Remedies for a feature gate that is off.

The lists of components that read a feature gate follow Kubernetes' own code. The API server and the scheduler read every gate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dra import server

if TYPE_CHECKING:
    from webhook.state import Features

_MANAGER: Final = (server.CLAIMS, server.ALTERNATIVES, server.ADMIN_ACCESS, server.TAINTS)
_KUBELET: Final = (server.CLAIMS, server.EXTENDED, server.NODE_RESOURCES)


def remedy_of(gate: str, features: Features) -> str:
    """Return the remedy for a gate that is off: the version that has it on, or the components that have to enable it."""
    minor = features.minor
    stages = server.GATES[gate]
    first = stages[0].since
    default = min((stage.since for stage in stages if stage.on), default=0)
    known_gates = server.known_gates(minor) if minor >= server.OLDEST else {}
    needed_gates = [need for need in server.NEEDS.get(gate, ()) if not features.likely.enabled(need)]
    flag = ",".join(f"{name}=true" for name in (*needed_gates, gate))
    components = ["kube-apiserver", "kube-scheduler"]
    components += ["kube-controller-manager"] if gate in _MANAGER else []
    components += ["kubelet"] if gate in _KUBELET else []
    start = f"start {', '.join(components)} with `--feature-gates={flag}`"
    if gate not in known_gates:
        return f"upgrade to 1.{default}" if default else f"upgrade to 1.{first}, and {start}"
    return f"upgrade to 1.{default}, or {start}" if default > minor else start
