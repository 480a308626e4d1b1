"""IP addresses and networks (k8s.io/apiserver/pkg/cel/library/ip.go, cidr.go)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeAlias

from dra.cel.signatures import Overload, method, over, succeeds
from dra.cel.types import BOOL, CIDR, INT, IP, STRING
from dra.cel.values import Sized
from dra.errors import SelectorRunError

if TYPE_CHECKING:
    from ipaddress import IPv4Address, IPv6Address


_Address: TypeAlias = "IPv4Address | IPv6Address"


class IPAddress(Sized, frozen=True):
    """`ip("10.0.0.1")`."""

    type_name = "net.IP"
    address: _Address

    @property
    def size(self) -> int:
        return self.address.max_prefixlen // 8

    def __str__(self) -> str:
        return str(self.address)


class Network(Sized, frozen=True):
    """`cidr("10.0.0.0/8")`; host bits are kept, as in Go."""

    type_name = "net.CIDR"
    address: _Address
    bits: int

    @property
    def size(self) -> int:
        return -(-self.bits // 8)

    def __str__(self) -> str:
        return f"{self.address}/{self.bits}"

    def masked(self) -> Network:
        """Return the network with all host bits zero."""
        shift = self.address.max_prefixlen - self.bits
        return Network(type(self.address)(int(self.address) >> shift << shift), self.bits)

    def contains(self, address: _Address) -> bool:
        """Whether an address is in the network."""
        shift = self.address.max_prefixlen - self.bits
        return self.address.version == address.version and int(self.address) >> shift == int(address) >> shift


def _parse_address(text: str) -> _Address:
    import ipaddress  # few selectors need it

    try:
        address = ipaddress.ip_address(text)
    except ValueError as error:
        raise SelectorRunError(f"IP Address {text!r} parse error during conversion from string: {error}") from None
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id is not None:
            raise SelectorRunError(f"IP address {text!r} with zone value is not allowed")
        if address.ipv4_mapped is not None:
            raise SelectorRunError(f"IPv4-mapped IPv6 address {text!r} is not allowed")
    return address


def parse_ip(text: str) -> IPAddress:
    return IPAddress(_parse_address(text))


_BITS = "0|[1-9][0-9]{0,2}"


def parse_cidr(text: str) -> Network:
    address_text, slash, bits = text.rpartition("/")
    if not slash or not re.fullmatch(_BITS, bits):
        raise SelectorRunError(f"network address parse error during conversion from string: {text!r}")
    address = _parse_address(address_text)
    if int(bits) > address.max_prefixlen:
        raise SelectorRunError(
            f"network address parse error during conversion from string: prefix length out of range: {text!r}"
        )
    return Network(address, int(bits))


def _is_global_unicast(ip: IPAddress) -> bool:
    address = ip.address
    special = address.is_unspecified or address.is_loopback or address.is_multicast or _is_link_local_unicast(ip)
    return not special and str(address) != "255.255.255.255"


def _is_link_local_unicast(ip: IPAddress) -> bool:
    number = int(ip.address)
    return number >> 16 == 0xA9FE if ip.address.version == 4 else number >> 118 == 0x3FA


def _contains_cidr(network: Network, other: Network) -> bool:
    return network.bits <= other.bits and network.contains(other.address)


FUNCTIONS: tuple[Overload, ...] = (
    over("ip", "string_to_ip", (STRING,), IP, parse_ip),
    method("ip", "cidr_ip", (CIDR,), IP, lambda network: IPAddress(network.address)),
    over("isIP", "is_ip", (STRING,), BOOL, succeeds(parse_ip)),
    over("ip.isCanonical", "ip_is_canonical", (STRING,), BOOL, lambda text: str(parse_ip(text)) == text),
    method("family", "ip_family", (IP,), INT, lambda ip: ip.address.version),
    method("isUnspecified", "ip_is_unspecified", (IP,), BOOL, lambda ip: ip.address.is_unspecified),
    method("isLoopback", "ip_is_loopback", (IP,), BOOL, lambda ip: ip.address.is_loopback),
    method("isLinkLocalMulticast", "ip_is_link_local_multicast", (IP,), BOOL, lambda ip: int(ip.address) >> 8 == 0xE00000 if ip.address.version == 4 else (int(ip.address) >> 112) & 0xFF0F == 0xFF02),
    method("isLinkLocalUnicast", "ip_is_link_local_unicast", (IP,), BOOL, _is_link_local_unicast),
    method("isGlobalUnicast", "ip_is_global_unicast", (IP,), BOOL, _is_global_unicast),
    over("cidr", "string_to_cidr", (STRING,), CIDR, parse_cidr),
    over("isCIDR", "is_cidr", (STRING,), BOOL, succeeds(parse_cidr)),
    method("containsIP", "cidr_contains_ip_string", (CIDR, STRING), BOOL, lambda network, text: network.contains(_parse_address(text))),
    method("containsIP", "cidr_contains_ip_ip", (CIDR, IP), BOOL, lambda network, ip: network.contains(ip.address)),
    method("containsCIDR", "cidr_contains_cidr_string", (CIDR, STRING), BOOL, lambda network, text: _contains_cidr(network, parse_cidr(text))),
    method("containsCIDR", "cidr_contains_cidr", (CIDR, CIDR), BOOL, _contains_cidr),
    method("prefixLength", "cidr_prefix_length", (CIDR,), INT, lambda network: network.bits),
    method("masked", "cidr_masked", (CIDR,), CIDR, Network.masked),
)  # fmt: skip
