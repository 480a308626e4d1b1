"""The amounts that the claims of each namespace hold. After any changes, they equal the result of a full recount."""

from hypothesis import given
from hypothesis import strategies as st

from dra.objects import ResourceClaim, node_of
from dra.quantity import Quantity
from dra.stock import ALL_CLASSES, DEVICES, PROFILE, SHARES, Stock
from dra.wire import convert
from tests.dra.samples import DRIVER, rule, slice_

CAPACITIES = ("memory", "cores", DEVICES, SHARES)  # a capacity with the name DEVICES or SHARES does not count
DEVICE_NAMES = ("d0", "d1", "d2")
REQUESTS = [
    {"name": "r", "exactly": {"deviceClassName": "big"}},
    {"name": "r", "exactly": {"deviceClassName": "small"}},
    {
        "name": "r",
        "firstAvailable": [{"name": "x", "deviceClassName": "small"}, {"name": "y", "deviceClassName": "big"}],
    },
    {"name": "other", "exactly": {"deviceClassName": "big"}},
]

sampled = st.sampled_from
consumed_amounts = st.dictionaries(sampled(CAPACITIES), st.integers(0, 9).map(str), max_size=2)
published_amounts = st.dictionaries(
    sampled(CAPACITIES), st.integers(0, 9).map(lambda number: {"value": str(number)}), max_size=3
)


@st.composite
def results(draw):
    share = draw(st.booleans())
    return {
        "request": draw(sampled(["r", "r/x", "r/y", "other", "unknown"])),
        "driver": DRIVER,
        "pool": draw(sampled("pq")),
        "device": draw(sampled([*DEVICE_NAMES, "unpublished"])),
        "adminAccess": draw(sampled([None, None, True])),
        "shareID": "one" if share else None,
        "consumedCapacity": draw(consumed_amounts) if share else None,
    }


