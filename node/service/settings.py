"""On which node a process runs, and how the audit agent works: each setting once, with its default and its option."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from runtime.flag import OPTIONS, Flag
from runtime.http import Address
from runtime.process import own_node

Marking = Literal["held", "offered", "none"]
TOKEN = "/var/run/secrets/drawbridge/token"  # noqa: S105  where it is mounted
SOCKET = "pod-resources/kubelet.sock"  # in the kubelet's folder


def _folder(path: str) -> str:
    return path.rstrip("/")


class NodePaths(msgspec.Struct, frozen=True):
    """The node, and where the kubelet and the runtime look there."""

    node: Annotated[
        str,
        Flag("The node we run on.  [default: NODE_NAME of the environment]", "NAME", name="node-name", absent=own_node),
    ]
    kubelet: Annotated[str, Flag("The kubelet's --root-dir.", "DIR", name="kubelet-dir", read=_folder)] = (
        "/var/lib/kubelet"
    )
    cdi: Annotated[str, Flag("Where the runtime looks for CDI files.", "DIR", name="cdi-dir", read=_folder)] = (
        "/var/run/cdi"
    )

    def state(self, driver: str) -> str:
        return f"{self.kubelet}/plugins/{driver}"

    @property
    def registry(self) -> str:
        return f"{self.kubelet}/plugins_registry"


class AllocatorAddress(msgspec.Struct, frozen=True):
    """Where an allocator is asked, what it is shown, and by which authorities it is known: by default those that API servers go by."""

    url: Annotated[
        str,
        Flag(
            "Also ask an allocator for its reservations on this node that are not written yet, at its --reservations: https://HOST:PORT.",
            "URL",
            name="allocator",
        ),
    ] = ""
    token_file: Annotated[
        str,
        Flag(
            f"The token for --allocator: of our account, for the audience drawbridge-allocator.  [default: {TOKEN}]",
            "FILE",
            name="allocator-token",
        ),
    ] = ""
    ca_file: Annotated[
        str,
        Flag(
            "The authorities of --allocator's certificate (PEM).  [default: those of the webhook configuration]",
            "FILE",
            name="allocator-ca",
        ),
    ] = ""


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How one agent works. It asks the kubelet every `glance` seconds, and looks at everything every `look`."""

    marking: Annotated[
        Marking,
        Flag(
            "Keep claims from devices that pods have of a device plugin, from all that plugins offer, or from none.",
            name="mark",
        ),
    ] = "held"
    condition: Annotated[
        bool, Flag("Also say on the node whether all fits, by a condition; needs manifests/node-condition.")
    ] = False
    allocator: Annotated[AllocatorAddress, OPTIONS] = AllocatorAddress()
    paths: Annotated[NodePaths, OPTIONS]
    metrics: Annotated[Address | None, Flag("Where to show metrics.", name="metrics-listen")] = Address(
        "127.0.0.1", 9092
    )
    socket: str = ""
    glance: float = 2.0
    look: float = 30.0

    @property
    def kubelet_socket(self) -> str:
        return self.socket or f"{self.paths.kubelet}/{SOCKET}"
