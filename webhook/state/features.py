"""What the API server and the pod's scheduler understand, as a value that the rim hands in.

A field that the server does not know is dropped without a word, and a scheduler built on older libraries ignores shares
or fails on them (vocabularies.md 0.2 and 2.0.6). A claim that would suffer that is never made. Stages follow
kubernetes:pkg/features/kube_features.go; nothing here asks a server.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

EXTENDED = "DRAExtendedResource"  # classes that serve a legacy name by themselves

# Gate: the first minor version of Kubernetes 1.x that has it on by default.
_ON_SINCE = {
    "DynamicResourceAllocation": 34,
    "DRAPrioritizedList": 34,
    "DRAConsumableCapacity": 36,
    "DRAPartitionableDevices": 36,
    "DRADeviceTaints": 36,
    EXTENDED: 36,
}


class Need(msgspec.Struct, frozen=True, gc=False):
    """Something a claim relies on: the gate that brings it, and what it is called in a message."""

    gate: str
    title: str


CLAIMS = Need("DynamicResourceAllocation", "resource claims")
ALTERNATIVES = Need("DRAPrioritizedList", "firstAvailable")
SHARES = Need("DRAConsumableCapacity", "shares of devices (capacity requests, distinctAttribute)")


class Scheduler(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What a scheduler makes of claims. `like_cluster`: it is built from the cluster's own kube-scheduler."""

    like_cluster: bool = False
    claims: bool = False
    prioritized_list: bool = False
    shares: bool = False

    def understands(self, need: Need) -> bool:
        """Say whether it can serve a claim with this need, the server permitting."""
        own = {CLAIMS: self.claims, ALTERNATIVES: self.prioritized_list, SHARES: self.shares}
        return self.like_cluster or own[need]


# Snapshot of 0.2 in vocabularies.md; `schedulers:` in the configuration adds and overrides.
SCHEDULERS = {
    "default-scheduler": Scheduler(like_cluster=True),
    "hami-scheduler": Scheduler(like_cluster=True),
    "koord-scheduler": Scheduler(claims=True, prioritized_list=True),
    "kai-scheduler": Scheduler(),
    "volcano": Scheduler(),
    "tensor-fusion-scheduler": Scheduler(),
}


class Features(msgspec.Struct, frozen=True, kw_only=True):
    """The server's version and gates. The default is what an offline run assumes: the newest Kubernetes we know."""

    minor: int = 37
    gates: Mapping[str, bool] = {}

    def on(self, gate: str) -> bool:
        """Say whether the server has a gate on."""
        return self.gates.get(gate, self.minor >= _ON_SINCE[gate])

    def missing(self, needs: tuple[Need, ...], name: str, schedulers: Mapping[str, Scheduler]) -> str:
        """Say what stands in the way of claims with these needs for a pod of this scheduler; "" if nothing does."""
        for need in needs:
            if not self.on(need.gate):
                return f"the API server (1.{self.minor}, {need.gate} off) would drop {need.title}"
        scheduler = schedulers.get(name) or SCHEDULERS.get(name)
        if scheduler is None:
            return f"whether scheduler {name!r} understands {needs[0].title} is not declared (`schedulers`)"
        for need in needs:
            if not scheduler.understands(need):
                return f"scheduler {name!r} does not understand {need.title}"
        return ""
