"""Targets: the kinds of device that legacy keys can request, with the names that their drivers use.

The data comes from the drivers' releases. Translation takes the DeviceClass of a target, and the names of attributes and capacities, from this
data. What a driver publishes on the cluster (`webhook.state.inventory`) takes precedence over this data. An administrator adds targets of the
same form under `targets` in the configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec

PCIE_ROOT = "resource.kubernetes.io/pcieRoot"
NUMA_NODE = "resource.kubernetes.io/numaNode"
DRANET_NUMA_NODE = "dra.net/numaNode"
NETWORK_RESOURCE = "k8s.cni.cncf.io/resourceName"


class Target(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    gc=False,
    rename="camel",
    forbid_unknown_fields=True,
    omit_defaults=True,
):
    """One kind of device: its driver, the classes its vendor installs, and the names in its slices."""

    name: str  # as rows of tables refer to it
    driver: Annotated[str, msgspec.Meta(min_length=1)]  # `spec.driver` of its slices
    title: str = ""  # for messages
    classes: tuple[str, ...] = ()  # the DeviceClasses of the vendor's chart, the preferred one first
    type: str = ""  # the kind among those that the driver publishes; "" if it publishes one kind
    # Attributes of the driver's domain, with the values that all devices of the target have. They are necessary if the class selects other
    # kinds of device too.
    where: Mapping[str, str] = {}
    true: tuple[str, ...] = ()  # attributes of the driver's domain that must be true
    # CEL selectors of its devices, as in a DeviceClass; attributes that a device may lack are guarded.
    selectors: Annotated[tuple[str, ...], msgspec.Meta(max_length=8)] = ()
    unique: str = ""  # attribute with a different value on each device
    product: str = ""  # attribute with the model
    profile: str = "profile"  # attribute with the profile of a partition
    memory: str = "memory"  # capacity for shares of the memory
    cores: str = "cores"  # capacity for shares of the compute
    # The devices of a container may be spread over several claims.
    separable: bool = True
    # The attributes that the driver publishes, according to its source code. They are used if no slices are known.
    attributes: tuple[str, ...] = ()
    request: str = "gpu"  # prefix of the request names in claims
    # Another target with the same devices. Whole devices are requested from it if this target cannot serve them, or if only the other target
    # publishes the attribute that the devices must share.
    instead: str = ""
    # The target that serves virtual functions if the cluster has no class for this target.
    virtual: str = ""
    # Attribute that is true for a virtual function.
    virtual_flag: str = ""
    # Attributes that are true for a network device with RDMA. Claims require only those that nodes publish.
    rdma_flags: tuple[str, ...] = ()
    # The vendor's name. Legacy systems put it before a product name that lacks it, so annotations that select models may contain it.
    vendor: str = ""
    # Several shares of one container must be on cards of one product: the driver assigns the containers' limits to the cards in no fixed order.
    one_product: bool = False
    # The PCIe root may be published as the empty text, which equals every other empty root.
    rootless: bool = False
    # A device publishes the name of its resource pool, which is the name of the extended resource that requests such a device.
    pooled: bool = False
    # The driver moves devices into the pod's network namespace, so pods with hostNetwork cannot have them.
    moved: bool = False
    # The driver prepares a claim only once, and fails when the kubelet prepares it again after a restart.
    prepares_once: bool = False
