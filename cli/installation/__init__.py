"""What is installed: the gate, the bridge, what stands besides, for a namespace and an image, and as a chart."""

from __future__ import annotations

from cli.installation.besides import MANAGED, adapting, driving, guarding, on_looking, on_nodes, protecting
from cli.installation.bridge import ELSEWHERES, EXTENDER, at_the_door, beside, fences, promising
from cli.installation.charting import make_chart
from cli.installation.gate import quota_text, rest, webhooks_text
from cli.installation.naming import CertificateType, ImageType, NamespaceType, UrlType
from cli.installation.placing import BASE, BRIDGE, CLUSTER_WIDE, GENERATED, GUARDS, NAMESPACE, QUOTA

__all__ = [
    "BASE",
    "BRIDGE",
    "CLUSTER_WIDE",
    "ELSEWHERES",
    "EXTENDER",
    "GENERATED",
    "GUARDS",
    "MANAGED",
    "NAMESPACE",
    "QUOTA",
    "CertificateType",
    "ImageType",
    "NamespaceType",
    "UrlType",
    "adapting",
    "at_the_door",
    "beside",
    "driving",
    "fences",
    "guarding",
    "make_chart",
    "on_looking",
    "on_nodes",
    "promising",
    "protecting",
    "quota_text",
    "rest",
    "webhooks_text",
]
