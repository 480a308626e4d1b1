"""Schemas of network drivers, according to their sources: dranet's NetworkConfig, the SR-IOV driver's VfConfig, Cilium and CNI."""

from __future__ import annotations

import ipaddress
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from dra.finding import Finding, Findings, finding_at
from dra.validation.fields.shape import (
    FLAG,
    TEXT,
    Fields,
    Integer,
    ListOf,
    MapOf,
    OneOf,
    bad_value,
    matching,
    show,
    text,
)
from dra.validation.parameters.driver import KnownDriver, Order, ParameterKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dra.validation.fields.shape import JsonShape, ObjectRule, Rule

_INT32: Final = 2**31 - 1
_INT64: Final = 2**63 - 1
_LONGEST_NAME: Final = 15  # bytes of the name of a Linux network interface
_NAME: Final = re.compile(r"[\w.-]*")
# 6, 8 or 20 octets, separated by colons or hyphens, or in pairs separated by dots.
_OCTETS: Final = tuple(
    f"[0-9a-fA-F]{{2}}(?:{sign}[0-9a-fA-F]{{2}}){{{count - 1}}}" for sign in ":-" for count in (6, 8, 20)
)
_PAIRS: Final = tuple(rf"[0-9a-fA-F]{{4}}(?:\.[0-9a-fA-F]{{4}}){{{count // 2 - 1}}}" for count in (6, 8, 20))
_hardware: Final = matching(
    re.compile("|".join([*_OCTETS, *_PAIRS])), "is not a hardware address, as in 02:00:5e:10:00:01"
)
_not_empty: Final = matching(re.compile(".+", re.DOTALL), "is not a name (expected at least one character)")
_UNIVERSE: Final = 0
_LINK: Final = 253


def _interface(name: str) -> str:
    if len(name.encode()) > _LONGEST_NAME:
        return f"is longer than the {_LONGEST_NAME} bytes of an interface's name"
    if name in (".", "..") or not _NAME.fullmatch(name):
        return "is not the name of an interface, which may contain only letters, digits, '-', '_' and '.'"
    return ""


def _network(value: str) -> str:
    """The rule for an address with a prefix length."""
    address, _, length = value.partition("/")
    if length.isdecimal() and "%" not in address:
        with suppress(ValueError):
            ipaddress.ip_interface(value)
            return ""
    return "is not an address with a prefix length, as in 192.0.2.1/24"


def _address(value: str) -> str:
    return "" if "%" not in value and _family(value) and "/" not in value else "is not an IP address"


def _optional(rule: Rule) -> Rule:
    return lambda value: rule(value) if value else ""


def _family(value: object) -> int:
    """Return the version of IP of an address or a network; 0 if the value is neither."""
    try:
        return ipaddress.ip_address(str(value).partition("/")[0]).version
    except ValueError:
        return 0


def _same_family(value: Mapping[str, Any], path: str, first: str, second: str) -> Findings:
    families = _family(value.get(first)), _family(value.get(second))
    if 0 not in families and families[0] != families[1]:
        yield bad_value(f"{path}/{second}", f"{second} is of IPv{families[1]} and {first} of IPv{families[0]}")


def _route(value: Mapping[str, Any], path: str) -> Findings:
    if value.get("scope") in (None, _UNIVERSE) and not value.get("gateway"):
        hint = f"add gateway, or write scope: {_LINK} for what is on the link"
        yield bad_value(path, "gateway is missing", hint)
    yield from _same_family(value, path, "destination", "gateway")
    yield from _same_family(value, path, "destination", "source")


def _addresses(value: Mapping[str, Any], path: str) -> Findings:
    if value.get("dhcp") is True and value.get("addresses"):
        yield finding_at("D704", f"{path}/dhcp", "dhcp and addresses exclude each other")


def _routing(value: Mapping[str, Any], path: str) -> Findings:
    interface = value.get("interface")
    if value.get("rules") and isinstance(interface, dict) and interface.get("vrf") is not None:
        yield finding_at("D704", f"{path}/rules", "rules are not supported where interface.vrf is set")


