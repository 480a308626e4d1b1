"""Selectors: what a demand asks of a device, in CEL.

Every user text is a string literal, and every attribute that a candidate may lack is guarded: an unguarded look-up of a
missing one aborts the allocation of the whole claim. What an expression may cost at most is judged as the API server
will judge it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from dra import cel
from dra.cache import Cache
from webhook.dialects import NETWORK_RESOURCE, PCIE_ROOT

if TYPE_CHECKING:
    from webhook.dialects import Demand, Supply

_EXPRESSION = 10 * 1024  # bytes


def literal(text: str) -> str:
    """Write a text as a CEL string literal."""
    return msgspec.json.encode(text).decode()


class _Filters(msgspec.Struct, frozen=True, gc=False):
    """Everything that selectors are written from, and so what they can be remembered by."""

    driver: str
    product: str
    unique: str
    vendor: str
    where: tuple[tuple[str, str], ...]
    profile: tuple[str, str]  # the attribute and its value
    resource: str
    flags: tuple[str, ...]
    whole: bool  # devices of which it would be given a part are out
    models: tuple[str, ...]
    not_models: tuple[str, ...]
    uuids: tuple[str, ...]
    not_uuids: tuple[str, ...]


# Containers of one pod mostly differ in amounts, and to judge what an expression costs is dear.
_WRITTEN: Cache[tuple[tuple[str, ...] | None]] = Cache(8 << 20)


def selectors(demand: Demand, supply: Supply) -> tuple[str, ...] | None:
    """Write what the demand asks of each device; None where it is more than an expression may be."""
    # Truths about a network device that its driver publishes; one that it never publishes can't be asked for.
    flags = list(supply.target.true)
    flags += [supply.target.virtual_flag] if demand.virtual_function and supply.target.virtual_flag else []
    flags += supply.served.known_by(supply.target.rdma_flags) if demand.rdma else []
    filters = _Filters(
        driver=supply.driver,
        product=supply.target.product,
        unique=supply.target.unique or f"{supply.driver}/uuid",
        vendor=supply.target.vendor,
        where=tuple(supply.target.where.items()),
        profile=(supply.target.profile, demand.profile),
        resource=demand.resource,
        flags=tuple(flags),
        whole=supply.served.parted and not demand.partial,
        models=demand.models,
        not_models=demand.not_models,
        uuids=demand.uuids,
        not_uuids=demand.not_uuids,
    )
    written = _WRITTEN.get(filters)
    if written is None:
        written = (_write(filters),)
        words = (*filters.models, *filters.not_models, *filters.uuids, *filters.not_uuids)
        _WRITTEN.put(filters, written, 1_000 + sum(2 * len(word) + 200 for word in words))
    return written[0]


def _write(filters: _Filters) -> tuple[str, ...] | None:
    driver = literal(filters.driver)
    # Comparisons with one text cost next to nothing; what grows with the words of a pod is judged.
    texts, judged = [], []
    for name, value in filters.where:
        texts.append(f"{_attribute(filters.driver, name)} == {literal(value)}")
    name, profile = filters.profile
    if profile:
        texts.append(f"{_attribute(filters.driver, name)} == {literal(profile)}")
    if filters.resource:
        domain, _, name = NETWORK_RESOURCE.partition("/")
        texts.append(f'device.attributes[{literal(domain)}].?{name}.orValue("") == {literal(filters.resource)}')
    texts += [f"device.attributes[{driver}].?{name}.orValue(false)" for name in filters.flags]
    texts += ["!device.allowMultipleAllocations"] if filters.whole else []
    if filters.models:
        judged.append(_contains(filters, filters.models))
    if filters.not_models:
        judged.append(f"!({_contains(filters, filters.not_models)})")
    if filters.uuids:
        judged.append(f"{_named(filters.unique)} in {_list(filters.uuids)}")
    if filters.not_uuids:
        judged.append(f"!({_named(filters.unique)} in {_list(filters.not_uuids)})")
    every = (*texts, *judged)
    if any(len(text.encode()) > _EXPRESSION for text in every):
        return None
    if any(cel.compile(text, cel.NEW).max_cost > cel.MAX_COST for text in judged):
        return None
    return every


def add_root(texts: tuple[str, ...], supply: Supply) -> tuple[str, ...]:
    """Add that the PCIe root is known, where devices are published whose root is the empty text."""
    if not supply.served.rootless and not supply.target.rootless:
        return texts
    domain, _, name = PCIE_ROOT.partition("/")
    return (*texts, f'device.attributes[{literal(domain)}].?{name}.orValue("") != ""')


def _attribute(driver: str, name: str) -> str:
    """One of the driver's own text attributes, "" where a device lacks it."""
    return f"device.attributes[{literal(driver)}].?{name}.orValue({literal('')})"


def _named(full: str) -> str:
    """A text attribute by its full name, "" where a device lacks it."""
    domain, _, name = full.partition("/")
    return _attribute(domain, name)


def _contains(filters: _Filters, words: tuple[str, ...]) -> str:
    """Test the product name for one of the words, whatever the case.

    A word may rely on the vendor's name in front, which legacy systems add where it is missing. The name is read behind
    `has` and not through `orValue`, of which the API server can't tell how long it is, and so how costly.
    """
    domain, _, id_ = filters.product.partition("/")
    name = f"device.attributes[{literal(domain)}].{id_}"
    vendor = filters.vendor
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
    return f"{_named(supply.target.product)} in {_list(tuple(products))}"


def capacity_is(supply: Supply, name: str, amount: int) -> str:
    """Write that a device has so much of a capacity in all."""
    domain, _, id_ = name.rpartition("/")
    capacity = f"device.capacity[{literal(domain or supply.driver)}].?{id_}"
    return f'{capacity}.orValue(quantity("0")).compareTo(quantity({literal(str(amount))})) == 0'


def bandwidth_is(supply: Supply, name: str, amount: int) -> str:
    """Write that a device is shared, and has so much bandwidth in all."""
    return f"device.allowMultipleAllocations && {capacity_is(supply, name, amount)}"


def _list(words: tuple[str, ...]) -> str:
    return "[" + ", ".join(map(literal, words)) + "]"
