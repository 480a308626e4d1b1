"""Writes the CEL selectors for a demand (a device request read from a pod's keys).

Text that users write appears only in string literals. Each attribute that a device may lack is guarded, because an unguarded access fails the
allocation of the whole claim. The cost is estimated as the API server does it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from dra import cel
from dra.cache import Cache
from webhook.dialects import NETWORK_RESOURCE, PCIE_ROOT, NodeRequirement

if TYPE_CHECKING:
    from webhook.dialects import Demand, Supply

_MAX_EXPRESSION = 10 * 1024  # bytes


def literal(text: str) -> str:
    return msgspec.json.encode(text).decode()


class _Filters(msgspec.Struct, frozen=True, gc=False):
    """All inputs of the selectors; also the key of the cache."""

    driver: str
    product: str
    unique: str
    vendor: str
    where: tuple[tuple[str, str], ...]
    selectors: tuple[str, ...]
    profile: tuple[str, str]  # the attribute and its value
    resource: str
    flags: tuple[str, ...]
    # True: only devices that allow multiple allocations; False: only devices that do not; None: any device.
    shared: bool | None
    models: tuple[str, ...]
    not_models: tuple[str, ...]
    uuids: tuple[str, ...]
    not_uuids: tuple[str, ...]
    attributes: tuple[NodeRequirement, ...]


# The selectors are cached, because estimating the cost of an expression is slow. Containers of a pod mostly differ only in amounts, which are
# not part of the filters.
_WRITTEN: Cache[tuple[tuple[str, ...] | None]] = Cache(8 << 20)


def selectors(demand: Demand, supply: Supply) -> tuple[str, ...] | None:
    """Write the selectors of a demand; None if a selector would be too long or too costly."""
    # Attributes that must be true. A flag for RDMA that no driver publishes cannot be required.
    flags = list(supply.target.true)
    flags += [supply.target.virtual_flag] if demand.virtual_function and supply.target.virtual_flag else []
    flags += supply.served.known_by(supply.target.rdma_flags) if demand.rdma else []
    filters = _Filters(
        driver=supply.driver,
        product=supply.target.product,
        unique=supply.target.unique or f"{supply.driver}/uuid",
        vendor=supply.target.vendor,
        where=tuple(supply.target.where.items()),
        selectors=supply.target.selectors,
        profile=(supply.target.profile, demand.profile),
        resource=demand.resource,
        flags=tuple(flags),
        shared=demand.shared_access if supply.served.divisible and not demand.partial else None,
        models=demand.models,
        not_models=demand.not_models,
        uuids=demand.uuids,
        not_uuids=demand.not_uuids,
        attributes=demand.attributes,
    )
    cached = _WRITTEN.get(filters)
    if cached is None:
        cached = (_write(filters),)
        filter_values = [*filters.models, *filters.not_models, *filters.uuids, *filters.not_uuids]
        for attribute in filters.attributes:
            filter_values += (attribute.key, *attribute.values)
        _WRITTEN.put(filters, cached, 1_000 + sum(2 * len(word) + 200 for word in filter_values))
    return cached[0]


def _write(filters: _Filters) -> tuple[str, ...] | None:
    driver = literal(filters.driver)
    # Comparisons with one text are cheap. The cost is estimated only for expressions that grow with a pod's lists.
    cheap, costly = [f"{_attribute(filters.driver, name)} == {literal(value)}" for name, value in filters.where], []
    cheap += filters.selectors
    name, profile = filters.profile
    if profile:
        cheap.append(f"{_attribute(filters.driver, name)} == {literal(profile)}")
    if filters.resource:
        domain, _, name = NETWORK_RESOURCE.partition("/")
        cheap.append(f'device.attributes[{literal(domain)}].?{name}.orValue("") == {literal(filters.resource)}')
    cheap += [f"device.attributes[{driver}].?{name}.orValue(false)" for name in filters.flags]
    if filters.shared is not None:
        cheap.append(f"{'' if filters.shared else '!'}device.allowMultipleAllocations")
    if filters.models:
        costly.append(_contains(filters, filters.models))
    if filters.not_models:
        costly.append(f"!({_contains(filters, filters.not_models)})")
    if filters.uuids:
        costly.append(f"{_attribute_by_full_name(filters.unique)} in {_list(filters.uuids)}")
    if filters.not_uuids:
        costly.append(f"!({_attribute_by_full_name(filters.unique)} in {_list(filters.not_uuids)})")
    if filters.attributes:
        costly.append(" && ".join(map(_selection_test, filters.attributes)))
    expressions = (*cheap, *costly)
    if any(len(text.encode()) > _MAX_EXPRESSION for text in expressions):
        return None
    if any(cel.compile(text, cel.NEW).max_cost > cel.MAX_COST for text in costly):
        return None
    return expressions


def add_root(texts: tuple[str, ...], supply: Supply) -> tuple[str, ...]:
    """Add a test that the PCIe root is not empty, if some devices publish an empty root."""
    if not supply.served.rootless and not supply.target.rootless:
        return texts
    domain, _, name = PCIE_ROOT.partition("/")
    return (*texts, f'device.attributes[{literal(domain)}].?{name}.orValue("") != ""')


def _attribute(driver: str, name: str) -> str:
    """Return the expression for a text attribute in a domain; its value is "" if the device lacks the attribute."""
    return f"device.attributes[{literal(driver)}].?{name}.orValue({literal('')})"


def _attribute_by_full_name(full_name: str) -> str:
    domain, _, name = full_name.partition("/")
    return _attribute(domain, name)


def _contains(filters: _Filters, words: tuple[str, ...]) -> str:
    """Return a test that the product name contains one of the words, ignoring case.

    A word may include the vendor's name, which legacy systems prepend to product names that lack it. The name is guarded by
    `has` and not by `orValue`. The API server cannot estimate the length of an `orValue` result, so it could not estimate the cost.
    """
    domain, _, attribute = filters.product.partition("/")
    name = f"device.attributes[{literal(domain)}].{attribute}"
    vendor = filters.vendor
    tests = [f"{name}.lowerAscii().contains({literal(_lower(word))})" for word in words]
    for word in words:
        if vendor and vendor.lower() in word.lower():
            prefixed = f"({literal(vendor.lower() + '-')} + {name}.lowerAscii())"
            tests.append(f"(!{name}.startsWith({literal(vendor)}) && {prefixed}.contains({literal(_lower(word))}))")
    return f"has({name}) && ({' || '.join(tests)})"


def _lower(word: str) -> str:
    """Lower-case ASCII letters only, as CEL's lowerAscii does."""
    return "".join(c.lower() if c.isascii() else c for c in word)


