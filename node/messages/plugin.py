"""The messages of device plugins (k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1), with the kubelet's side of them ours to speak.

The names of fields are ours; on the wire only their numbers count, and those are their places.
"""

from __future__ import annotations

from node.messages.encoding import Message


class PluginOptions(Message, frozen=True, kw_only=True):
    """What a plugin wants to be asked besides."""

    before_start: bool = False
    prefers: bool = False


class RegisterRequest(Message, frozen=True, kw_only=True):
    """A plugin says who it is; `endpoint` is the name of its socket, beside ours."""

    version: str = ""
    endpoint: str = ""
    resource: str = ""
    options: PluginOptions = PluginOptions()


class NumaId(Message, frozen=True, kw_only=True):
    """A NUMA node, by its number."""

    number: int = 0


class NumaNodes(Message, frozen=True, kw_only=True):
    """The NUMA nodes that a device is near to."""

    nodes: tuple[NumaId, ...] = ()


class PluginDevice(Message, frozen=True, kw_only=True):
    """A device that a plugin hands out."""

    id: str = ""
    health: str = ""
    topology: NumaNodes = NumaNodes()


class PluginDevices(Message, frozen=True, kw_only=True):
    """All devices of a plugin, each time one of them changes."""

    devices: tuple[PluginDevice, ...] = ()


class OneChoice(Message, frozen=True, kw_only=True):
    """Which of its devices a plugin would rather give to a container."""

    available: tuple[str, ...] = ()
    included: tuple[str, ...] = ()
    size: int = 0


class PreferenceRequest(Message, frozen=True, kw_only=True):
    """A choice for each container."""

    containers: tuple[OneChoice, ...] = ()


class DeviceIds(Message, frozen=True, kw_only=True):
    """Devices by their ids."""

    ids: tuple[str, ...] = ()


class PreferenceResponse(Message, frozen=True, kw_only=True):
    """What was chosen for each container."""

    containers: tuple[DeviceIds, ...] = ()


class AllocateRequest(Message, frozen=True, kw_only=True):
    """The devices that each container gets."""

    containers: tuple[DeviceIds, ...] = ()


class PluginMount(Message, frozen=True, kw_only=True):
    """A file or folder of the host in a container."""

    container_path: str = ""
    host_path: str = ""
    read_only: bool = False


class PluginNode(Message, frozen=True, kw_only=True):
    """A file of /dev in a container."""

    container_path: str = ""
    host_path: str = ""
    permissions: str = ""


class CdiName(Message, frozen=True, kw_only=True):
    """A device that a CDI file of the plugin's own describes."""

    name: str = ""


class Edits(Message, frozen=True, kw_only=True):
    """What makes a container see its devices."""

    variables: dict[str, str] = {}
    mounts: tuple[PluginMount, ...] = ()
    nodes: tuple[PluginNode, ...] = ()
    annotations: dict[str, str] = {}
    cdi: tuple[CdiName, ...] = ()


class AllocateResponse(Message, frozen=True, kw_only=True):
    """What makes each container see its devices."""

    containers: tuple[Edits, ...] = ()