_SIZE: Final = Integer(1, _INT32)
_TABLE: Final = Integer(0, _INT64)
_VRF: Final = Fields(
    {"name": text(_not_empty), "table": Integer(1, _INT64, but=(253, 254, 255))},
    demanded=("name",),
)
_INTERFACE: Final = Fields(
    {
        "name": text(_interface),
        "addresses": ListOf(text(_network)),
        "dhcp": FLAG,
        "mtu": Integer(68, _INT32),
        "hardwareAddr": text(_hardware),
        "gsoMaxSize": _SIZE,
        "groMaxSize": _SIZE,
        "gsoIPv4MaxSize": _SIZE,
        "groIPv4MaxSize": _SIZE,
        "disableEbpfPrograms": FLAG,
        "forwarding": FLAG,
        "arpIgnore": Integer(0, 3, also=(8,)),
        "arpAnnounce": Integer(0, 2),
        "vrf": _VRF,
    },
    rule=_addresses,
)
_ROUTE: Final = Fields(
    {
        "destination": text(_network),
        "gateway": text(_optional(_address)),
        "source": text(_optional(_address)),
        "scope": Integer(_UNIVERSE, _UNIVERSE, also=(_LINK,)),
        "table": _TABLE,
    },
    demanded=("destination",),
    rule=_route,
)
_POLICY: Final = Fields(
    {
        "priority": Integer(0, 32767),
        "source": text(_optional(_network)),
        "destination": text(_optional(_network)),
        "table": _TABLE,
    },
    rule=lambda value, path: _same_family(value, path, "source", "destination"),
)
_NEIGHBOR: Final = Fields(
    {"destination": text(_address), "hardwareAddr": text(_hardware)},
    demanded=("destination", "hardwareAddr"),
)
_UNTYPED: Final = dict.fromkeys(
    ("apiVersion", "kind"), "remove it: this driver's parameters have no apiVersion and no kind"
)
_CONFIG: Final = Fields(
    {
        "profile": TEXT,
        "interface": _INTERFACE,
        "routes": ListOf(_ROUTE),
        "rules": ListOf(_POLICY),
        "neighbors": ListOf(_NEIGHBOR),
        "ethtool": Fields({"features": MapOf(FLAG), "privateFlags": MapOf(FLAG)}),
    },
    rule=_routing,
    moved=_UNTYPED,
)
DRANET: Final = KnownDriver(
    "dra.net",
    "kubernetes-sigs/dranet, August 2026 (pkg/apis)",
    "",
    {"NetworkConfig": ParameterKind(_CONFIG)},
    Order.FIRST,
)

# The fields that the driver loses when it merges several entries of a request.
_LOST: Final = ("netAttachDefNamespace", "addVhostMount")


def _sriov_function(value: Mapping[str, Any], path: str) -> Findings:
    """Report settings of a virtual function that have no effect, and a setting that may be missing."""
    for name in _LOST:
        if value.get(name):
            message = f"the driver loses {name} when it merges entries"
            yield finding_at("D708", f"{path}/{name}", message)
    if not value.get("netAttachDefName"):
        message = "netAttachDefName is missing: only in MULTUS mode the driver prepares a device without it"
        yield finding_at("D709", path, message, "add netAttachDefName unless the driver runs in MULTUS mode")


_VF: Final = Fields(
    {
        "driver": TEXT,
        "addVhostMount": FLAG,
        "ifName": text(_interface),
        "netAttachDefName": TEXT,
        "netAttachDefNamespace": TEXT,
    },
    rule=_sriov_function,
)
_GROUP: Final = "sriovnetwork.k8snetworkplumbingwg.io"
SRIOV: Final = KnownDriver(
    _GROUP,
    "k8snetworkplumbingwg/dra-driver-sriov, August 2026 (pkg/api/virtualfunction/v1alpha1)",
    f"{_GROUP}/v1alpha1",
    {"VfConfig": ParameterKind(_VF)},
    Order.MERGED,
    listed_only=True,
)

_MAX_VLANS: Final = 4094
_SYSCTL: Final = re.compile(r"[-\w]+(?:\.[-\w]+)*", re.ASCII)


def _cilium_interface(name: str) -> str:
    if name == "lo" or name.startswith("cilium_"):
        return "is a name that Cilium reserves"
    return _interface(name)


def _addressing(value: Mapping[str, Any], path: str) -> Findings:
    for name in ("ipv4Addr", "ipv6Addr"):
        if value.get("ipPool") and value.get(name):
            yield finding_at("D704", f"{path}/{name}", f"ipPool and {name} exclude each other")


