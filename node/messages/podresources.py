"""What the kubelet tells of the devices that containers have (k8s.io/kubelet/pkg/apis/podresources/v1), as far as it is about devices.

The names of fields are ours; on the wire only their numbers count, and those are their places.
"""

from __future__ import annotations

from node.messages.encoding import Message, Passed


class PluginHolding(Message, frozen=True, kw_only=True):
    """Devices of one resource of a device plugin."""

    resource: str = ""
    ids: tuple[str, ...] = ()


class ClaimDevice(Message, frozen=True, kw_only=True):
    """A device of a claim."""

    cdi: Passed = Passed()
    driver: str = ""
    pool: str = ""
    device: str = ""
    share: str | None = None


class ClaimHolding(Message, frozen=True, kw_only=True):
    """The devices that a container has through one claim."""

    class_name: Passed = Passed()  # until Kubernetes 1.31
    claim: str = ""
    namespace: str = ""
    devices: tuple[ClaimDevice, ...] = ()


class ContainerHolding(Message, frozen=True, kw_only=True):
    """What one container has."""

    name: str = ""
    devices: tuple[PluginHolding, ...] = ()
    cpus: Passed = Passed()
    memory: Passed = Passed()
    claims: tuple[ClaimHolding, ...] = ()


class PodHolding(Message, frozen=True, kw_only=True):
    """What the containers of one pod have."""

    name: str = ""
    namespace: str = ""
    containers: tuple[ContainerHolding, ...] = ()


class PodHoldings(Message, frozen=True, kw_only=True):
    """All pods of a node."""

    pods: tuple[PodHolding, ...] = ()


class PluginsOffer(Message, frozen=True, kw_only=True):
    """All devices that device plugins have, whoever has them."""

    devices: tuple[PluginHolding, ...] = ()
