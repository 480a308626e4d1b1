"""The registration of a device plugin, and the reasons to refuse it.

The kubelet's rules (pkg/kubelet/cm/devicemanager/plugin/v1beta1), and some of our own: every process that can write into the folder of sockets can register,
so a name must not lead out of the folder, and a resource must be one that a DeviceClass can stand for.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from node.messages import RegisterRequest

VERSION = "v1beta1"
OWN_SOCKET = "kubelet.sock"
# As long as an attribute of a device may be: by it the class of a resource finds its devices.
_LONGEST = 64
_LONGEST_SOCKET = 100  # of the 107 bytes of a socket's path some are the folder's
_RESOURCE = re.compile(
    r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+/[A-Za-z0-9]([-._A-Za-z0-9]*[A-Za-z0-9])?"
).fullmatch
_SOCKET = re.compile(r"[A-Za-z0-9_][-._A-Za-z0-9]*").fullmatch


def refusal(request: RegisterRequest) -> str:
    """Say why a plugin is not taken; "" if it is."""
    if request.version != VERSION:
        return f"the version of the API is {request.version!r}, and only {VERSION} is spoken"
    name = request.resource
    if not _RESOURCE(name) or len(name) > _LONGEST:
        return (
            f"{name[:100]!r} is not the name of a resource: DOMAIN/NAME is expected, in {_LONGEST} characters at most"
        )
    domain = name.partition("/")[0]
    if domain == "kubernetes.io" or domain.endswith(".kubernetes.io"):
        return f"{name} is in a domain of Kubernetes' own"
    if not _SOCKET(request.endpoint) or len(request.endpoint) > _LONGEST_SOCKET:
        return f"{request.endpoint[:100]!r} is not the name of a socket in the registration folder"
    if request.endpoint == OWN_SOCKET:
        return f"{OWN_SOCKET} is where we listen ourselves"
    return ""