def _network_of(version: int) -> Rule:
    return lambda value: _network(value) or ("" if _family(value) == version else f"is not an address of IPv{version}")


_SYSCTLS: Final = MapOf(text(_not_empty), matching(_SYSCTL, "is not the name of a setting, as in arp_filter"))
_CILIUM: Final = Fields(
    {
        "podIfName": text(_cilium_interface),
        "vlan": Integer(0, _MAX_VLANS),
        "ipv4Addr": text(_optional(_network_of(4))),
        "ipv6Addr": text(_optional(_network_of(6))),
        "ipPool": TEXT,
        "interfaceSysctlIPv4": _SYSCTLS,
        "interfaceSysctlIPv6": _SYSCTLS,
    },
    rule=_addressing,
    moved={
        **_UNTYPED,
        "ip-pool": "newer versions of Cilium call it ipPool",
        "networkConfig": "newer versions of Cilium have no such field",
        "routes": "newer versions of Cilium have no such field",
    },
)
CILIUM: Final = KnownDriver(
    "networkdriver.cilium.io",
    "cilium/cilium, newest stored version of pkg/networkdriver/types (experimental)",
    "",
    {"DeviceConfig": ParameterKind(_CILIUM)},
    listed_only=True,
)


def _required_interface(name: str) -> str:
    return _interface(name) if name else "is not a name (expected at least one character)"


def _plugins(value: Mapping[str, Any], path: str) -> Findings:
    if value.get("plugins") == []:
        yield bad_value(f"{path}/plugins", "plugins is an empty list (expected at least one plugin)")


def _checked_by(shape: Fields, value: Any, path: str) -> Findings:
    findings: list[Finding] = []
    shape.check(value, path, findings)
    yield from findings


def _partial(
    fields: Mapping[str, JsonShape], rule: ObjectRule | None = None, *, demanded: tuple[str, ...] = ()
) -> Fields:
    """Return a shape in which other fields are allowed, because plugins ignore fields that they do not know."""
    shape = Fields(fields, demanded=demanded, rule=rule)
    shape.partial = True
    return shape


def _in_subnet(value: Mapping[str, Any], path: str) -> Findings:
    """Check the addresses of a range as the plugin host-local does."""
    if not value.get("subnet"):
        return
    subnet = ipaddress.ip_interface(value["subnet"]).network
    if subnet.prefixlen > subnet.max_prefixlen - 2:
        yield bad_value(f"{path}/subnet", f"{show(str(subnet))} has no address to allocate")
    addresses = {name: ipaddress.ip_address(value[name]) for name in _IN_SUBNET if value.get(name)}
    outside = [name for name, address in addresses.items() if address not in subnet]
    for name in outside:
        yield bad_value(f"{path}/{name}", f"{show(value[name])} is not in the subnet {subnet}")
    first, last = addresses.get("rangeStart"), addresses.get("rangeEnd")
    if not outside and first is not None and last is not None and int(first) > int(last):
        yield bad_value(f"{path}/rangeEnd", f"{show(value['rangeEnd'])} is before rangeStart")


def _trunk(value: Mapping[str, Any], path: str) -> Findings:
    low, high = value.get("minID"), value.get("maxID")
    if (low is None) != (high is None):
        yield bad_value(path, f"{'minID' if low is None else 'maxID'} is missing")
    elif low is not None and low > high:
        yield bad_value(f"{path}/maxID", f"{high} is less than minID")


def _bridge(value: Mapping[str, Any], path: str) -> Findings:
    if value.get("vlan") and value.get("vlanTrunk"):
        yield finding_at("D704", f"{path}/vlanTrunk", "vlan and vlanTrunk exclude each other")
    if value.get("hairpinMode") and value.get("promiscMode"):
        yield finding_at("D704", f"{path}/promiscMode", "hairpinMode and promiscMode exclude each other")


def _virtual_function(value: Mapping[str, Any], path: str) -> Findings:
    for name in ("vlanQoS", "vlanProto"):
        if value.get(name) is not None and value.get("vlan") is None:
            yield bad_value(f"{path}/{name}", f"{name} needs vlan")


