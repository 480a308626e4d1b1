"""Declarations for pools of network devices, ready to paste: targets with the plugins' selectors, or objects of the SR-IOV driver.

A target, a kind of device in the configuration, selects devices by the attributes that their driver publishes: kubernetes-sigs/dranet at
f258477 (pkg/apis, pkg/inventory) for pools of the shared RDMA plugin, k8snetworkplumbingwg/dra-driver-sriov at cd9404f (pkg/consts,
pkg/devicestate) for all others. YAML comments name the selectors for which the driver publishes no attribute. With the objects, the SR-IOV
driver publishes the name of a pool, by which Multus finds devices.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from analysis.printable import printable
from cluster.manifests import dump
from webhook.dialects import NETWORK_RESOURCE, TARGETS
from webhook.names import API_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from webhook.dialects import Target
    from webhook.state import Configuration, NetworkPool

# The namespace of the SR-IOV driver's chart: the driver reads only objects of its own namespace.
_DRIVERS_NAMESPACE = "dra-driver-sriov"
_LABEL = "drawbridge.dev/pool"
_MAX_TARGETS = 32  # half of the limit of a configuration
_MAX_TERMS = 8
_LONGEST = 9_000  # characters of a selector
# Vendor ids in hexadecimal, and the names that dranet publishes, from the public list of PCI ids.
_VENDORS = {"15b3": "Mellanox Technologies", "8086": "Intel Corporation", "14e4": "Broadcom Inc. and subsidiaries"}
_LINKS = {"ether": "ethernet", "infiniband": "infiniband"}  # the kernel's name, and the SR-IOV driver's
# For each selector of a plugin's configuration: the attribute of the SR-IOV driver or of dranet, or the field of the driver's filters.
_SRIOV = {"vendors": "vendor", "devices": "deviceID", "pciAddresses": "pciAddress", "linkTypes": "linkType"}
_FUNCTIONS = {"pfNames": "PFName", "rootDevices": "pfPciAddress"}  # with ranges of virtual functions: eth0#0-3
_DRANET = {"vendors": "pciVendor", "ifNames": "ifName", "linkTypes": "encapsulation"}
_FILTERS = {"vendors": "vendors", "devices": "devices", "pciAddresses": "pciAddresses", "linkTypes": "linkType"}
_FILTERS |= {"pfNames": "pfNames", "rootDevices": "pfPciAddresses"}
_SRIOV_ADVICE = (
    "Multus finds a device by the pool's name: pods with Multus networks need the DeviceAttributes that make the driver publish the name.",
    "The SR-IOV driver publishes the virtual functions that a SriovResourcePolicy selects, and no whole devices.",
    "In STANDALONE mode the SR-IOV driver needs a VfConfig for each target under `parameters`.",
)
_RANGE = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?").fullmatch


class PoolDeclarations(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Requested pools that are not translated, and the declarations for them, each as YAML ("" if there is none)."""

    # By resource name: what its plugin's configuration selects, and where the configuration is.
    pools: dict[str, str] = {}
    # A DrawbridgeConfiguration with a target for each pool.
    configuration: str = ""
    # Objects of the SR-IOV driver that publish the names of pools, and the configuration that relies on them.
    driver_objects: str = ""
    driver_configuration: str = ""


