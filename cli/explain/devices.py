"""The story of a device: who has which share of it since when, what is left, and what could be in use beside it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from allocator import Stage
from allocator.reasons import matrix
from allocator.reports import DeviceReport, DeviceState, node_report
from cli.explain.claims import pods_of, since_of, texts, wrongs
from cli.explain.naming import device_names
from cli.explain.stories import DeviceStory, Holder, Neighbour, Taint
from dra.budget import Budget
from dra.errors import DraError, OutOfBudget
from dra.objects import results_of, selects
from dra.policy import DeviceId, Rules
from dra.stock import reaches
from dra.wire import builtins

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cli.explain.scene import Scene
    from dra.objects import Device, DeviceTaint, ResourceClaim
    from dra.stock import Page, Pool, PoolId, Stock

_PAIRED = 256  # devices of a pool that are compared two by two
_ACROSS = 2_000_000  # steps for those of a node's other pools
_GONE = "gone"


class _Sighting(NamedTuple):
    """A device where it is published, and how the first node that reaches it sees its pool."""

    page: Page
    device: Device
    node: str
    pool: Pool | None
    reports: dict[str, DeviceReport]


def tell_device(name: str, scene: Scene) -> DeviceStory:
    """Tell of one device, by driver/pool/device."""
    stock = scene.stock
    driver, pool, device = device_names(stock)[name]
    pool_id = driver, pool
    holders = tuple(_holders(stock, pool_id, device))
    remarks = list(_remarks_of_holders(scene, pool_id, device))
    seen = _see(stock, pool_id, device, remarks)
    if seen is None:
        return _gone(name, holders, remarks)
    report = seen.reports.get(device)
    if seen.pool is not None and seen.pool.reason:
        remarks.append(f"its pool cannot be used ({seen.pool.status}): {seen.pool.reason}")
    return DeviceStory(
        name=name,
        state=report.state if report is not None else _guess(holders),
        slice=seen.page.name,
        node=seen.page.node_name or seen.device.node_name or "",
        attributes=_attributes(seen.device),
        capacity=texts({what: one.value for what, one in seen.device.capacity.items()}),
        available=texts(report.available) if report is not None else {},
        taints=tuple(_taints(seen, pool_id, stock)),
        holders=holders,
        neighbours=(*_neighbours(seen, stock, remarks), *_neighbours_across(seen, stock, remarks)),
        rules=tuple(_rules(seen.device, driver, stock)),
        remarks=tuple(remarks),
    )


def _gone(name: str, holders: tuple[Holder, ...], remarks: list[str]) -> DeviceStory:
    return DeviceStory(
        name=name,
        state=_GONE,
        slice="",
        node="",
        attributes={},
        capacity={},
        available={},
        taints=(),
        holders=holders,
        neighbours=(),
        rules=(),
        remarks=tuple(remarks),
    )


def _see(stock: Stock, pool_id: PoolId, name: str, remarks: list[str]) -> _Sighting | None:
    """Find a device, and a node that reaches it."""
    for page in stock.newest_pages(pool_id):
        for device in page.devices:
            if device.name != name:
                continue
            try:
                node = _reaching(stock, page, device)
                pools = [one for one in stock.pools(node) if one.id == pool_id] if node else []
                reports = _reports(stock, node, pool_id) if node else {}
            except DraError as error:
                remarks.append(str(error))
                return _Sighting(page, device, "", None, {})
            if not node:
                remarks.append("no node that was read can reach it")
            return _Sighting(page, device, node, pools[0] if pools else None, reports)
    return None


def _reaching(stock: Stock, page: Page, device: Device) -> str:
    spec = page.slice.spec
    place = device if spec.per_device_node_selection else spec
    for name, node in stock.nodes.items():
        if reaches(place, node):
            return name
    return ""


def _reports(stock: Stock, node: str, pool_id: PoolId) -> dict[str, DeviceReport]:
    found: dict[str, DeviceReport] = {}
    for one in node_report(stock, node).devices:
        if (one.driver, one.pool) == pool_id:
            found[one.device] = one
    return found


def _guess(holders: tuple[Holder, ...]) -> str:
    """Say what holders alone tell of a device that no node reaches."""
    holding = [one for one in holders if not one.admin_access]
    if not holding:
        return DeviceState.FREE
    whole = any(not one.share_id for one in holding)
    return DeviceState.HELD if whole else DeviceState.SHARED


def _attributes(device: Device) -> dict[str, object]:
    plain: dict[str, object] = {}
    for name, value in device.attributes.items():
        written = builtins(value)
        plain[name] = next(iter(written.values()), None) if isinstance(written, dict) else written
    return plain


def _claims_on(stock: Stock, pool_id: PoolId, name: str) -> Iterator[tuple[ResourceClaim, Holder]]:
    """Everybody who has a device, access for admins included."""
    for claim in stock.claims.values():
        for result in results_of(claim):
            if (result.driver, result.pool) == pool_id and result.device == name:
                holder = Holder(
                    claim=claim.metadata.key,
                    pods=pods_of(claim),
                    since=since_of(claim),
                    share=texts(result.consumed_capacity),
                    share_id=result.share_id or "",
                    admin_access=bool(result.admin_access),
                )
                yield claim, holder


def _holders(stock: Stock, pool_id: PoolId, name: str) -> list[Holder]:
    found = [holder for _, holder in _claims_on(stock, pool_id, name)]
    return sorted(found, key=lambda one: (one.since, one.claim))


def _remarks_of_holders(scene: Scene, pool_id: PoolId, name: str) -> Iterator[str]:
    for claim, _ in _claims_on(scene.stock, pool_id, name):
        for wrong in wrongs(claim, scene):
            about = wrong if claim.metadata.key in wrong else f"claim {claim.metadata.key}: {wrong}"
            yield about


def _taints(seen: _Sighting, pool_id: PoolId, stock: Stock) -> Iterator[Taint]:
    """Tell the taints of the slice, then those that rules add."""
    driver, pool = pool_id
    name = seen.device.name
    devices = seen.page.slice.spec.devices
    published = next(one for one in devices if one.name == name)
    by_driver = f"driver {driver}"
    for taint in published.taints:
        yield _taint(taint, by_driver)
    for rule in stock.rules.values():
        if selects(rule, driver, pool, name):
            by_rule = f"DeviceTaintRule {rule.metadata.name}"
            yield _taint(rule.spec.taint, by_rule)


def _taint(taint: DeviceTaint, source: str) -> Taint:
    return Taint(taint=f"{taint.key}:{taint.effect}", source=source, since=taint.time_added)


def _rules(device: Device, driver: str, stock: Stock) -> Iterator[str]:
    rules = Rules(stock.compatibilities.values())
    for rule in rules.by_driver.get(driver, ()):
        if rule.carried_by(driver, device):
            yield rule.name


def _neighbours(seen: _Sighting, stock: Stock, remarks: list[str]) -> Iterator[Neighbour]:
    """Say of the devices that have hardware or rules in common with it whether they can be in use together."""
    pool = seen.pool
    if pool is None or pool.reason:
        return
    rules = Rules(stock.compatibilities.values())
    sets = {one.counter_set for one in seen.device.consumes_counters}
    ruled = bool(rules.by_driver.get(pool.id[0]))
    if not sets and not ruled:
        return
    only = [] if ruled else sorted(sets)
    if _count(pool, sets if only else set()) > _PAIRED:
        remarks.append(
            f"its pool has more than {_PAIRED} devices that could be in each other's way: see `drawbridge matrix`"
        )
        return
    found = matrix(pool, rules, only=only)
    name = seen.device.name
    mine = next(at for at, row in enumerate(found.rows) if name in row.devices)
    for at, row in enumerate(found.rows):
        others = tuple(one for one in row.devices if one != name)
        if not others:
            continue
        cell = found.rows[mine].cells[at]
        yield Neighbour(
            devices=others,
            together=cell.together,
            stage=cell.stage or "",
            text=cell.text,
            free=sum(_could_be_had(seen.reports.get(one)) for one in others),
        )


def _neighbours_across(seen: _Sighting, stock: Stock, remarks: list[str]) -> Iterator[Neighbour]:
    """Say of the devices in other pools of its node which it must not be in use with."""
    node = seen.page.slice.spec.node_of(seen.device)
    if seen.pool is None or not node:
        return
    rules = Rules(stock.compatibilities.values())
    pools = stock.pools(node)
    pool_id = seen.pool.id
    try:
        apart = rules.conflicts_across(pools, node, Budget(_ACROSS)).get(pool_id, {})
    except OutOfBudget:
        remarks.append("its node has more devices in other pools than could be compared with it")
        return
    by_pool: dict[PoolId, list[DeviceId]] = {}
    for other in sorted(apart.get(seen.device.name, ())):
        by_pool.setdefault(other[:2], []).append(other)
    for pool, others in by_pool.items():
        rule = rules.between((*pool_id, seen.device.name), others[0], pools)
        use = stock.use(pool)
        yield Neighbour(
            devices=tuple(f"{pool[1]}/{name}" for _, _, name in others),
            together=False,
            stage=Stage.COMPATIBILITY,
            text=f"{rule}: not on one node",
            free=sum(not use.holds(name) for _, _, name in others),
        )


def _count(pool: Pool, sets: set[str]) -> int:
    count = 0
    for page in pool.pages():
        for device in page.devices:
            mine = {one.counter_set for one in device.consumes_counters}
            count += not sets or bool(mine & sets)
    return count


def _could_be_had(report: DeviceReport | None) -> bool:
    return report is not None and report.state in (DeviceState.FREE, DeviceState.SHARED)
