"""Network devices by resource name: shared RDMA devices, SR-IOV pools, EFA.

A handle of the shared RDMA plugin gives every HCA of its pool, shared, which no claim can say. A pool of virtual functions can be
asked for where the administrator has the driver publish its name (MULTUS mode: Multus attaches what the pod's `networks` annotation
names, which stays). Keys follow Mellanox/k8s-rdma-shared-dev-plugin, k8snetworkplumbingwg/sriov-network-device-plugin and
Mellanox/network-operator; the targets k8snetworkplumbingwg/dra-driver-sriov and kubernetes-sigs/dranet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.dialects.table import Action, Dialect, Position, Role, left, row
from webhook.dialects.vocabulary import Answer, Demand, Keyed, Left, Mistake, Note, Options, Vocabulary, several
from webhook.names import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from webhook.dialects.vocabulary import Words

_UNDECLARED = "whether the driver publishes this pool (Multus mode) is not declared"
_POOLS = (
    ("openshift.io/<pool>", "network devices of a pool (SR-IOV network operator)"),
    ("intel.com/<pool>", "network devices of a pool (SR-IOV device plugin)"),
    ("mellanox.com/<pool>", "network devices of a pool (NVIDIA network operator)"),
    ("k8s.cni.cncf.io/<pool>", "network devices of a pool"),
    ("nvidia.com/hostdev", "whole network devices passed through (NVIDIA network operator)"),
    ("nvidia.com/sriovlegacy", "virtual functions (NVIDIA network operator)"),
    ("nvidia.com/sriov_<pool>", "virtual functions (NVIDIA network operator)"),
    ("nvidia.com/mlnxnics", "network devices of a pool (NVIDIA network operator)"),
)

_ADDRESSES = (
    ("vpc.amazonaws.com/pod-eni", "a branch network interface (VPC resource controller of EKS)"),
    ("vpc.amazonaws.com/PrivateIPv4Address", "an address on a Windows node (VPC resource controller of EKS)"),
)

DIALECT = Dialect(
    name="nics",
    title="RDMA, SR-IOV and EFA device plugins",
    target="vf",
    apart=True,
    keys=(
        left(
            "rdma/<pool>",
            "every RDMA device of a pool, shared, whatever the number (shared RDMA plugin)",
            "a claim gives a device to one pod alone, where this plugin gives all of them to every pod",
        ),
        row(
            "vpc.amazonaws.com/efa",
            "Elastic Fabric Adapters",
            Role.RDMA,
            action=Action.APPROXIMATED,
            target="efa",
            because="the driver moves the interface into the pod's network namespace",
        ),
        *(
            row(name, text, Role.NIC, because=f"by the name it is published under; else left: {_UNDECLARED}")
            for name, text in _POOLS
        ),
        *(left(name, text, "it asks for an address of the VPC, and for no device") for name, text in _ADDRESSES),
        left(
            "k8s.v1.cni.cncf.io/networks",
            "networks that Multus attaches",
            "stays: Multus finds the devices of claims by the name of their pool",
            Position.ANNOTATION,
        ),
    ),
)


class NicOptions(Options, frozen=True, kw_only=True):
    """How network drivers are set up."""

    # Pools whose devices the SR-IOV driver, in Multus mode, publishes with `k8s.cni.cncf.io/resourceName` equal to this name.
    pools: tuple[str, ...] = ()

    def mistakes(self) -> Iterable[Mistake]:
        """A pool is a full resource name."""
        for i, name in enumerate(self.pools):
            if "/" not in name:
                yield Mistake(
                    f"/pools/{i}", f"{name!r} is not a resource name", f"write its prefix too: openshift.io/{name}"
                )


def read(words: Words[NicOptions]) -> Answer:
    """Read one container: adapters, or devices of a pool that is declared to be published, by its name."""
    demands: list[Keyed] = []
    notes: list[Note] = []
    for amount in words.said[0].amounts:
        key, count = amount.key, amount.value
        if not count:
            continue
        if amount.row.action is Action.LEFT:
            return Answer(left=Left(key, amount.row.because))
        if amount.row.target == "efa":
            demand, action = Demand(target="efa", count=count), Action.APPROXIMATED
            text = f"{several(count, 'adapter')}, moved into the pod's network namespace"
        elif key in words.options.pools:
            demand, action = Demand(target="vf", count=count, resource=key), Action.TRANSLATED
            text = f"{several(count, 'device')} published as {key}"
        else:
            reason = f"{_UNDECLARED}: if so, an administrator can declare `nics: {{pools: [{key}]}}` ({TABLES})"
            return Answer(left=Left(key, reason))
        demands.append(Keyed(key, demand))
        notes.append(Note(key, action, text))
    return Answer(demands=tuple(demands), notes=tuple(notes))


VOCABULARY = Vocabulary(table=DIALECT, read=read, options=NicOptions)
