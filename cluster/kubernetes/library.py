"""What we use of the official client, and no more of it: importing the package as it is loads its synchronous half as well, a
fifth of a second and nine MiB at the start of each process. So the packages above our part stand without what they would load.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec, module_from_spec


def _bare(package: str) -> None:
    """Import a package without its content, so that its parts can be imported alone; a package that is imported already stays whole."""
    spec = None if package in sys.modules else find_spec(package)
    if spec is not None:
        sys.modules[package] = module_from_spec(spec)


_bare("kubernetes")
_bare("kubernetes.aio")

from kubernetes.aio.client import ApiClient, Configuration  # noqa: E402
from kubernetes.aio.config import ConfigException, load_kube_config  # noqa: E402
from kubernetes.aio.config.incluster_config import (  # noqa: E402
    SERVICE_CERT_FILENAME,
    SERVICE_TOKEN_FILENAME,
    InClusterConfigLoader,
)

__all__ = [
    "SERVICE_CERT_FILENAME",
    "SERVICE_TOKEN_FILENAME",
    "ApiClient",
    "ConfigException",
    "Configuration",
    "InClusterConfigLoader",
    "load_kube_config",
]
