"""The ResourceClaimTemplate that NVIDIA's controller creates for a ComputeDomain.

Pods name the template to use the domain's channel, but manifests contain only the ComputeDomain. This module mirrors
cmd/compute-domain-controller and the templates of kubernetes-sigs/dra-driver-nvidia-gpu 9593204.
"""

from __future__ import annotations

from typing import Any, Final

from dra.objects.claim import ResourceClaimTemplate
from dra.objects.defaults import template
from dra.raw import inside, text
from dra.wire import convert

_API: Final = "resource.nvidia.com/"
_DRIVER: Final = "compute-domain.nvidia.com"
_CLASS: Final = "compute-domain-default-channel.nvidia.com"
# A placeholder: the API server sets the uid when the domain is created.
_NO_UID: Final = "00000000-0000-0000-0000-000000000000"


def is_compute_domain(obj: dict[str, Any]) -> bool:
    return obj.get("kind") == "ComputeDomain" and text(obj.get("apiVersion")).startswith(_API)


def channel_template(obj: dict[str, Any]) -> ResourceClaimTemplate | None:
    """Return the template of an untyped object; None if the object is not a ComputeDomain that names a template."""
    channel = inside(obj, "spec", "channel")
    name = text(inside(channel, "resourceClaimTemplate").get("name"))
    if not is_compute_domain(obj) or not name:
        return None
    metadata = inside(obj, "metadata")
    parameters = {
        "apiVersion": obj["apiVersion"],
        "kind": "ComputeDomainChannelConfig",
        "domainID": text(metadata.get("uid")) or _NO_UID,
        "allocationMode": text(channel.get("allocationMode")) or "Single",
    }
    devices = {
        "requests": [{"name": "channel", "exactly": {"deviceClassName": _CLASS}}],
        "config": [{"requests": ["channel"], "opaque": {"driver": _DRIVER, "parameters": parameters}}],
    }
    object_metadata = {"namespace": text(metadata.get("namespace")) or "default", "name": name}
    return template(
        convert({"metadata": object_metadata, "spec": {"spec": {"devices": devices}}}, ResourceClaimTemplate)
    )
