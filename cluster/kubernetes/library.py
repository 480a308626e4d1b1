"""The parts of the official client that we use. Importing the whole package would also load its synchronous half, a fifth of a
second and 9 MiB at the start of each process, so its packages are imported without their content.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec, module_from_spec


def _bare(package: str) -> None:
    """Import a package without its content, so that its modules can be imported alone; a package already imported is unchanged."""
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