def _plugin(value: Mapping[str, Any], path: str) -> Findings:
    # A snapshot keeps the fields of `_PLUGIN`. A plugin's configuration may contain secrets, so its fields are in shapes of their own.
    yield from _checked_by(_PLUGINS.get(value.get("type", ""), _PARTIAL), value, path)
    if value.get("ipam") is not None:
        yield from _checked_by(_IPAM, value["ipam"], f"{path}/ipam")


def _ipam(value: Mapping[str, Any], path: str) -> Findings:
    yield from _checked_by(_ADDRESSES.get(value.get("type", ""), _PARTIAL), value, path)


# The fields of the reference plugins (containernetworking/plugins) and of the SR-IOV plugin. Other plugins have other fields.
_PARTIAL: Final = _partial({})
_IPAM: Final = _partial({"type": TEXT}, _ipam)
_IN_SUBNET: Final = ("rangeStart", "rangeEnd", "gateway")
_RANGE: Final = {"subnet": text(_network), **dict.fromkeys(_IN_SUBNET, text(_optional(_address)))}
_CNI_ROUTES: Final = ListOf(
    _partial({"dst": text(_network), "gw": text(_optional(_address))}, demanded=("dst",)),
)
_STATIC: Final = _partial({"address": text(_network), "gateway": text(_optional(_address))}, demanded=("address",))
_ADDRESSES: Final = {
    "host-local": _partial(
        {
            **_RANGE,
            "ranges": ListOf(ListOf(_partial(_RANGE, _in_subnet, demanded=("subnet",)))),
            "routes": _CNI_ROUTES,
        },
        _in_subnet,
    ),
    "static": _partial({"addresses": ListOf(_STATIC), "routes": _CNI_ROUTES}),
}
_VLAN: Final = Integer(0, _MAX_VLANS)
_TAGGED: Final = Integer(1, _MAX_VLANS)
_TRUNK: Final = _partial(dict.fromkeys(("id", "minID", "maxID"), _TAGGED), _trunk)
_MTU: Final = Integer(0, _INT32)
_PLUGINS: Final = {
    "macvlan": _partial({"master": TEXT, "mode": OneOf("", "bridge", "private", "vepa", "passthru"), "mtu": _MTU}),
    "ipvlan": _partial({"master": TEXT, "mode": OneOf("", "l2", "l3", "l3s"), "mtu": _MTU}),
    "vlan": _partial({"master": text(_required_interface), "vlanId": _VLAN, "mtu": _MTU}, demanded=("master",)),
    "bridge": _partial(
        {
            "bridge": TEXT,
            "vlan": _VLAN,
            "vlanTrunk": ListOf(_TRUNK),
            "mtu": _MTU,
            **dict.fromkeys(("isGateway", "isDefaultGateway", "ipMasq", "hairpinMode", "promiscMode"), FLAG),
        },
        _bridge,
    ),
    "sriov": _partial(
        {
            "vlan": _VLAN,
            "vlanQoS": Integer(0, 7),
            "vlanProto": text(matching(re.compile(r"802\.1(?:q|ad)", re.IGNORECASE), "is not 802.1q and not 802.1ad")),
            "link_state": OneOf("", "auto", "enable", "disable"),
        },
        _virtual_function,
    ),
}
_PLUGIN: Final = Fields({"type": text(_not_empty)}, demanded=("type",), rule=_plugin)
_PLUGIN.partial = True
_CNI_LIST: Final = Fields(
    {"cniVersion": text(_not_empty), "name": text(_not_empty), "plugins": ListOf(_PLUGIN)},
    demanded=("cniVersion", "name", "plugins"),
    rule=_plugins,
)
_CNI_LIST.partial = True
# The documentation and the Go package of the API disagree about apiVersion and kind, so these two fields are not judged.
_CNI: Final = Fields(
    {"apiVersion": TEXT, "kind": TEXT, "ifName": text(_required_interface), "config": _CNI_LIST},
    demanded=("ifName", "config"),
)
CNI: Final = KnownDriver(
    "cni.dra.networking.x-k8s.io",
    "kubernetes-sigs/cni-dra-driver, January 2025 (apis/v1alpha1, docs/design)",
    "",
    {"CNIConfig": ParameterKind(_CNI)},
    Order.FIRST,
    listed_only=True,
)
