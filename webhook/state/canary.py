"""The canary: chooses, by a stable hash, the workloads that a percentage covers.

A pod in a mutating review has no UID and no generated name yet. The hash is over the namespace and the kind and name of
the controller without its pod-template-hash, so all pods and revisions of a Deployment get the same result. A higher
percentage only adds workloads.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dra.wire import Json

BUCKETS = 10_000  # hundredths of a percent


class PodOwner(NamedTuple):
    """The controller of a pod, or the pod itself."""

    namespace: str
    kind: str
    name: str

    def within(self, percent: float) -> bool:
        """Return whether this percentage covers the workload."""
        digest = blake2b("\0".join(self).encode(errors="surrogatepass"), digest_size=8).digest()
        return int.from_bytes(digest, "big") % BUCKETS < percent * (BUCKETS / 100)


def workload(namespace: str, metadata: Mapping[str, Json]) -> PodOwner:
    """Find the controller of a pod; without one, the pod is its own workload."""
    owners = metadata.get("ownerReferences")
    labels = metadata.get("labels")
    for owner in owners if isinstance(owners, list) else ():
        if not isinstance(owner, dict) or not owner.get("controller"):
            continue
        name = str(owner.get("name", ""))
        revision = labels.get("pod-template-hash") if isinstance(labels, dict) else None
        if revision:
            name = name.removesuffix(f"-{revision}")
        return PodOwner(namespace, str(owner.get("kind", "")), name)
    own = metadata.get("name") or metadata.get("generateName")
    return PodOwner(namespace, "Pod", str(own or ""))
