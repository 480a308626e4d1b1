"""Selectors: what a demand asks of a device, in CEL.

Every user text is a string literal, and every attribute that a candidate may lack is guarded: an unguarded look-up of a
missing one aborts the allocation of the whole claim. What an expression may cost at most is judged as the API server
will judge it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from dra import cel
from webhook.dialects import NETWORK_RESOURCE, PCIE_ROOT

if TYPE_CHECKING:
    from webhook.dialects import Demand
    from webhook.state import Supply

_EXPRESSION = 10 * 1024  # bytes


def literal(text: str) -> str:
    """Write a text as a CEL string literal."""
    return msgspec.json.encode(text).decode()


def selectors(demand: Demand, supply: Supply) -> tuple[str, ...] | None:
    """Write what the demand asks of each device; None where it is more than an expression may be."""
    texts = []
    if demand.profile:
        texts.append(f"{_attribute(supply, 'profile')} == {literal(demand.profile)}")
    if demand.resource:
        domain, _, name = NETWORK_RESOURCE.partition("/")
        texts.append(f'device.attributes[{literal(domain)}].?{name}.orValue("") == {literal(demand.resource)}')
    texts += [f"device.attributes[{literal(supply.driver)}].?{name}.orValue(false)" for name in _flags(demand, supply)]
    if demand.models:
        texts.append(_contains(supply, demand.models))
    if demand.not_models:
        texts.append(f"!({_contains(supply, demand.not_models)})")
    if demand.uuids:
        texts.append(f"{_attribute(supply, 'uuid')} in {_list(demand.uuids)}")
    if demand.not_uuids:
        texts.append(f"!({_attribute(supply, 'uuid')} in {_list(demand.not_uuids)})")
    if any(len(text.encode()) > _EXPRESSION or _too_costly(text) for text in texts):
        return None
    return tuple(texts)


def rooted(texts: tuple[str, ...], supply: Supply) -> tuple[str, ...]:
    """Add that the PCIe root is known, where devices are published whose root is the empty text."""
    if not supply.served.rootless and not supply.target.rootless:
        return texts
    domain, _, name = PCIE_ROOT.partition("/")
    return (*texts, f'device.attributes[{literal(domain)}].?{name}.orValue("") != ""')


def _attribute(supply: Supply, name: str) -> str:
    """One of the driver's own text attributes, "" where a device lacks it."""
    return f"device.attributes[{literal(supply.driver)}].?{name}.orValue({literal('')})"


def _too_costly(text: str) -> bool:
    return cel.compile(text, cel.NEW).max_cost > cel.MAX_COST


def _flags(demand: Demand, supply: Supply) -> list[str]:
    """Truths about a network device that its driver publishes; one that it never publishes can't be asked for."""
    target = supply.target
    flags = [target.virtual_flag] if demand.virtual_function and target.virtual_flag else []
    if demand.rdma:
        flags += supply.served.known_by(target.rdma_flags)
    return flags


def _contains(supply: Supply, words: tuple[str, ...]) -> str:
    """Test the product name for one of the words, whatever the case.

    A word may rely on the vendor's name in front, which legacy systems add where it is missing. The name is read behind
    `has` and not through `orValue`, of which the API server can't tell how long it is, and so how costly.
    """
    name = f"device.attributes[{literal(supply.driver)}].productName"
    vendor = supply.target.vendor
    tests = [f"{name}.lowerAscii().contains({literal(_lower(word))})" for word in words]
    for word in words:
        if vendor and vendor.lower() in word.lower():
            prefixed = f"({literal(vendor.lower() + '-')} + {name}.lowerAscii())"
            tests.append(f"(!{name}.startsWith({literal(vendor)}) && {prefixed}.contains({literal(_lower(word))}))")
    return f"has({name}) && ({' || '.join(tests)})"


def _lower(word: str) -> str:
    """Lower a word as CEL's lowerAscii does: ASCII letters only."""
    return "".join(c.lower() if c.isascii() else c for c in word)


def product_is(supply: Supply, products: list[str]) -> str:
    """Write that a device is one of these products."""
    name = supply.target.product.rpartition("/")[2]
    return f"{_attribute(supply, name)} in {_list(tuple(products))}"


def _list(words: tuple[str, ...]) -> str:
    return "[" + ", ".join(map(literal, words)) + "]"
