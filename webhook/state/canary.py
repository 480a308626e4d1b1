"""The percentage canary: which workloads a partial roll-out covers, always the same ones.

In a mutating review neither uid nor generated name exist, so the hash is over what does and what every pod of a
workload shares: namespace, controller kind and controller name without the pod-template-hash, so that a Deployment keeps
its answer across revisions. Growing the percentage only ever adds workloads.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dra.wire import Json

BUCKETS = 10_000  # hundredths of a percent


class Workload(NamedTuple):
    """Who a pod belongs to, as far as admission can know."""

    namespace: str
    kind: str
    name: str

    def within(self, percent: float) -> bool:
        """Say whether a roll-out to this many percent covers it."""
        digest = blake2b("\0".join(self).encode(errors="surrogatepass"), digest_size=8).digest()
        return int.from_bytes(digest, "big") % BUCKETS < percent * (BUCKETS / 100)


def workload(namespace: str, metadata: Mapping[str, Json]) -> Workload:
    """Name the controller of a pod, or the pod itself where it has none."""
    owners = metadata.get("ownerReferences")
    labels = metadata.get("labels")
    for owner in owners if isinstance(owners, list) else ():
        if not isinstance(owner, dict) or not owner.get("controller"):
            continue
        name = str(owner.get("name", ""))
        kind = str(owner.get("kind", ""))
        revision = None
        if isinstance(labels, dict):
            revision = labels.get("pod-template-hash")
        if revision:
            name = name.removesuffix(f"-{revision}")
        return Workload(namespace, kind, name)
    own = metadata.get("name") or metadata.get("generateName")
    return Workload(namespace, "Pod", str(own or ""))
