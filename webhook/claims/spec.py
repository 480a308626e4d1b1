"""Builds ResourceClaim specs from demands (device requests read from a pod's keys), and lists the features that each spec needs.

A claim holds 32 requests, 32 constraints and 32 results. A demand becomes one spec, or several if it is too large for one claim
and no constraint ties its devices together. Defaults of the API server are written out, so that the stored spec equals the hashed
spec. The CEL selectors are in `webhook.claims.device_selectors`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import msgspec
from msgspec.structs import astuple

from dra.objects import (
    CapacityRequirements,
    CELDeviceSelector,
    DeviceClaim,
    DeviceClaimConfiguration,
    DeviceConstraint,
    DeviceRequest,
    DeviceSelector,
    DeviceSubRequest,
    ExactDeviceRequest,
    OpaqueDeviceConfiguration,
    ResourceClaimSpec,
)
from dra.quantity import Quantity
from dra.reason import Reason
from dra.texts import list_first
from dra.wire import Opaque
from webhook.claims.device_selectors import add_root, bandwidth_is, capacity_is, product_is, selectors
from webhook.dialects import (
    ALTERNATIVES,
    AUTO,
    CLAIMS,
    DRANET_NUMA_NODE,
    MIB,
    NUMA_NODE,
    NUMBER,
    PCIE_ROOT,
    POD_LIMIT,
    SHARES,
    Demand,
    Need,
    Pairs,
)
from webhook.names import CONFIGURATION_PAGE
from webhook.refusals import Code

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from fractions import Fraction

    from webhook.dialects import Supply, Target, TiedDemands


LIMIT = 32  # requests, constraints and results of one claim
_MAX_ALTERNATIVES = 8  # alternatives of one request (firstAvailable)
_NAMED = 3  # models in a reason
_MAX_PRODUCTS = 32  # products in the selector of one alternative


_WHOLE_DEVICE = "one whole device, for this container alone: fewer pods fit on a node"

Sizes: TypeAlias = "Mapping[str, tuple[int, ...]]"


class MemoryShare(msgspec.Struct, frozen=True):
    """A part of a device's memory, in bytes. If the product has several sizes, `size` is the memory of the whole device."""

    amount: int
    size: int = 0


