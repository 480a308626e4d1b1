"""Writes the CEL selectors for a demand (a device request read from a pod's keys).

Text that users write appears only in string literals. Each attribute that a device may lack is guarded, because an unguarded access fails the
allocation of the whole claim. The cost is estimated as the API server does it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from dra import cel
from webhook.dialects import NETWORK_RESOURCE, PCIE_ROOT

if TYPE_CHECKING:
    from webhook.dialects import Demand, NodeRequirement, Supply, Target

_MAX_EXPRESSION = 10 * 1024  # bytes


def literal(text: str) -> str:
    return msgspec.json.encode(text).decode()


def selectors(demand: Demand, supply: Supply) -> tuple[str, ...] | None:
    """Write the selectors of a demand; None if a selector would be too long or too costly."""
    target, driver = supply.target, literal(supply.driver)
    # Comparisons with one text are cheap. The cost is estimated only for expressions that grow with a pod's lists.
    cheap = [f"{_attribute(supply.driver, name)} == {literal(value)}" for name, value in target.where.items()]
    cheap += target.selectors
    if demand.profile:
        cheap.append(f"{_attribute(supply.driver, target.profile)} == {literal(demand.profile)}")
    if demand.resource:
        domain, _, name = NETWORK_RESOURCE.partition("/")
        cheap.append(f'device.attributes[{literal(domain)}].?{name}.orValue("") == {literal(demand.resource)}')
    # Attributes that must be true. A flag for RDMA that no driver publishes cannot be required.
    flags = list(target.true)
    flags += [target.virtual_flag] if demand.virtual_function and target.virtual_flag else []
    flags += supply.served.known_by(target.rdma_flags) if demand.rdma else []
    cheap += [f"device.attributes[{driver}].?{name}.orValue(false)" for name in flags]
    if supply.served.divisible and not demand.partial:
        cheap.append(f"{'' if demand.shared_access else '!'}device.allowMultipleAllocations")
    costly = [_contains(target, demand.models)] if demand.models else []
    if demand.not_models:
        costly.append(f"!({_contains(target, demand.not_models)})")
    unique = _attribute_by_full_name(target.unique or f"{supply.driver}/uuid")
    if demand.uuids:
        costly.append(f"{unique} in {_list(demand.uuids)}")
    if demand.not_uuids:
        costly.append(f"!({unique} in {_list(demand.not_uuids)})")
    if demand.attributes:
        costly.append(" && ".join(map(_selection_test, demand.attributes)))
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


def _contains(target: Target, words: tuple[str, ...]) -> str:
    """Return a test that the product name contains one of the words, ignoring case.

    A word may include the vendor's name, which legacy systems prepend to product names that lack it. The name is guarded by
    `has` and not by `orValue`. The API server cannot estimate the length of an `orValue` result, so it could not estimate the cost.
    """
    domain, _, attribute = target.product.partition("/")
    name = f"device.attributes[{literal(domain)}].{attribute}"
    vendor = target.vendor
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
