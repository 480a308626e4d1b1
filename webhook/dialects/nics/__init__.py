"""Network devices by resource name: shared RDMA devices, SR-IOV pools, EFA.

- A handle of the shared RDMA plugin gives a container all HCAs of the pool, shared with other pods. No released driver publishes devices that
  pods can share. So the key stays, or becomes one whole device of the target that `nics.targets` names.
- A pool of virtual functions becomes devices that publish the pool's name (`nics.pools`), or devices of a target with the same selectors as
  the plugin's pool (`nics.targets`). The SR-IOV driver publishes the name in Multus mode. Multus then attaches the networks of the pod's
  annotation, which stays.

Keys follow Mellanox/k8s-rdma-shared-dev-plugin, k8snetworkplumbingwg/sriov-network-device-plugin and Mellanox/network-operator; the targets
follow k8snetworkplumbingwg/dra-driver-sriov and kubernetes-sigs/dranet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dra.pointer import escape
from webhook.dialects.table import Dialect, Outcome, Position, Role, Unit, pattern, row, untranslated
from webhook.dialects.targets import DRANET_NUMA_NODE, NUMA_NODE, PCIE_ROOT, Target
from webhook.dialects.vocabulary import Demand, DialectOptions, Vocabulary, count_of, leave, mistake, read_each
from webhook.names import CONFIGURATION_PAGE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dra.finding import Finding
    from dra.reason import Reason
    from webhook.dialects.vocabulary import Amount, DialectRequest, KeyAnswer

_UNDECLARED = "it is not declared whether the driver publishes this pool (Multus mode)"
_SHARED = "devices that the plugin shares among pods cannot be claimed, so the plugin keeps serving them"
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

# openshift/dpu-operator: internal/daemon/device-plugin.
_DPU = ("openshift.io/dpu", "network functions of a DPU (DPU operator)")

DIALECT = Dialect(
    name="nics",
    title="RDMA, SR-IOV and EFA device plugins",
    target="vf",
    independent=True,
    keys=(
        row(
            "rdma/<pool>",
            "all RDMA devices of a pool, shared with other pods; the number has no effect (shared RDMA plugin)",
            Role.RDMA,
            outcome=Outcome.APPROXIMATED,
            target="nic",
            because=f"one whole device of the target under `nics.targets`; otherwise the key stays: {_SHARED}",
        ),
        row(
            "vpc.amazonaws.com/efa",
            "Elastic Fabric Adapters",
            Role.RDMA,
            outcome=Outcome.APPROXIMATED,
            target="efa",
            because="the driver moves the interface into the pod's network namespace",
        ),
        *(
            row(
                name,
                text,
                Role.NIC,
                because=f"devices that publish the pool's name (`nics.pools`), or devices of the target under `nics.targets`; otherwise the key stays: {_UNDECLARED}",
            )
            for name, text in _POOLS
        ),
        untranslated(*_DPU, "no driver publishes these devices: the DPU operator's device plugin keeps serving them"),
        *(untranslated(name, text, "it requests an address of the VPC, not a device") for name, text in _ADDRESSES),
        untranslated(
            "k8s.v1.cni.cncf.io/networks",
            "networks that Multus attaches",
            "stays: Multus finds the devices of claims by the name of their pool",
            Position.ANNOTATION,
            role=Role.HINT,
            unit=Unit.TEXT,
        ),
    ),
)


class NicOptions(DialectOptions, frozen=True, kw_only=True):
    """How network drivers are set up."""

    # Pools whose name the SR-IOV driver, in Multus mode, publishes as `k8s.cni.cncf.io/resourceName` of the pool's devices.
    pools: tuple[str, ...] = ()
    # Pool: the target with its devices (docs/configuration.md#pools-of-network-devices).
    targets: dict[str, str] = {}

    def mistakes(self) -> Iterable[Finding]:
        names_by_path = {f"/pools/{i}": name for i, name in enumerate(self.pools)}
        names_by_path |= {f"/targets/{escape(name)}": name for name in self.targets}
        for path, name in names_by_path.items():
            if "/" not in name:
                yield mistake(path, f"{name!r} is not a resource name", f"write openshift.io/{name}")
            elif path.startswith("/targets") and not any(pattern(key.name)(name) for key in DIALECT.keys):
                yield mistake(path, f"{name!r} is not a pool of network devices", "declare the key under `dialects`")
            elif path.startswith("/targets") and name in self.pools:
                yield mistake(path, f"{name!r} is also named under `pools`", "leave one of them out")

    def named_targets(self) -> Mapping[str, str]:
        return {f"/targets/{escape(name)}": target for name, target in self.targets.items()}


def ask(amount: Amount, request: DialectRequest[NicOptions]) -> KeyAnswer | Reason:
    key, count = amount.key, amount.value
    target = request.options.targets.get(key, "")
    if amount.row.target == "efa":
        text = f"{count_of(count, 'adapter')}, moved into the pod's network namespace"
        return Demand(target="efa", count=count), Outcome.APPROXIMATED, text
    if target and amount.row.role is Role.RDMA:
        text = "a claim in place of the plugin's handles"
        return Demand(target=target, rdma=True, shared_access=True), Outcome.APPROXIMATED, text
    if target:
        text = f"{count_of(count, 'device')} of target {target}"
        if Role.HINT not in request.hints:
            return Demand(target=target, count=count), Outcome.TRANSLATED, text
        text += f", which Multus attaches only where the driver publishes the name {key}"
        return Demand(target=target, count=count), Outcome.APPROXIMATED, text
    if key in request.options.pools:
        text = f"{count_of(count, 'device')} published as {key}"
        return Demand(target="vf", count=count, resource=key), Outcome.TRANSLATED, text
    return leave(key, _why_left(amount, request.pools.get(key, "")))


def _why_left(amount: Amount, devices: str) -> str:
    if amount.row.role is Role.RDMA and devices:
        return f"all pods share {devices}, while a claim gives a device to one pod: an administrator can declare what `drawbridge survey` prints"
    if amount.row.role is Role.RDMA:
        return _SHARED
    declaration = f"`nics: {{pools: [{amount.key}]}}` ({CONFIGURATION_PAGE})"
    if devices:
        return f"its plugin selects {devices}: an administrator can declare the target that `drawbridge survey` prints, or {declaration} if the driver publishes the name of the pool"
    return f"{_UNDECLARED}: if it does, an administrator can declare {declaration}"


VOCABULARY = Vocabulary(
    table=DIALECT,
    targets=(
        Target(
            name="nic",
            title="network device",
            driver="dra.net",
            classes=("dranet", "dranet.net", "rdma-net", "multinic"),
            unique="dra.net/pciAddress",
            product="dra.net/pciDevice",
            attributes=(PCIE_ROOT, NUMA_NODE, DRANET_NUMA_NODE),
            request="nic",
            virtual="vf",
            virtual_flag="isSriovVf",
            rdma_flags=("rdma", "rdmaCapable"),
            moved=True,
        ),
        Target(
            name="efa",
            title="Elastic Fabric Adapter",
            driver="dra.net",
            classes=("efa.networking.k8s.aws",),
            type="efa",
            unique="dra.net/pciAddress",
            attributes=(PCIE_ROOT, NUMA_NODE, DRANET_NUMA_NODE),
            request="efa",
            moved=True,
        ),
        Target(
            name="vf",
            title="virtual function",
            driver="sriovnetwork.k8snetworkplumbingwg.io",
            classes=("sriovnetwork.k8snetworkplumbingwg.io",),
            unique="sriovnetwork.k8snetworkplumbingwg.io/pciAddress",
            product="sriovnetwork.k8snetworkplumbingwg.io/deviceID",
            attributes=(PCIE_ROOT, DRANET_NUMA_NODE),
            request="nic",
            rdma_flags=("rdma", "rdmaCapable"),
            rootless=True,
            pooled=True,
        ),
    ),
    read=lambda request: read_each(request, ask),
    options=NicOptions,
)