def _selection_test(selection: NodeRequirement) -> str:
    """Return the test for a requirement on an attribute. As in label selectors, NotIn also holds for a device without the attribute."""
    domain, _, name = selection.key.partition("/")
    attributes = f"device.attributes[{literal(domain)}]"
    has_attribute = f"{literal(name)} in {attributes}"
    is_listed = f"({has_attribute} && {attributes}[{literal(name)}] in {_list(selection.values)})"
    tests = {"In": is_listed, "NotIn": f"!{is_listed}", "Exists": has_attribute, "DoesNotExist": f"!({has_attribute})"}
    return tests[selection.operator]


def product_is(supply: Supply, products: list[str]) -> str:
    return f"{_attribute_by_full_name(supply.target.product)} in {_list(tuple(products))}"


def capacity_is(supply: Supply, name: str, amount: int) -> str:
    domain, _, capacity_name = name.rpartition("/")
    capacity = f"device.capacity[{literal(domain or supply.driver)}].?{capacity_name}"
    return f'{capacity}.orValue(quantity("0")).compareTo(quantity({literal(str(amount))})) == 0'


def bandwidth_is(supply: Supply, name: str, amount: int) -> str:
    return f"device.allowMultipleAllocations && {capacity_is(supply, name, amount)}"


def _list(words: tuple[str, ...]) -> str:
    return "[" + ", ".join(map(literal, words)) + "]"
