"""Builds the story of a device: its holders and their shares, its free capacity, and the devices that can be in use together with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from allocator import Stage
from allocator.reasons import matrix
from allocator.reports import DeviceReport, DeviceState, device_reports
from analysis.capacity import Holder, holder_of, known_state, state_of_device, texts, unused_claims
from analysis.explain.claim_story import faults_of
from analysis.explain.stories import DeviceStory, Neighbour, TaintStory
from analysis.naming import device_names
from dra import step_limits
from dra.budget import Budget
from dra.errors import DraError, OutOfBudget
from dra.objects import results_of, selects
from dra.policy import DeviceId, Rules
from dra.stock import reaches
from dra.wire import builtins

if TYPE_CHECKING:
    from collections.abc import Iterator

    from analysis.loading import Reading
    from dra.objects import Device
    from dra.stock import Page, Pool, PoolId, Stock

_PAIRED = 256  # devices of a pool that are compared two by two
_GONE = "gone"


class _DeviceInPool(NamedTuple):
    """A device in its slice, and its pool as seen by the first node that reaches it."""

    page: Page
    device: Device
    pool: Pool | None
    reports: dict[str, DeviceReport]
    node: str = ""


def device_story(name: str, reading: Reading) -> DeviceStory:
    """Return the story of one device, by driver/pool/device."""
    stock = reading.stock
    driver, pool, device = device_names(stock)[name]
    remarks: list[str] = []
    holders: list[Holder] = []
    unused = unused_claims(reading)
    for claim in stock.claims.values():
        for result in results_of(claim):
            if (result.driver, result.pool, result.device) != (driver, pool, device):
                continue
            holders.append(holder_of(claim, result, unused))
            key = claim.metadata.key
            remarks += [fault if key in fault else f"claim {key}: {fault}" for fault in faults_of(claim, reading)]
    holders.sort(key=lambda holder: (holder.since, holder.claim))
    published = _find_in_pool(stock, (driver, pool), device, remarks)
    if published is None:
        return DeviceStory(
            name=name,
            state=_GONE,
            slice="",
            node="",
            attributes={},
            capacity={},
            available={},
            taints=(),
            holders=tuple(holders),
            neighbours=(),
            rules=(),
            remarks=tuple(remarks),
        )
    return _published_story(name, published, holders, remarks, reading)


def _published_story(
    name: str, in_pool: _DeviceInPool, holders: list[Holder], remarks: list[str], reading: Reading
) -> DeviceStory:
    stock, device = reading.stock, in_pool.device.name
    spec = in_pool.page.slice.spec
    driver, pool = spec.driver, spec.pool.name
    report = in_pool.reports.get(device)
    if report is not None and in_pool.pool is not None:
        state, why = state_of_device(report, stock.nodes[in_pool.node], in_pool.pool.status, reading)
        state = f"{state}: {why}" if why else state
    else:  # no node reaches the device, so its state follows only from its holders
        holding = [holder.share_id for holder in holders if not holder.admin_access]
        held = DeviceState.FREE if not holding else DeviceState.SHARED if all(holding) else DeviceState.HELD
        state = known_state(held, reading)
    if in_pool.pool is not None and in_pool.pool.reason:
        remarks.append(f"its pool cannot be used ({in_pool.pool.status}): {in_pool.pool.reason}")
    attributes: dict[str, object] = {}
    for key, value in in_pool.device.attributes.items():
        written = builtins(value)
        attributes[key] = next(iter(written.values()), None) if isinstance(written, dict) else written
    # The taints of the slice, then those that rules add.
    published = next(candidate for candidate in spec.devices if candidate.name == device)
    taints = [(f"driver {driver}", taint) for taint in published.taints]
    tainting = [rule for rule in stock.rules.values() if selects(rule.spec.device_selector, driver, pool, device)]
    taints += [(f"DeviceTaintRule {rule.metadata.name}", rule.spec.taint) for rule in tainting]
    rules = Rules(stock.compatibilities.values()).by_driver.get(driver, ())
    return DeviceStory(
        name=name,
        state=state,
        slice=in_pool.page.name,
        node=in_pool.page.node_name or in_pool.device.node_name or "",
        attributes=attributes,
        capacity=texts({key: capacity.value for key, capacity in in_pool.device.capacity.items()}),
        available=texts(report.available) if report is not None and reading.knows_claims else {},
        taints=tuple(
            TaintStory(taint=f"{taint.key}:{taint.effect}", source=source, since=taint.time_added)
            for source, taint in taints
        ),
        holders=tuple(holders),
        neighbours=tuple(
            neighbour if reading.knows_claims else replace(neighbour, free_devices=None)
            for neighbour in (*_neighbours(in_pool, stock, remarks), *_neighbours_across(in_pool, stock, remarks))
        ),
        rules=tuple(rule.name for rule in rules if rule.carried_by(driver, in_pool.device)),
        remarks=tuple(remarks),
    )


def _find_in_pool(stock: Stock, pool_id: PoolId, name: str, remarks: list[str]) -> _DeviceInPool | None:
    """Find a device, and a node that reaches it."""
    sightings = [
        (page, device) for page in stock.newest_pages(pool_id) for device in page.devices if device.name == name
    ]
    if not sightings:
        return None
    page, device = sightings[0]
    spec = page.slice.spec
    selected = device if spec.per_device_node_selection else spec
    try:
        node = next((name for name, node in stock.nodes.items() if reaches(selected, node)), "")
        if not node:
            remarks.append("no node that was read can reach it")
            return _DeviceInPool(page, device, None, {})
        pool = next((pool for pool in stock.pools(node) if pool.id == pool_id), None)
        reports = {
            device.device: device for device in device_reports(stock, node) if (device.driver, device.pool) == pool_id
        }
        return _DeviceInPool(page, device, pool, reports, node)
    except DraError as error:
        remarks.append(str(error))
        return _DeviceInPool(page, device, None, {})


def _neighbours(published: _DeviceInPool, stock: Stock, remarks: list[str]) -> Iterator[Neighbour]:
    """Yield the devices that share hardware or rules with this device, and whether both can be in use together."""
    pool = published.pool
    if pool is None or pool.reason:
        return
    rules = Rules(stock.compatibilities.values())
    sets = {consumes_counter.counter_set for consumes_counter in published.device.consumes_counters}
    ruled = bool(rules.by_driver.get(pool.id[0]))
    if not sets and not ruled:
        return
    devices = [device for page in pool.pages() for device in page.devices]
    if not ruled:
        devices = [device for device in devices if any(use.counter_set in sets for use in device.consumes_counters)]
    if len(devices) > _PAIRED:
        remarks.append(
            f"its pool has more than {_PAIRED} devices to compare: see the page Together of `drawbridge dashboard`"
        )
        return
    pool_matrix = matrix(pool, rules, only=[] if ruled else sorted(sets))
    name = published.device.name
    device_row = next(row for row in pool_matrix.rows if name in row.devices)
    for row, cell in zip(pool_matrix.rows, device_row.cells, strict=True):
        others = tuple(device for device in row.devices if device != name)
        if not others:
            continue
        reports = [published.reports[other] for other in others if other in published.reports]
        yield Neighbour(
            devices=others,
            usable_together=cell.together,
            stage=cell.stage or "",
            text=cell.text,
            free_devices=sum(report.state in (DeviceState.FREE, DeviceState.SHARED) for report in reports),
        )


def _neighbours_across(published: _DeviceInPool, stock: Stock, remarks: list[str]) -> Iterator[Neighbour]:
    """Yield the devices in other pools of the device's node that must not be in use together with the device."""
    node = published.page.slice.spec.node_of(published.device)
    if published.pool is None or not node:
        return
    rules = Rules(stock.compatibilities.values())
    pools = stock.pools(node)
    pool_id = published.pool.id
    try:
        conflicts = rules.conflicts_across(pools, node, Budget(step_limits.OTHER_POOLS)).get(pool_id, {})
    except OutOfBudget:
        remarks.append("its node has more devices in other pools than could be compared with it")
        return
    by_pool: dict[PoolId, list[DeviceId]] = {}
    for other in sorted(conflicts.get(published.device.name, ())):
        by_pool.setdefault(other[:2], []).append(other)
    for pool, others in by_pool.items():
        rule = rules.between((*pool_id, published.device.name), others[0], pools)
        use = stock.use(pool)
        yield Neighbour(
            devices=tuple(f"{pool[1]}/{name}" for _, _, name in others),
            usable_together=False,
            stage=Stage.COMPATIBILITY,
            text=f"{rule}: not together on one node",
            free_devices=sum(not use.holds(name) for _, _, name in others),
        )
