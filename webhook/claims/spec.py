"""Claims from demands: the shapes they take, and what each relies on.

A demand becomes one ResourceClaim spec, or several where it is too big for one and nothing ties its devices together
(a claim holds 32 requests, 32 constraints and 32 results). Defaults of the API server are written out, so that what is
stored later equals what was hashed here. What a request asks of a device in CEL is in `webhook.claims.device_selectors`.
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
    SHARES,
    Demand,
    Need,
    Pairs,
)
from webhook.names import TABLES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from webhook.dialects import Supply, Target


LIMIT = 32  # requests, constraints and results of one claim
POD_LIMIT = 128  # devices of one pod
_ALTERNATIVES = 8  # of one request (firstAvailable)
_PRODUCTS = 32  # named in one alternative, so that its expression stays an expression


Sizes: TypeAlias = "Mapping[str, tuple[int, ...]]"


class Part(msgspec.Struct, frozen=True):
    """What a percentage of a device's memory comes to; of a product that has several sizes, on devices of one of them."""

    amount: int
    size: int = 0


class Claims(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Claim specs, what they rely on, and what has to be said about them."""

    specs: tuple[ResourceClaimSpec, ...]
    needs: tuple[Need, ...]
    base: str  # how its requests are called: gpu, mig, nic
    remarks: tuple[str, ...] = ()  # approximations taken
    models: tuple[str, ...] = ()


class Impossible(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """No claim says this. That is our limit, not the legacy system's: no pod is refused for it unless an administrator says so."""

    reason: str
    unresolved: bool = False  # only for want of device sizes
    tie: str = ""  # only for want of an attribute that all devices should share


_TOO_LONG = Impossible(reason="the list of models or UUIDs is longer than a CEL expression may be")


def build(demand: Demand, supply: Supply, sizes: Sizes) -> Claims | Impossible:
    """Make the claims for one demand. `sizes` are the amounts of memory that each product has, for percentages."""
    claims = _build(demand, supply, sizes)
    if isinstance(claims, Impossible) or supply.parameters is None:
        return claims
    specs: list[ResourceClaimSpec] = []
    for spec in claims.specs:
        names = tuple([request.name for request in spec.devices.requests])
        specs.append(_spec(spec.devices.requests, spec.devices.constraints, _config(supply, names)))
    return msgspec.structs.replace(claims, specs=tuple(specs))


def _config(supply: Supply, names: tuple[str, ...], first: int = 0) -> tuple[DeviceClaimConfiguration, ...]:
    """Say what the driver is told: of all requests the same, or of each its own, if it has a number in it."""
    told = supply.parameters
    if told is None:
        return ()
    if not supply.numbered:
        opaque = OpaqueDeviceConfiguration(driver=supply.driver, parameters=told)
        return (DeviceClaimConfiguration(requests=names, opaque=opaque),)
    entries: list[DeviceClaimConfiguration] = []
    for i, name in enumerate(names, first):
        own = Opaque(told.json.replace(NUMBER, str(i).encode()))
        opaque = OpaqueDeviceConfiguration(driver=supply.driver, parameters=own)
        entries.append(DeviceClaimConfiguration(requests=(name,), opaque=opaque))
    return tuple(entries)


def _unnumbered(supply: Supply) -> Impossible:
    reason = f"the `parameters` of target {supply.target.name!r} number each device, and one request asks for several"
    return Impossible(reason=reason)


def _build(demand: Demand, supply: Supply, sizes: Sizes) -> Claims | Impossible:
    if demand.count > POD_LIMIT:  # before anything is made for each of them
        return Impossible(reason=f"{demand.count} devices for one pod, {POD_LIMIT} is the most")
    if demand.same and not supply.served.publishes(demand.same):
        reason = f"most nodes do not publish {demand.same} on every device of class {supply.served.name}"
        return Impossible(reason=reason, tie=demand.same)
    if (demand.models or demand.not_models) and not supply.target.product:
        reason = f"target {supply.target.name!r} does not say which attribute names the `product`"
        return Impossible(reason=f"{reason}: models can't be told apart")
    if demand.cpus is not None:
        return _cpus(demand, demand.cpus, supply)
    if demand.profile_memory is not None:
        return _smallest_profile(demand, supply)
    if supply.numbered and (demand.everything or demand.count > LIMIT):
        return _unnumbered(supply)
    if not demand.partial and (demand.count == 1 or not supply.numbered):
        return _whole(demand, supply)
    names = _names(supply.target.request, demand.count)
    devices = _devices(demand, supply, names, sizes)
    if isinstance(devices, Impossible):
        return devices
    constraints = devices.constraints
    if demand.same and len(names) > 1:
        constraints = (*constraints, DeviceConstraint(requests=names, match_attribute=demand.same))
    return Claims(
        specs=(_spec(devices.requests, constraints),),
        needs=devices.needs,
        base=supply.target.request,
        remarks=devices.remarks,
        models=devices.models,
    )


def _whole(demand: Demand, supply: Supply) -> Claims | Impossible:
    """Block W: one request for a number of devices; block A where it is all of them."""
    texts = selectors(demand, supply)
    if texts is None:
        return _TOO_LONG
    name = supply.target.request
    if demand.count > LIMIT and demand.same:
        reason = f"{demand.count} devices that share {demand.same} do not fit one claim ({LIMIT})"
        return Impossible(reason=reason)
    constraints = (DeviceConstraint(requests=(name,), match_attribute=demand.same),) if demand.same else ()
    if demand.everything:
        every = ExactDeviceRequest(device_class_name=supply.served.name, selectors=_cel(texts), allocation_mode="All")
        requests: tuple[DeviceRequest, ...] = (DeviceRequest(name=name, exactly=every),)
        return Claims(specs=(_spec(requests, constraints),), needs=(CLAIMS,), base=name)
    parts = even(demand.count, LIMIT)
    return Claims(
        specs=tuple(_spec((_request(name, supply, texts, count=part),), constraints) for part in parts),
        needs=(CLAIMS,),
        base=name,
        models=demand.models,
    )


def _cpus(demand: Demand, number: int, supply: Supply) -> Claims | Impossible:
    """Ask for CPUs as most nodes publish them: an amount of a device that is a group of them, or a device for each.

    More CPUs than a group holds are asked for of several groups, of as few as can be.
    """
    served, name = supply.served, supply.target.request
    capacity = served.spelling(supply.target.cores)
    in_groups = not served.capacities or served.capacities.get(capacity, 0) * 2 >= len(served.nodes)
    if not (served.shared and in_groups):
        single = msgspec.structs.replace(demand, cpus=None, count=number)
        return _build(single, supply, {})
    if served.cpus and not served.publishes(f"{supply.driver}/socketID"):
        reason = f"most nodes publish all of their CPUs as one device of class {served.name}"
        return Impossible(reason=f"{reason}, for claims that say themselves which CPUs they want")
    if served.cpus and number > LIMIT * served.cpus:
        return Impossible(reason=f"{number} CPUs do not fit one claim: most devices hold {served.cpus} at most")
    parts = even(number, served.cpus) if served.cpus else [number]
    texts = selectors(demand, supply)
    if texts is None:
        return _TOO_LONG
    requests: list[DeviceRequest] = []
    for one, part in zip(_names(name, len(parts)), parts, strict=True):
        amount_of_one = CapacityRequirements(requests={capacity: Quantity.from_int(part)})
        requests.append(_request(one, supply, texts, capacity=amount_of_one))
    remark = f"of {len(parts)} devices, as most hold {served.cpus} CPUs"
    return Claims(
        specs=(_spec(tuple(requests), ()),),
        needs=(CLAIMS, SHARES),
        base=name,
        remarks=(remark,) if len(parts) > 1 else (),
    )


def even(count: int, most: int) -> list[int]:
    """Cut a number into as few parts as `most` allows, all as equal as can be: equal parts share a template."""
    parts = -(-count // most)
    return [count // parts + (i < count % parts) for i in range(parts)]


def _smallest_profile(demand: Demand, supply: Supply) -> Claims | Impossible:
    """Block F over MIG profiles: the smallest that is published and holds enough, then the next ones."""
    wanted = demand.profile_memory or 0
    holding = [one for one in supply.served.profiles if one.memory >= wanted]
    enough = sorted((one.memory, one.name) for one in holding[:_ALTERNATIVES])
    if not enough:
        reason = f"no MIG profile of class {supply.served.name} is published that holds {wanted // MIB} MiB"
        return Impossible(reason=reason)
    alternatives = []
    for i, (_, name) in enumerate(enough):
        texts = selectors(msgspec.structs.replace(demand, profile=name), supply)
        if texts is None:
            return _TOO_LONG
        alternatives.append(_alternative(f"profile-{i}", supply, texts, None))
    names = _names(supply.target.request, demand.count)
    if len(names) > LIMIT:
        return Impossible(reason=f"{len(names)} MIG devices by size do not fit one claim ({LIMIT})")
    requests = tuple(DeviceRequest(name=name, first_available=tuple(alternatives)) for name in names)
    told = ", ".join(name for _, name in enough)
    return Claims(
        specs=(_spec(requests, ()),),
        needs=(CLAIMS, ALTERNATIVES),
        base=supply.target.request,
        remarks=(f"a MIG device of the first profile to be had of {told}",),
    )


class _Devices(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Requests for single devices, and what keeps them apart."""

    requests: tuple[DeviceRequest, ...]
    constraints: tuple[DeviceConstraint, ...] = ()
    config: tuple[DeviceClaimConfiguration, ...] = ()
    needs: tuple[Need, ...] = (CLAIMS,)
    remarks: tuple[str, ...] = ()
    models: tuple[str, ...] = ()


def _devices(demand: Demand, supply: Supply, names: tuple[str, ...], sizes: Sizes) -> _Devices | Impossible:
    """One request for each name: whole, in shares (block S), or by size (block F)."""
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
    return _Devices(
        requests=requests,
        constraints=_apart(names, supply) if demand.partial else (),
        needs=(CLAIMS, SHARES) if demand.partial else (CLAIMS,),
        models=demand.models,
    )


def _by_size(
    demand: Demand, supply: Supply, names: tuple[str, ...], texts: tuple[str, ...], sizes: Sizes
) -> _Devices | Impossible:
    """Block F: for each device a list of alternatives, one for each amount that the percentage comes to.

    Sizes come in the order of how well they are supported, and that decides which are kept where there are too many; they are
    tried from the smallest amount up. Where nodes disagree about a product, and as many say the one as the other, each alternative is
    for devices of its size: what one node says of a product that one other has changes nothing there.
    """
    percent = demand.memory_percent or 0
    if not supply.target.product:
        reason = (
            f"target {supply.target.name!r} does not say which attribute names the `product`: sizes can't be told apart"
        )
        return Impossible(reason=reason, unresolved=True)
    wanted = {name: size for name, size in sizes.items() if _is_wanted(name, demand, supply.target)}
    amounts = _amounts(percent, wanted)
    if not amounts and supply.served.doubt:
        reason = (
            f"{percent} % of a device's memory can't be told: class {supply.served.name} was not looked at as a whole"
        )
        return Impossible(reason=f"{reason}, {supply.served.doubt}")
    if not amounts:
        return Impossible(
            reason=f"{percent} % of a device's memory is unknown: class {supply.served.name} publishes no sizes; "
            f"an administrator can declare `models: [{{product: NVIDIA A100-SXM4-40GB, memory: 40Gi}}]` ({TABLES})",
            unresolved=True,
        )
    kept = dict(sorted(list(amounts.items())[:_ALTERNATIVES], key=lambda entry: astuple(entry[0])))
    memory = supply.served.spelling(supply.target.memory)
    alternatives: list[DeviceSubRequest] = []
    for i, (part, products) in enumerate(kept.items()):
        chosen = (*texts, product_is(supply, products))
        if part.size:
            chosen = (*chosen, capacity_is(supply, memory, part.size))
        alternatives.append(_alternative(f"size-{i}", supply, chosen, _capacity(demand, supply, part.amount)))
    constraints = _apart(names, supply)
    if len(names) > 1 and supply.target.alike:
        constraints = (*constraints, DeviceConstraint(requests=names, match_attribute=supply.target.product))
    models = list(dict.fromkeys(name for products in kept.values() for name in products))
    told: list[str] = []
    for part, products in kept.items():
        size = f" of {part.size // MIB} MiB" if part.size else ""
        told.append(f"{percent} % is {part.amount // MIB} MiB on {', '.join(products)}{size}")
    told += [
        f"{one.name} comes in {one.sizes} sizes: what most nodes publish counts"
        for one in supply.served.products
        if one.sizes > 1 + len(one.others) and one.name in models
    ]
    if len(amounts) > len(kept):
        told.append(f"{len(amounts) - len(kept)} sizes left out: firstAvailable holds {_ALTERNATIVES}")
    return _Devices(
        requests=tuple(DeviceRequest(name=name, first_available=tuple(alternatives)) for name in names),
        constraints=constraints,
        needs=(CLAIMS, ALTERNATIVES, SHARES),
        remarks=tuple(told),
        models=tuple(models),
    )


def _by_bandwidth(
    demand: Demand, supply: Supply, names: tuple[str, ...], texts: tuple[str, ...]
) -> _Devices | Impossible:
    """Block F by bandwidth: an alternative for each that shared devices publish, as their own capacity says it."""
    percent = demand.bandwidth_percent or 0
    published = supply.served.bandwidths
    if not published:
        reason = f"most nodes publish no shared devices of class {supply.served.name} that say their bandwidth"
        return Impossible(reason=f"{percent} % of a network device can't be given: {reason} (ask for a whole one)")
    name = supply.served.spelling("bandwidth")
    kept = sorted(published[:_ALTERNATIVES])
    alternatives, told = [], []
    for i, bandwidth in enumerate(kept):
        share = -(-bandwidth * percent // 100)
        capacity = CapacityRequirements(requests={name: Quantity.from_int(share)})
        chosen = (*texts, bandwidth_is(supply, name, bandwidth))
        alternatives.append(_alternative(f"bandwidth-{i}", supply, chosen, capacity))
        told.append(f"{percent} % is {share} of {bandwidth} bits a second")
    if len(published) > len(kept):
        told.append(f"{len(published) - len(kept)} bandwidths left out: firstAvailable holds {_ALTERNATIVES}")
    return _Devices(
        requests=tuple([DeviceRequest(name=one, first_available=tuple(alternatives)) for one in names]),
        constraints=_apart(names, supply),
        needs=(CLAIMS, ALTERNATIVES, SHARES),
        remarks=tuple(told),
    )


def _amounts(percent: int, sizes: Sizes) -> dict[Part, list[str]]:
    """Products by what the percentage of their memory comes to, rounded down to MiB like HAMi does.

    What most nodes say of each product comes before what others say of any.
    """
    said = [(rank, name, size) for name, all_sizes in sizes.items() for rank, size in enumerate(all_sizes)]
    said.sort(key=lambda entry: entry[0] > 0)
    amounts: dict[Part, list[str]] = {}
    for _, name, size in said:
        amount = size // MIB * percent // 100 * MIB
        several = len(sizes[name]) > 1
        if size <= 0 or (several and not amount):
            continue
        products = amounts.setdefault(Part(amount, size if several else 0), [])
        if len(products) < _PRODUCTS:
            products.append(name)
    for products in amounts.values():
        products.sort()
    return amounts


def _is_wanted(product: str, demand: Demand, target: Target) -> bool:
    """Leave out sizes that the demand's own filters exclude; the selectors say so too, this only spares alternatives."""
    name = product.lower()
    for word in demand.not_models:
        if word.lower() in name:
            return False
    if not demand.models:
        return True
    vendor = target.vendor.lower()
    card = name if name.startswith(vendor) else f"{vendor}-{name}"
    return any(word.lower() in card for word in demand.models)


def _unshareable(demand: Demand, supply: Supply, count: int) -> Impossible | None:
    served = supply.served
    if count > 1 and not supply.target.unique:
        reason = f"target {supply.target.name!r} does not say which attribute is `unique`: several shares can't be kept apart"
        return Impossible(reason=reason)
    if count > LIMIT:
        reason = f"{count} shares must lie on different devices, which one claim of {LIMIT} can't say"
        return Impossible(reason=reason)
    if served.devices and not served.shared:
        return Impossible(reason=f"class {served.name} publishes no devices that can be shared")
    target = supply.target
    wanted = {target.memory: demand.memory, target.cores: demand.cores, "shares": demand.shares}
    for name, value in wanted.items():
        if value is not None and served.capacities and served.spelling(name) not in served.capacities:
            return Impossible(reason=f"class {served.name} publishes no capacity {name!r}")
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
    """Write an amount of memory in whole MiB where it is one, in bytes otherwise."""
    return Quantity.parse(f"{memory // MIB}Mi" if memory % MIB == 0 else str(memory))


def _apart(names: tuple[str, ...], supply: Supply) -> tuple[DeviceConstraint, ...]:
    """Keep several shares on different devices."""
    if len(names) < 2:
        return ()
    return (DeviceConstraint(requests=names, distinct_attribute=supply.target.unique),)


def pairs(joint: Pairs, first: Supply, second: Supply, sizes: Sizes) -> Claims | Impossible:
    """Blocks P and G: devices of two kinds with the same value of an attribute, pair by pair or all together."""
    if joint.primary.count + joint.secondary.count > POD_LIMIT:
        reason = f"{joint.primary.count} and {joint.secondary.count} devices for one pod, {POD_LIMIT} is the most"
        return Impossible(reason=reason)
    attribute, remark = _common(joint.attribute, first, second)
    if not attribute:
        return Impossible(reason=remark)
    each = joint.each
    per_claim = min(LIMIT // 2, LIMIT // (1 + each)) if each else joint.primary.count
    count = joint.primary.count
    if not per_claim or (not each and count + joint.secondary.count > LIMIT):
        return Impossible(reason=f"devices that must share {attribute} do not fit one claim ({LIMIT})")
    if joint.primary.partial and count > per_claim:
        return Impossible(reason=f"{count} shares on different devices do not fit one claim ({LIMIT})")
    if second.numbered and (joint.each or joint.secondary.count) > 1:
        return _unnumbered(second)
    devices: list[_Devices] = []
    made = 0
    for part in even(count, per_claim):
        one = _tie(joint, first, second, sizes, attribute=attribute, count=part, made=made)
        if isinstance(one, Impossible):
            return one
        devices.append(one)
        made += part
    return Claims(
        specs=tuple([_spec(one.requests, one.constraints, one.config) for one in devices]),
        needs=devices[0].needs,
        base=f"{first.target.request}-{second.target.request}",
        remarks=(*((remark,) if remark else ()), *devices[0].remarks),
        models=devices[0].models,
    )


def _tie(
    joint: Pairs, first: Supply, second: Supply, sizes: Sizes, *, attribute: str, count: int, made: int
) -> _Devices | Impossible:
    """One claim: `count` primaries, each with its secondaries; or, without `each`, everything under one value.

    Those that earlier claims have `made` are counted on from.
    """
    a, b = first.target.request, second.target.request
    b = f"{b}-beside" if a == b else b
    names = tuple(f"{a}-{i}" for i in range(count))
    main = _devices(joint.primary, first, names, sizes)
    if isinstance(main, Impossible):
        return main
    others = tuple(f"{b}-{i}" for i in range(count)) if joint.each else (b,)
    beside = _partners(joint, second, others, attribute)
    if isinstance(beside, Impossible):
        return beside
    tied = [names + others]
    requests = main.requests + beside.requests
    if joint.each:
        tied = list(zip(names, others, strict=True))
        pairs_ = zip(main.requests, beside.requests, strict=True)
        requests = tuple([request for pair in pairs_ for request in pair])
    ties = [DeviceConstraint(requests=one, match_attribute=attribute) for one in tied]
    return _Devices(
        requests=requests,
        constraints=(*main.constraints, *ties),
        config=(*_config(first, names, made), *_config(second, others, made)),
        needs=tuple(dict.fromkeys((*main.needs, *beside.needs))),
        remarks=main.remarks + beside.remarks,
        models=main.models,
    )


def _partners(joint: Pairs, supply: Supply, names: tuple[str, ...], attribute: str) -> _Devices | Impossible:
    """A request for the secondaries of each primary, or for all of them: whole, or a part of one."""
    demand = joint.secondary
    texts = selectors(demand, supply)
    if texts is None:
        return _TOO_LONG
    if attribute == PCIE_ROOT:
        texts = add_root(texts, supply)
    if demand.bandwidth_percent is not None:
        problem = _unshareable(demand, supply, len(names))
        return problem or _by_bandwidth(demand, supply, names, texts)
    count = joint.each or demand.count
    return _Devices(requests=tuple([_request(name, supply, texts, count=count) for name in names]))


def together(parts: Sequence[Claims], supplies: Sequence[Supply], attribute: str) -> Claims | Impossible:
    """Block T: what several claims ask for, in one, all of it with one value of an attribute."""
    common, remark = _common(attribute, *supplies)
    if not common:
        return Impossible(reason=remark, tie=attribute)
    joined = [spec.devices for part in parts for spec in part.specs]
    requests = tuple([request for one in joined for request in one.requests])
    constraints = tuple([constraint for one in joined for constraint in one.constraints])
    config = tuple([entry for one in joined for entry in one.config])
    spec = _spec(requests, constraints)
    names = tuple([request.name for request in requests])
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        problem = f"two kinds of them are called {twice[0]} in claims"
        return Impossible(reason=f"devices that must share {common}: {problem}")
    if max(len(names), results(spec)) > LIMIT or any(len(part.specs) > 1 for part in parts):
        return Impossible(reason=f"devices that must share {common}: they do not fit one claim ({LIMIT})")
    tie = DeviceConstraint(requests=names, match_attribute=common)
    return Claims(
        specs=(_spec(requests, (*constraints, tie), config),),
        needs=tuple(dict.fromkeys([need for part in parts for need in part.needs])),
        base="-".join([part.base for part in parts]),
        remarks=tuple([text for part in parts for text in part.remarks]),
        models=tuple([model for part in parts for model in part.models]),
    )


def results(spec: ResourceClaimSpec) -> int:
    """Count the devices that a claim is given; all of a node's count as one, since it is unknown how many there are."""
    devices = 0
    for request in spec.devices.requests:
        devices += (request.exactly.count if request.exactly else 0) or 1
    return devices


def _common(wanted: str, *supplies: Supply) -> tuple[str, str]:
    """Choose the attribute that all sides publish: the PCIe root, else a NUMA node; say what was taken and why."""
    candidates = (PCIE_ROOT, NUMA_NODE, DRANET_NUMA_NODE) if wanted == AUTO else (wanted,)
    lacking: list[str] = []
    for candidate in candidates:
        absent = [supply.served.name for supply in supplies if not supply.served.publishes(candidate)]
        if not absent:
            reasons = "; ".join(lacking)
            remark = f"{candidate} is taken, since {reasons}" if lacking else ""
            return candidate, remark
        devices = " and ".join(absent)
        lacking.append(f"most nodes do not publish {candidate} on every device of {devices}")
    return "", "; ".join(lacking)


def _names(base: str, count: int) -> tuple[str, ...]:
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