class Claims(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Claim specs, the features that they need, and remarks for the user."""

    specs: tuple[ResourceClaimSpec, ...]
    needs: tuple[Need, ...]
    base: str  # prefix of the request names: gpu, mig, nic
    remarks: tuple[str, ...] = ()  # approximations
    models: tuple[str, ...] = ()


_TOO_LONG = Reason(text="the list of models or UUIDs is too long or too costly for a CEL expression")


def build_claims(demand: Demand, supply: Supply, sizes: Sizes) -> Claims | Reason:
    """Build the claims for one demand. `sizes` are the amounts of memory of each product, from which percentages are computed."""
    claims = _claims_of(demand, supply, sizes)
    if isinstance(claims, Reason) or supply.parameters is None:
        return claims
    specs: list[ResourceClaimSpec] = []
    for spec in claims.specs:
        names = tuple([request.name for request in spec.devices.requests])
        specs.append(_spec(spec.devices.requests, spec.devices.constraints, _config(supply, names)))
    return msgspec.structs.replace(claims, specs=tuple(specs))


def _config(supply: Supply, names: tuple[str, ...], first: int = 0) -> tuple[DeviceClaimConfiguration, ...]:
    """Return the claim's entries with the driver's parameters: one entry for all requests.

    If the parameters contain the number of a device, each request gets an entry of its own; `first` is the first number.
    """
    parameters = supply.parameters
    if parameters is None:
        return ()
    if not supply.numbered:
        opaque = OpaqueDeviceConfiguration(driver=supply.driver, parameters=parameters)
        return (DeviceClaimConfiguration(requests=names, opaque=opaque),)
    entries: list[DeviceClaimConfiguration] = []
    for i, name in enumerate(names, first):
        own = Opaque(parameters.json.replace(NUMBER, str(i).encode()))
        opaque = OpaqueDeviceConfiguration(driver=supply.driver, parameters=own)
        entries.append(DeviceClaimConfiguration(requests=(name,), opaque=opaque))
    return tuple(entries)


def _unnumbered(supply: Supply) -> Reason:
    reason = f"the `parameters` of target {supply.target.name!r} contain the number of a device, and one request asks for several devices"
    return Reason(text=reason)


def _claims_of(demand: Demand, supply: Supply, sizes: Sizes) -> Claims | Reason:
    if demand.count > POD_LIMIT:
        return Reason(text=f"{demand.count} devices are requested, and a pod can have {POD_LIMIT} at most")
    if demand.same_attribute and not supply.served.publishes(demand.same_attribute):
        reason = f"most nodes do not publish {demand.same_attribute} on every device of class {supply.served.name}"
        return Reason(text=reason, causes=(demand.same_attribute,))
    if (demand.models or demand.not_models) and not supply.target.product:
        return Reason(text=f"target {supply.target.name!r} has no `product` attribute to select models by")
    if demand.cpus is not None:
        return _cpu_claims(demand, demand.cpus, supply)
    if demand.profile_memory is not None:
        return _smallest_profile(demand, supply)
    if demand.shared_access:
        return _shared_access(demand, supply)
    if supply.numbered and (demand.everything or demand.count > LIMIT):
        return _unnumbered(supply)
    if not demand.partial and (demand.count == 1 or not supply.numbered):
        return _whole_devices(demand, supply)
    names = _request_names(supply.target.request, demand.count)
    claims = _devices(demand, supply, names, sizes)
    if isinstance(claims, Reason) or not demand.same_attribute or len(names) == 1:
        return claims
    devices = claims.specs[0].devices
    tie = DeviceConstraint(requests=names, match_attribute=demand.same_attribute)
    return msgspec.structs.replace(claims, specs=(_spec(devices.requests, (*devices.constraints, tie)),))


def _whole_devices(demand: Demand, supply: Supply) -> Claims | Reason:
    """Return claims for whole devices, or for all devices of a node. Each claim has one request, for at most 32 devices."""
    texts = selectors(demand, supply)
    if texts is None:
        return _TOO_LONG
    name = supply.target.request
    if demand.count > LIMIT and demand.same_attribute:
        reason = f"{demand.count} devices that share {demand.same_attribute} do not fit one claim ({LIMIT})"
        return Reason(text=reason)
    constraints = (
        (DeviceConstraint(requests=(name,), match_attribute=demand.same_attribute),) if demand.same_attribute else ()
    )
    if demand.everything:
        every = ExactDeviceRequest(device_class_name=supply.served.name, selectors=_cel(texts), allocation_mode="All")
        requests: tuple[DeviceRequest, ...] = (DeviceRequest(name=name, exactly=every),)
        return Claims(specs=(_spec(requests, constraints),), needs=(CLAIMS,), base=name)
    parts = split_evenly(demand.count, LIMIT)
    return Claims(
        specs=tuple(_spec((_request(name, supply, texts, count=part),), constraints) for part in parts),
        needs=(CLAIMS,),
        base=name,
        models=demand.models,
    )


def _shared_access(demand: Demand, supply: Supply) -> Claims | Reason:
    """Request all devices of the node, as the device plugin gives them, if most nodes publish devices that pods can share.

    Otherwise request one whole device.
    """
    if not supply.served.divisible:
        whole = _whole_devices(demand, supply)
        remark = _WHOLE_DEVICE
    elif supply.numbered:
        return _unnumbered(supply)
    else:
        whole = _whole_devices(msgspec.structs.replace(demand, everything=True), supply)
        remark = "all matching devices of the node, shared with other pods"
    if isinstance(whole, Reason):
        return whole
    needs = (CLAIMS, SHARES) if supply.served.divisible else (CLAIMS,)
    return msgspec.structs.replace(whole, needs=needs, remarks=(remark,))


def _cpu_claims(demand: Demand, number: int, supply: Supply) -> Claims | Reason:
    """Request CPUs in the form in which most nodes publish them: a device is a group of CPUs with a capacity, or one CPU.

    If a group has too few CPUs, the CPUs are requested from as few groups as possible.
    """
    served, name = supply.served, supply.target.request
    capacity = served.spelling(supply.target.cores)
    in_groups = not served.capacities or served.capacities.get(capacity, 0) * 2 >= len(served.nodes)
    if not (served.shared and in_groups):
        single = msgspec.structs.replace(demand, cpus=None, count=number)
        return _claims_of(single, supply, {})
    if served.cpus and not served.publishes(f"{supply.driver}/socketID"):
        reason = f"most nodes publish all of their CPUs as one device of class {served.name}"
        return Reason(text=f"{reason}, for claims that choose their CPUs themselves")
    if served.cpus and number > LIMIT * served.cpus:
        return Reason(text=f"{number} CPUs do not fit one claim: most devices hold {served.cpus} at most")
    parts = split_evenly(number, served.cpus) if served.cpus else [number]
    texts = selectors(demand, supply)
    if texts is None:
        return _TOO_LONG
    requests: list[DeviceRequest] = []
    for request_name, part in zip(_request_names(name, len(parts)), parts, strict=True):
        capacity_request = CapacityRequirements(requests={capacity: Quantity.from_int(part)})
        requests.append(_request(request_name, supply, texts, capacity=capacity_request))
    remark = f"from {len(parts)} devices, because most devices hold {served.cpus} CPUs"
    return Claims(
        specs=(_spec(tuple(requests), ()),),
        needs=(CLAIMS, SHARES),
        base=name,
        remarks=(remark,) if len(parts) > 1 else (),
    )


def split_evenly(count: int, limit: int) -> list[int]:
    """Split a count into as few parts as possible, of at most `limit` each. Their sizes are nearly equal, because equal parts share a template."""
    parts = -(-count // limit)
    return [count // parts + (i < count % parts) for i in range(parts)]


def _smallest_profile(demand: Demand, supply: Supply) -> Claims | Reason:
    """Request alternatives (firstAvailable): the most frequent MIG profiles with enough memory, the smallest first."""
    wanted_memory = demand.profile_memory or 0
    large_enough = [profile for profile in supply.served.profiles if profile.memory >= wanted_memory]
    chosen_profiles = sorted((profile.memory, profile.name) for profile in large_enough[:_MAX_ALTERNATIVES])
    if not chosen_profiles:
        reason = f"class {supply.served.name} publishes no MIG profile with {wanted_memory // MIB} MiB"
        return Reason(text=reason)
    alternatives = []
    for i, (_, name) in enumerate(chosen_profiles):
        texts = selectors(msgspec.structs.replace(demand, profile=name), supply)
        if texts is None:
            return _TOO_LONG
        alternatives.append(_alternative(f"profile-{i}", supply, texts, None))
    names = _request_names(supply.target.request, demand.count)
    if len(names) > LIMIT:
        return Reason(text=f"{len(names)} MIG devices by size do not fit one claim ({LIMIT})")
    requests = tuple(DeviceRequest(name=name, first_available=tuple(alternatives)) for name in names)
    profiles = ", ".join(name for _, name in chosen_profiles)
    remark = f"a MIG device of the first available profile of {profiles}"
    if len(large_enough) > len(chosen_profiles):
        rarer = len(large_enough) - len(chosen_profiles)
        remark += f"; {rarer} rarer profiles are left out, because firstAvailable holds {_MAX_ALTERNATIVES}"
    return Claims(
        specs=(_spec(requests, ()),),
        needs=(CLAIMS, ALTERNATIVES),
        base=supply.target.request,
        remarks=(remark,),
    )


def _devices(demand: Demand, supply: Supply, names: tuple[str, ...], sizes: Sizes) -> Claims | Reason:
    """Return one claim with a request for each name: for a whole device, for a share, or with alternatives by size or bandwidth."""
    texts = selectors(demand, supply)
    if texts is None:
        return _TOO_LONG
    if demand.partial and (problem := _unshareable(demand, supply, len(names))):
        return problem
    if demand.memory_percent is not None:
        return _by_size(demand, supply, names, texts, sizes)
    if demand.bandwidth_percent is not None:
        return _by_bandwidth(demand, supply, names, texts)
    capacity = _capacity(demand, supply, demand.memory)
    requests = tuple(_request(name, supply, texts, capacity=capacity) for name in names)
    return Claims(
        specs=(_spec(requests, _distinct_devices(names, supply) if demand.partial else ()),),
        needs=(CLAIMS, SHARES) if demand.partial else (CLAIMS,),
        base=supply.target.request,
        models=demand.models,
    )


def _by_size(
    demand: Demand, supply: Supply, names: tuple[str, ...], texts: tuple[str, ...], sizes: Sizes
) -> Claims | Reason:
    """Return one claim whose requests have an alternative (firstAvailable) for each amount that the percentage can be, the smallest first.

    If there are too many amounts, those of declared products are kept first, then those of the most frequent products. If equally many nodes
    publish different sizes of a product, each alternative selects devices of one size, so that a wrong size on one node affects no other node.
    """
    percent = demand.memory_percent or 0
    percent_text = f"{float(percent):g} %"
    if not supply.target.product:
        reason = f"target {supply.target.name!r} has no `product` attribute, so the sizes of its devices are unknown"
        return Reason(text=reason, code=Code.SIZES)
    wanted_sizes = {name: size for name, size in sizes.items() if _is_wanted(name, demand, supply.target)}
    amounts = _amounts(percent, wanted_sizes)
    if not amounts and supply.served.doubt:
        reason = f"{percent_text} of a device's memory is unknown: class {supply.served.name} was read only in part"
        return Reason(text=f"{reason}, {supply.served.doubt}")
    if not amounts:
        served = f"class {supply.served.name}"
        unwanted = [name for name, all_sizes in sizes.items() if any(all_sizes) and name not in wanted_sizes]
        product = next((product.name for product in supply.served.products if product.name not in unwanted), "PRODUCT")
        cause = f"{served} publishes no sizes"
        if not supply.served.products:
            cause = f"no device of {served} publishes {supply.target.product}"
        elif unwanted:
            cause = f"the pod accepts no model of {served} with a known size ({list_first(unwanted, _NAMED)})"
        return Reason(
            text=f"{percent_text} of a device's memory is unknown: {cause}; "
            f"an administrator can declare `models: [{{product: {product}, memory: SIZE}}]` ({CONFIGURATION_PAGE})",
            code=Code.SIZES,
        )
    shown_amounts = dict(sorted(list(amounts.items())[:_MAX_ALTERNATIVES], key=lambda entry: astuple(entry[0])))
    memory = supply.served.spelling(supply.target.memory)
    alternatives: list[DeviceSubRequest] = []
    for i, (part, products) in enumerate(shown_amounts.items()):
        alternative_selectors = (*texts, product_is(supply, products))
        if part.size:
            alternative_selectors = (*alternative_selectors, capacity_is(supply, memory, part.size))
        alternatives.append(
            _alternative(f"size-{i}", supply, alternative_selectors, _capacity(demand, supply, part.amount))
        )
    constraints = _distinct_devices(names, supply)
    if len(names) > 1 and supply.target.one_product:
        constraints = (*constraints, DeviceConstraint(requests=names, match_attribute=supply.target.product))
    models = list(dict.fromkeys(name for products in shown_amounts.values() for name in products))
    remarks: list[str] = []
    for part, products in shown_amounts.items():
        size = f" of {part.size // MIB} MiB" if part.size else ""
        remarks.append(f"{percent_text} is {part.amount // MIB} MiB on {', '.join(products)}{size}")
    ambiguous_products = [
        product
        for product in supply.served.products
        if product.sizes > 1 + len(product.others) and product.name in models
    ]
    remarks += [
        f"nodes publish {product.sizes} sizes of {product.name}: the most frequent is used"
        for product in ambiguous_products
    ]
    if len(amounts) > len(shown_amounts):
        left_out = len(amounts) - len(shown_amounts)
        remarks.append(f"{left_out} sizes are left out, because firstAvailable holds {_MAX_ALTERNATIVES}")
    requests = tuple(DeviceRequest(name=name, first_available=tuple(alternatives)) for name in names)
    return Claims(
        specs=(_spec(requests, constraints),),
        needs=(CLAIMS, ALTERNATIVES, SHARES),
        base=supply.target.request,
        remarks=tuple(remarks),
        models=tuple(models),
    )


def _by_bandwidth(demand: Demand, supply: Supply, names: tuple[str, ...], texts: tuple[str, ...]) -> Claims | Reason:
    """Return one claim whose requests have an alternative (firstAvailable) for each bandwidth that shared devices publish, the smallest first."""
    percent = demand.bandwidth_percent or 0
    bandwidths = supply.served.bandwidths
    if not bandwidths:
        reason = f"most nodes publish no shared devices of class {supply.served.name} with a bandwidth"
        return Reason(text=f"{percent} % of a network device is unknown: {reason} (request a whole device)")
    name = supply.served.spelling("bandwidth")
    shown_bandwidths = sorted(bandwidths[:_MAX_ALTERNATIVES])
    alternatives, remarks = [], []
    for i, bandwidth in enumerate(shown_bandwidths):
        share = -(-bandwidth * percent // 100)
        capacity = CapacityRequirements(requests={name: Quantity.from_int(share)})
        alternative_selectors = (*texts, bandwidth_is(supply, name, bandwidth))
        alternatives.append(_alternative(f"bandwidth-{i}", supply, alternative_selectors, capacity))
        remarks.append(f"{percent} % is {share} of {bandwidth} bits a second")
    if len(bandwidths) > len(shown_bandwidths):
        left_out = len(bandwidths) - len(shown_bandwidths)
        remarks.append(f"{left_out} bandwidths are left out, because firstAvailable holds {_MAX_ALTERNATIVES}")
    requests = tuple([DeviceRequest(name=name, first_available=tuple(alternatives)) for name in names])
    return Claims(
        specs=(_spec(requests, _distinct_devices(names, supply)),),
        needs=(CLAIMS, ALTERNATIVES, SHARES),
        base=supply.target.request,
        remarks=tuple(remarks),
    )


def _amounts(percent: int | Fraction, sizes: Sizes) -> dict[MemoryShare, list[str]]:
    """Group products by the amount that the percentage of their memory is, rounded down to MiB as in HAMi.

    The first size of every product comes before further sizes of any product.
    """
    ranked = [(rank, name, size) for name, all_sizes in sizes.items() for rank, size in enumerate(all_sizes)]
    ranked.sort(key=lambda entry: entry[0] > 0)
    amounts: dict[MemoryShare, list[str]] = {}
    for _, name, size in ranked:
        amount = size // MIB * percent // 100 * MIB
        several = len(sizes[name]) > 1
        if size <= 0 or (several and not amount):
            continue
        products = amounts.setdefault(MemoryShare(amount, size if several else 0), [])
        if len(products) < _MAX_PRODUCTS:
            products.append(name)
    for products in amounts.values():
        products.sort()
    return amounts


def _is_wanted(product: str, demand: Demand, target: Target) -> bool:
    """Return whether the demand's filters allow a product. The selectors check this too; checking it here saves alternatives."""
    name = product.lower()
    for word in demand.not_models:
        if word.lower() in name:
            return False
    if not demand.models:
        return True
    vendor = target.vendor.lower()
    card = name if name.startswith(vendor) else f"{vendor}-{name}"
    return any(word.lower() in card for word in demand.models)


def _unshareable(demand: Demand, supply: Supply, count: int) -> Reason | None:
    served = supply.served
    if count > 1 and not supply.target.unique:
        reason = f"target {supply.target.name!r} has no `unique` attribute to keep several shares on different devices"
        return Reason(text=reason)
    if count > LIMIT:
        return Reason(text=f"{count} shares on different devices do not fit one claim ({LIMIT})")
    if served.devices and not served.shared:
        return Reason(text=f"class {served.name} publishes no shareable devices")
    target = supply.target
    requested_capacities = {target.memory: demand.memory, target.cores: demand.cores, "shares": demand.shares}
    for name, value in requested_capacities.items():
        if value is not None and served.capacities and served.spelling(name) not in served.capacities:
            return Reason(text=f"class {served.name} publishes no capacity {name!r}")
    return None


def _capacity(demand: Demand, supply: Supply, memory: int | None) -> CapacityRequirements | None:
    target = supply.target
    spelling = supply.served.spelling
    requests: dict[str, Quantity] = {}
    if memory is not None:
        requests[spelling(target.memory)] = amount(memory)
    for name, number in ((target.cores, demand.cores), ("shares", demand.shares)):
        if number is not None:
            requests[spelling(name)] = Quantity.from_int(number)
    return CapacityRequirements(requests=requests) if requests else None


def amount(memory: int) -> Quantity:
    """Write an amount of memory in MiB if it is a whole number of MiB, else in bytes."""
    return Quantity.parse(f"{memory // MIB}Mi" if memory % MIB == 0 else str(memory))


def _distinct_devices(names: tuple[str, ...], supply: Supply) -> tuple[DeviceConstraint, ...]:
    """Keep several shares on different devices."""
    if len(names) < 2:
        return ()
    return (DeviceConstraint(requests=names, distinct_attribute=supply.target.unique),)


def build_pairs(joint: Pairs, first: Supply, second: Supply, sizes: Sizes) -> Claims | Reason:
    """Build the claims for devices of two kinds that share the value of an attribute, group by group or all together."""
    if joint.primary.count + joint.secondary.count > POD_LIMIT:
        reason = f"{joint.primary.count} and {joint.secondary.count} devices are requested, and a pod can have {POD_LIMIT} at most"
        return Reason(text=reason)
    attribute, remark = _common_attribute(joint.attribute, first, second)
    if not attribute:
        return Reason(text=remark)
    each = joint.each
    per_claim = min(LIMIT // 2, LIMIT // (1 + each)) if each else joint.primary.count
    count = joint.primary.count
    if not per_claim or (not each and count + joint.secondary.count > LIMIT):
        return Reason(text=f"devices that must share {attribute} do not fit one claim ({LIMIT})")
    if joint.primary.partial and count > per_claim:
        return Reason(text=f"{count} shares on different devices do not fit one claim ({LIMIT})")
    if second.numbered and (joint.each or joint.secondary.count) > 1:
        return _unnumbered(second)
    parts: list[Claims] = []
    earlier_count = 0
    for part in split_evenly(count, per_claim):
        claim = _pair_claim(joint, first, second, sizes, attribute=attribute, count=part, earlier_count=earlier_count)
        if isinstance(claim, Reason):
            return claim
        parts.append(claim)
        earlier_count += part
    remarks = (*((remark,) if remark else ()), *parts[0].remarks)
    return msgspec.structs.replace(parts[0], specs=tuple([part.specs[0] for part in parts]), remarks=remarks)


def _pair_claim(
    joint: Pairs, first: Supply, second: Supply, sizes: Sizes, *, attribute: str, count: int, earlier_count: int
) -> Claims | Reason:
    """Build one claim for `count` primary devices, each with its secondary devices. Without `joint.each`, all devices share one value.

    `earlier_count` is the number of primary devices in earlier claims, from which the numbers of the devices continue.
    """
    primary_base, secondary_base = first.target.request, second.target.request
    secondary_base = f"{secondary_base}-beside" if primary_base == secondary_base else secondary_base
    names = tuple(f"{primary_base}-{i}" for i in range(count))
    primaries = _devices(joint.primary, first, names, sizes)
    if isinstance(primaries, Reason):
        return primaries
    secondary_names = tuple(f"{secondary_base}-{i}" for i in range(count)) if joint.each else (secondary_base,)
    demand = joint.secondary
    texts = selectors(demand, second)
    if texts is None:
        return _TOO_LONG
    if attribute == PCIE_ROOT:
        texts = add_root(texts, second)
    if demand.bandwidth_percent is None:
        number = joint.each or demand.count
        requests = tuple([_request(name, second, texts, count=number) for name in secondary_names])
        secondaries = Claims(
            specs=(_spec(requests, ()),),
            base=secondary_base,
            needs=(CLAIMS, SHARES) if demand.shared_access and second.served.divisible else (CLAIMS,),
            remarks=(_WHOLE_DEVICE,) if demand.shared_access and not second.served.divisible else (),
        )
    elif problem := _unshareable(demand, second, len(secondary_names)):
        return problem
    else:
        shares = _by_bandwidth(demand, second, secondary_names, texts)
        if isinstance(shares, Reason):
            return shares
        secondaries = shares
    tied_names = [names + secondary_names]
    devices, beside = primaries.specs[0].devices, secondaries.specs[0].devices
    requests = devices.requests + beside.requests
    if joint.each:
        tied_names = list(zip(names, secondary_names, strict=True))
        matched = zip(devices.requests, beside.requests, strict=True)
        requests = tuple([request for pair in matched for request in pair])
    ties = [DeviceConstraint(requests=tied_name, match_attribute=attribute) for tied_name in tied_names]
    config = (*_config(first, names, earlier_count), *_config(second, secondary_names, earlier_count))
    return Claims(
        specs=(_spec(requests, (*devices.constraints, *ties), config),),
        base=f"{first.target.request}-{second.target.request}",
        needs=tuple(dict.fromkeys((*primaries.needs, *secondaries.needs))),
        remarks=primaries.remarks + secondaries.remarks,
        models=primaries.models,
    )


def combine(parts: Sequence[Claims], supplies: Sequence[Supply], tied: TiedDemands) -> Claims | Reason:
    """Combine claims into one whose devices all share one value of an attribute."""
    attribute, remark = _common_attribute(tied.attribute, *supplies)
    if not attribute and tied.required:
        return Reason(text=remark, causes=(tied.attribute,))
    claim_devices = [spec.devices for part in parts for spec in part.specs]
    requests = tuple([request for devices in claim_devices for request in devices.requests])
    constraints = tuple([constraint for devices in claim_devices for constraint in devices.constraints])
    config = tuple([entry for devices in claim_devices for entry in devices.config])
    spec = _spec(requests, constraints)
    names = tuple([request.name for request in requests])
    duplicates = [name for name in names if names.count(name) > 1]
    if duplicates:
        return Reason(text=f"devices that must share {tied.attribute}: two requests have the name {duplicates[0]}")
    if max(len(names), count_devices(spec)) > LIMIT or any(len(part.specs) > 1 for part in parts):
        return Reason(text=f"devices that must share {tied.attribute} do not fit one claim ({LIMIT})")
    if attribute:
        constraints = (*constraints, DeviceConstraint(requests=names, match_attribute=attribute))
    lost = "" if attribute else f"{remark}, so the claim has no such constraint"
    return Claims(
        specs=(_spec(requests, constraints, config),),
        needs=tuple(dict.fromkeys([need for part in parts for need in part.needs])),
        base="-".join([part.base for part in parts]),
        remarks=tuple([text for part in parts for text in part.remarks] + ([lost] if lost else [])),
        models=tuple([model for part in parts for model in part.models]),
    )


def count_devices(spec: ResourceClaimSpec) -> int:
    """Count the devices of a claim; a request for all devices of a node counts as one."""
    return sum([(request.exactly.count if request.exactly else 0) or 1 for request in spec.devices.requests])


def _common_attribute(wanted: str, *supplies: Supply) -> tuple[str, str]:
    """Choose an attribute that the devices of all supplies have: the PCIe root, or else a NUMA node. The second text explains the choice."""
    candidates = (PCIE_ROOT, NUMA_NODE, DRANET_NUMA_NODE) if wanted == AUTO else (wanted,)
    problems: list[str] = []
    for candidate in candidates:
        without_attribute = [supply.served.name for supply in supplies if not supply.served.publishes(candidate)]
        if not without_attribute:
            reasons = "; ".join(problems)
            remark = f"{candidate} is used, because {reasons}" if problems else ""
            return candidate, remark
        devices = " and ".join(without_attribute)
        problems.append(f"most nodes do not publish {candidate} on every device of {devices}")
    return "", "; ".join(problems)


def _request_names(base: str, count: int) -> tuple[str, ...]:
    return (base,) if count == 1 else tuple(f"{base}-{i}" for i in range(count))


def _cel(texts: tuple[str, ...]) -> tuple[DeviceSelector, ...]:
    return tuple(DeviceSelector(cel=CELDeviceSelector(expression=text)) for text in texts)


def _request(
    name: str, supply: Supply, texts: tuple[str, ...], *, count: int = 1, capacity: CapacityRequirements | None = None
) -> DeviceRequest:
    exactly = ExactDeviceRequest(
        device_class_name=supply.served.name,
        selectors=_cel(texts),
        allocation_mode="ExactCount",
        count=count,
        capacity=capacity,
    )
    return DeviceRequest(name=name, exactly=exactly)


def _alternative(
    name: str, supply: Supply, texts: tuple[str, ...], capacity: CapacityRequirements | None
) -> DeviceSubRequest:
    return DeviceSubRequest(
        name=name,
        device_class_name=supply.served.name,
        selectors=_cel(texts),
        allocation_mode="ExactCount",
        count=1,
        capacity=capacity,
    )


def _spec(
    requests: tuple[DeviceRequest, ...],
    constraints: tuple[DeviceConstraint, ...],
    config: tuple[DeviceClaimConfiguration, ...] = (),
) -> ResourceClaimSpec:
    return ResourceClaimSpec(devices=DeviceClaim(requests=requests, constraints=constraints, config=config))