def declare_pools(pools: Sequence[NetworkPool], configuration: Configuration) -> PoolDeclarations:
    """Return the declarations for some pools."""
    if not pools:
        return PoolDeclarations()
    targets: dict[str, Target] = {}
    comments = [] if all(pool.is_shared for pool in pools) else list(_SRIOV_ADVICE)
    taken = {*TARGETS, *(target.name for target in configuration.file.targets)}
    for pool in pools:
        target, missing = _target(pool, configuration)
        if target is None or len(targets) == _MAX_TARGETS:
            comments.append(f"{pool.name} has no target: {missing or 'too many pools'}")
            continue
        name = pool.name.partition("/")[2]
        name = pool.name if name in taken else name
        taken.add(name)
        targets[pool.name] = replace(target, name=name, title=f"device of {pool.name}")
        if missing:
            comments.append(f"{pool.name}: the plugin also selects by what the driver does not publish: {missing}")
    filters = {pool.name: _filters(pool) for pool in pools if not pool.is_shared}
    filters_by_pool = {name: devices for name, (devices, _) in filters.items() if devices}
    advice = [
        f"Create these objects in the namespace of the SR-IOV driver (in its chart: {_DRIVERS_NAMESPACE}). It must run in MULTUS mode."
    ]
    # For these pools the driver publishes the name on more devices than the plugin selects.
    advice += [
        f"{name}: a filter cannot express {filters[name][1]}: more devices get the name."
        for name in filters_by_pool
        if filters[name][1]
    ]
    built = [msgspec.to_builtins(target) for target in targets.values()]
    declared = _file(targets=built, nics={"targets": {pool: target.name for pool, target in targets.items()}})
    return PoolDeclarations(
        pools={pool.name: str(pool) for pool in pools},
        configuration=_commented(comments, dump([declared])) if targets else "",
        driver_objects=_commented(advice, dump(_objects(filters_by_pool))) if filters_by_pool else "",
        driver_configuration=dump([_file(nics={"pools": list(filters_by_pool)})]) if filters_by_pool else "",
    )


def _commented(comments: Iterable[str], text: str) -> str:
    return "".join(f"# {printable(line)}\n" for line in comments) + text


def _file(**fields: Any) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": "DrawbridgeConfiguration", **fields}


def _target(pool: NetworkPool, configuration: Configuration) -> tuple[Target | None, str]:
    """Return the target of a pool, and the selectors that the driver's attributes cannot express; or None, and why there is no target."""
    base = TARGETS["nic" if pool.is_shared else "vf"]
    chosen = configuration.file.classes.get(base.name)
    terms: list[list[str]] = []
    missing: dict[str, None] = {}
    for alternative in pool.alternatives:
        if "deviceType" in alternative or "vdpaType" in alternative:
            return None, "no driver publishes its devices, which are vDPA devices or not network devices"
        written: list[str] = []
        for name, values in alternative.items():
            term = _dranet(name, values) if pool.is_shared else _sriov(name, values)
            written += [term] if term else []
            if not term:
                missing[f"{name} {', '.join(values)}".strip()] = None
        terms.append(written)
    selectors = terms[0] if len(terms) == 1 else [" || ".join(f"({' && '.join(term)})" for term in terms if term)]
    if not all(terms):  # an alternative without terms would select all devices of the class
        selectors = []
    if len(selectors) > _MAX_TERMS:
        selectors = [" && ".join(selectors)]
    if any(len(text) > _LONGEST for text in selectors):
        return None, "its selectors are too long for a claim"
    target = replace(
        base,
        classes=tuple(dict.fromkeys([*([chosen] if chosen else []), *base.classes])),
        true=("rdma",) if pool.is_shared else (),
        selectors=tuple(selectors),
        rdma_flags=(),
        virtual="",
        virtual_flag="",
        pooled=False,
    )
    return target, "; ".join(missing)


def _attribute(driver: str, name: str, default: str = '""') -> str:
    return f'device.attributes["{driver}"].?{name}.orValue({default})'


def _quoted(values: Iterable[str]) -> str:
    return msgspec.json.encode(list(values)).decode()


