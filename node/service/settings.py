"""The settings of the node processes, each with its default and its command-line option."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from serving.flag import OPTIONS, Flag
from serving.http import Address
from serving.process import own_node

Marking = Literal["held", "offered", "none"]
TOKEN = "/var/run/secrets/drawbridge/token"  # noqa: S105  where it is mounted
SOCKET = "pod-resources/kubelet.sock"  # in the kubelet's folder


def _folder(path: str) -> str:
    return path.rstrip("/")


class NodePaths(msgspec.Struct, frozen=True):
    """The node's name, and the folders of the kubelet and the container runtime."""

    node: Annotated[
        str,
        Flag("The name of this node.  [default: $NODE_NAME]", "NAME", name="node-name", absent=own_node),
    ]
    kubelet: Annotated[str, Flag("The kubelet's --root-dir.", "DIR", name="kubelet-dir", read=_folder)] = (
        "/var/lib/kubelet"
    )
    cdi: Annotated[str, Flag("The container runtime's CDI folder.", "DIR", name="cdi-dir", read=_folder)] = (
        "/var/run/cdi"
    )

    def state(self, driver: str) -> str:
        return f"{self.kubelet}/plugins/{driver}"

    @property
    def registry(self) -> str:
        return f"{self.kubelet}/plugins_registry"

    @property
    def pods(self) -> str:
        return f"{self.kubelet}/pods"


class AllocatorAddress(msgspec.Struct, frozen=True):
    """The allocator's address, the file of the token to send, and the file of the CA that signed the allocator's certificate.

    Without a CA file the agent uses the CA bundle in the webhook configuration.
    """

    url: Annotated[
        str,
        Flag(
            "The address of an allocator's --reservations (https://HOST:PORT), which also has the reservations on this node that are not written yet.",
            "URL",
            name="allocator",
        ),
    ] = ""
    token_file: Annotated[
        str,
        Flag(
            f"The agent's token for --allocator, with the audience drawbridge-allocator.  [default: {TOKEN}]",
            "FILE",
            name="allocator-token",
        ),
    ] = ""
    ca_file: Annotated[
        str,
        Flag(
            "The CA of --allocator's certificate (PEM).  [default: the CA in the webhook configuration]",
            "FILE",
            name="allocator-ca",
        ),
    ] = ""


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of an agent. It calls the kubelet every `kubelet_interval` seconds, and reads all sources every `audit_interval` seconds."""

    marking: Annotated[
        Marking,
        Flag(
            "Keep claims off the devices that pods hold from a device plugin, off all devices that plugins offer, or off none.",
            name="mark",
        ),
    ] = "held"
    condition: Annotated[
        bool, Flag("Also set a node condition that says whether the sources agree; needs manifests/node-condition.")
    ] = False
    allocator: Annotated[AllocatorAddress, OPTIONS] = AllocatorAddress()
    paths: Annotated[NodePaths, OPTIONS]
    metrics: Annotated[Address | None, Flag("Serve metrics here.", name="metrics-listen")] = Address("127.0.0.1", 9092)
    socket: str = ""
    kubelet_interval: float = 2.0
    audit_interval: float = 30.0

    @property
    def kubelet_socket(self) -> str:
        return self.socket or f"{self.paths.kubelet}/{SOCKET}"
