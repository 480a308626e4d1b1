"""What `drawbridge manifests` installs: objects for a namespace and an image, and a chart of them."""

from __future__ import annotations

from cli.installation.chart import make_chart
from cli.installation.naming import CertificateType, ImageType, NamespaceType, UrlType
from cli.installation.objects import (
    BASE,
    BRIDGE,
    CLUSTER_WIDE,
    EXTENDER,
    GUARDS,
    MANAGED,
    NAMESPACE,
    OWN_SECRET,
    base,
    bridge,
    configuration_text,
    guards,
    promises,
    quotas,
    render,
)

__all__ = [
    "BASE",
    "BRIDGE",
    "CLUSTER_WIDE",
    "EXTENDER",
    "GUARDS",
    "MANAGED",
    "NAMESPACE",
    "OWN_SECRET",
    "CertificateType",
    "ImageType",
    "NamespaceType",
    "UrlType",
    "base",
    "bridge",
    "configuration_text",
    "guards",
    "make_chart",
    "promises",
    "quotas",
    "render",
]