@st.composite
def claims(draw):
    drawn_results = draw(st.lists(results(), max_size=3))
    allocation = {"devices": {"results": drawn_results}}
    if node := draw(sampled(["", "n0", "n1"])):
        only = {"key": "metadata.name", "operator": "In", "values": [node]}
        allocation["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [only]}]}
    status = {"allocation": allocation} if drawn_results else {}
    spec = {"devices": {"requests": [draw(sampled(REQUESTS))]}}
    meta = {"name": draw(sampled("cd")), "namespace": draw(sampled(["team", "default", ""]))}
    return convert({"metadata": meta, "spec": spec, "status": status}, ResourceClaim)


def partition(name, capacity):
    """Return a partition, which consumes counters."""
    counters = {"compute": {"value": "3"}, "memory": {"value": "10"}}
    consumptions = [
        {"counterSet": "one", "counters": counters},
        {"counterSet": "two", "counters": {"compute": {"value": "1"}}},
    ]
    return {
        "name": name,
        "capacity": capacity,
        "attributes": {"profile": {"string": "1g"}},
        "consumesCounters": consumptions,
    }


@st.composite
def slices(draw):
    devices = []
    for name in draw(st.sets(sampled(DEVICE_NAMES))):
        whole_device = {
            "name": name,
            "capacity": draw(published_amounts),
            "attributes": {"profile": {"string": "whole"}},
        }
        devices.append(partition(name, draw(published_amounts)) if draw(st.booleans()) else whole_device)
    where = draw(sampled([{"node": "n0"}, {"node": "n1"}, {"node": "", "allNodes": True}]))
    return slice_(draw(sampled("stu")), *devices, pool=draw(sampled("pq")), generation=draw(st.integers(1, 2)), **where)


changes = st.one_of(
    st.builds(lambda obj: lambda stock: stock.with_object(obj), claims()),
    st.builds(lambda obj: lambda stock: stock.with_object(obj), slices()),
    st.builds(lambda name: lambda stock: stock.with_object(rule(device=name)), sampled(DEVICE_NAMES)),
    st.builds(lambda some: lambda stock: stock.with_all(some), st.lists(claims() | slices(), max_size=3)),
    st.builds(
        lambda some, gone: lambda stock: stock.with_all(some, gone),
        st.lists(claims(), max_size=2),
        st.lists(claims() | slices(), max_size=2),
    ),
    st.builds(
        lambda key: lambda stock: stock.without("ResourceClaim", key), sampled(["team/c", "default/c", "default/d"])
    ),
    st.builds(lambda key: lambda stock: stock.without("ResourceSlice", key), sampled("stu")),
    st.just(lambda stock: stock.idle()),
    st.just(
        lambda stock: Stock.of(slices=stock.slices.values(), rules=stock.rules.values(), claims=stock.claims.values())
    ),
)


def recount(stock):
    """Count the amounts of each class that each namespace holds, over all claims."""
    sums = {}
    for claim in stock.claims.values():
        for result in claim.status.allocation.devices.results if claim.status.allocation else ():
            request, _, alternative = result.request.partition("/")
            for claimed in claim.spec.devices.requests:
                classes = {
                    alternative_.name: alternative_.device_class_name for alternative_ in claimed.first_available
                }
                class_name = (
                    classes.get(alternative) if alternative else claimed.exactly and claimed.exactly.device_class_name
                )
                if claimed.name == request and class_name and not result.admin_access:
                    add(sums, claim, class_name, DEVICES, Quantity.from_int(1).nano)
                    for resource, amount in amounts_of_result(result, node_of(claim.status.allocation), stock):
                        if resource not in (DEVICES, SHARES):
                            add(sums, claim, class_name, resource, amount)
                    if result.share_id:
                        add(sums, claim, class_name, SHARES, Quantity.from_int(1).nano)
    return {namespace: amounts for namespace, amounts in sums.items() if amounts}


def holders(stock):
    """Return the claims that hold devices, by namespace. Devices with admin access do not count."""
    by_namespace = {}
    for key, claim in stock.claims.items():
        allocation = claim.status.allocation
        if allocation and any(not result.admin_access for result in allocation.devices.results):
            by_namespace.setdefault(claim.metadata.namespace or "default", set()).add(key)
    return by_namespace


def amounts_of_result(result, node, stock):
    if result.share_id:
        return [(resource, amount.nano) for resource, amount in result.consumed_capacity.items()]
    published_devices = []
    for page in stock.pages_of.get((result.driver, result.pool), ()):
        where = page.slice.spec.node_name or ""
        for device in page.devices:
            if device.name == result.device and (not node or where in (node, "")):
                stranger = bool(where) if not node else not where
                published_devices.append((stranger, -page.generation, device))
    published_devices.sort(key=lambda entry: entry[:2])
    first_device = [device for _, _, device in published_devices][:1]
    parts = [(resource, amount.value.nano) for device in first_device for resource, amount in device.capacity.items()]
    if any(device.consumes_counters for device in first_device):
        parts += [
            (resource, amount * 10**9)
            for resource, amount in ((f"{PROFILE}1g", 1), ("counter.compute", 4), ("counter.memory", 10))
        ]
    return parts


def add(sums, claim, class_name, resource, amount):
    if amount:
        amounts = sums.setdefault(claim.metadata.namespace or "default", {})
        for key in ((class_name, resource), (ALL_CLASSES, resource)):
            amounts[key] = amounts.get(key, 0) + amount


@given(st.lists(changes, max_size=20))
def test_the_sums_equal_a_full_recount_after_any_changes(changes_):
    stock = Stock.of()
    for change in changes_:
        older, sums = stock, {namespace: dict(amounts) for namespace, amounts in stock.sums.items()}
        stock = change(stock)
        assert stock.sums == recount(stock)
        assert {namespace: set(keys) for namespace, keys in stock.holders.items()} == holders(stock)
        assert older.sums == sums, "the change also changed the older stock"


def test_a_recreated_claim_counts_for_its_own_class():
    """The stock gets the deletion and the creation of the claim as one change."""
    result = {"request": "r", "driver": DRIVER, "pool": "p", "device": "d0"}
    status = {"allocation": {"devices": {"results": [result]}}}
    meta = {"name": "c", "namespace": "team"}
    first, second = (
        convert({"metadata": meta, "spec": {"devices": {"requests": [request]}}, "status": status}, ResourceClaim)
        for request in REQUESTS[:2]
    )
    stock = Stock.of(claims=[first]).with_object(second)
    assert stock.sums == {"team": {("small", DEVICES): 10**9, (ALL_CLASSES, DEVICES): 10**9}}


def test_negative_published_amounts_do_not_reduce_the_sums():
    """The API server accepts negative amounts, and a node may publish them."""
    negative = {"name": "d0", "capacity": {"memory": {"value": "-80Gi"}}} | partition("d0", {})
    negative["capacity"] = {"memory": {"value": "-80Gi"}}
    negative["consumesCounters"] = [{"counterSet": "one", "counters": {"compute": {"value": "-3"}}}]
    requests = [{"name": "r", "exactly": {"deviceClassName": "big"}}]
    results_ = [{"request": "r", "driver": DRIVER, "pool": "p", "device": "d0"}]
    body = {"metadata": {"name": "c"}, "spec": {"devices": {"requests": requests}}, "status": {"allocation": {"devices": {"results": results_}}}}  # fmt: skip
    stock = Stock.of(slices=[slice_("s", negative)], claims=[convert(body, ResourceClaim)])
    assert min(stock.sums["default"].values()) > 0