def _sriov(name: str, values: tuple[str, ...]) -> str:
    """Return a selector of the SR-IOV plugin as CEL; "" if the SR-IOV driver's attributes cannot express it."""
    driver = TARGETS["vf"].driver
    if name == "isRdma":
        return _attribute(driver, "rdmaCapable", "false")
    if name in _SRIOV:
        driver_values = [_LINKS.get(value, value) for value in values] if name == "linkTypes" else values
        return f"{_attribute(driver, _SRIOV[name])} in {_quoted(driver_values)}"
    if name not in _FUNCTIONS:
        return ""
    # If two entries name one physical function, the plugin uses the first.
    ranges: dict[str, str] = {}
    for value in values:
        function, ranged, numbers = value.partition("#")
        if ranged and not numbers:
            return ""
        ranges.setdefault(function, numbers)
    function = _attribute(driver, _FUNCTIONS[name])
    tests = (
        [f"{function} in {_quoted(whole)}"] if (whole := [range_ for range_ in ranges if not ranges[range_]]) else []
    )
    number = _attribute(driver, "vfID", "-1")
    for address, numbers in ranges.items():
        if not numbers:
            continue
        parts: list[str] = []
        for part in numbers.split(","):
            match = _RANGE(part)
            if match is None:
                return ""
            first, last = match[1], match[2] or match[1]
            parts.append(
                f"({number} >= {int(first)} && {number} <= {int(last)})"
                if first != last
                else f"{number} == {int(first)}"
            )
        tests.append(f"({function} == {_quoted([address])[1:-1]} && ({' || '.join(parts)}))")
    return tests[0] if len(tests) == 1 else f"({' || '.join(tests)})"


def _dranet(name: str, values: tuple[str, ...]) -> str:
    """Return a selector of the shared RDMA plugin as CEL; "" if dranet's attributes cannot express it."""
    if name not in _DRANET:
        return ""
    driver_values = [_VENDORS.get(value.lower(), "") for value in values] if name == "vendors" else list(values)
    return (
        f"{_attribute(TARGETS['nic'].driver, _DRANET[name])} in {_quoted(driver_values)}" if all(driver_values) else ""
    )


def _filters(pool: NetworkPool) -> tuple[list[dict[str, Any]], str]:
    """Return the resource filters of the SR-IOV driver, and what they cannot express; no filters if one would select all devices."""
    filters: list[dict[str, Any]] = []
    missing: dict[str, None] = {}
    for alternative in pool.alternatives:
        driver_filter: dict[str, Any] = {}
        for name, values in alternative.items():
            ranged = [value for value in values if "#" in value and name in _FUNCTIONS]
            if ranged or name not in _FILTERS:
                missing[f"{name} {', '.join(ranged or values)}".strip()] = None
            if name in _FILTERS:
                driver_filter[_FILTERS[name]] = list(dict.fromkeys(value.partition("#")[0] for value in values))
        if "deviceType" in alternative or "vdpaType" in alternative or not driver_filter:
            return [], ""
        links = driver_filter.pop("linkType", None)  # a filter has one link type, a plugin's configuration has a list
        filters += (
            [driver_filter]
            if links is None
            else [driver_filter | {"linkType": _LINKS.get(link, link)} for link in links]
        )
    return filters, "; ".join(missing)


def _objects(pools: Mapping[str, list[dict[str, Any]]]) -> Iterator[dict[str, Any]]:
    version = f"{TARGETS['vf'].driver}/v1alpha1"
    configs: list[dict[str, Any]] = []
    for pool, filters in pools.items():
        name = re.sub(r"[^a-z0-9.-]+", "-", pool.lower()).strip("-.")
        label = re.sub(r"[^A-Za-z0-9_.-]+", "_", pool)[:63].strip("-_.")
        yield {
            "apiVersion": version,
            "kind": "DeviceAttributes",
            "metadata": {"name": name, "namespace": _DRIVERS_NAMESPACE, "labels": {_LABEL: label}},
            "spec": {"attributes": {NETWORK_RESOURCE: {"string": pool}}},
        }
        selector = {"matchLabels": {_LABEL: label}}
        configs.append({"deviceAttributesSelector": selector, "resourceFilters": filters})
    yield {
        "apiVersion": version,
        "kind": "SriovResourcePolicy",
        "metadata": {"name": "pools", "namespace": _DRIVERS_NAMESPACE},
        "spec": {"configs": configs},
    }
