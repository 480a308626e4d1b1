"""Our allocator beside the real kube-scheduler: the same devices, in the same order, with the same results."""

import pytest

import allocator
from dra.objects import defaults
from dra.objects.claim import DeviceClass, ResourceClaim
from dra.objects.device import ResourceSlice
from dra.objects.node import Node
from dra.stock.stock import Stock
from dra.wire import builtins, convert
from e2e.actors import fleet
from e2e.actors.workloads import claim, container, pod, request, using

pytestmark = pytest.mark.real
GPU, NIC, PARTS = "gpu.agree.example.com", "nic.agree.example.com", "parts.agree.example.com"
RESOURCE = "/apis/resource.k8s.io/v1"


@pytest.fixture
def node(control_plane):
    [name] = control_plane.add_fake_nodes(1, prefix="agree-")
    yield name
    control_plane.delete(f"/api/v1/nodes/{name}")


def whole_gpu(driver, index):
    """A GPU, which claims share by memory if its index is odd; two GPUs have the same root."""
    fields = {"allowMultipleAllocations": True} if index % 2 else {}
    return fleet.device(
        f"gpu-{index}",
        {"model": "big" if index < 3 else "small", "root": f"pci{index // 2}"},
        {"memory": "80Gi" if index < 3 else "40Gi"},
        **fields,
    )


def partitions():
    """Two GPUs with half and whole partitions, by counters, with groups that keep the modes apart."""
    for gpu in (0, 1):
        for name, amount, groups in (
            ("whole", 8, []),
            ("half-a", 4, ["mig"]),
            ("half-b", 4, ["mig"]),
            ("mps", 2, ["mps"]),
        ):
            yield fleet.device(
                f"p{gpu}-{name}",
                {"kind": name.split("-")[0]},
                consumesCounters=[fleet.consumes(f"set-{gpu}", groups, slices=amount)],
            )


def stock(control_plane, node):
    """The allocator's stock (nodes, slices, classes and claims), read from the API server."""

    def all_of(path, type_):
        return [convert(item, type_) for item in control_plane.get(path)["items"]]

    return Stock.of(
        nodes=[convert(control_plane.get(f"/api/v1/nodes/{node}"), Node)],
        slices=all_of(f"{RESOURCE}/resourceslices", ResourceSlice),
        classes=all_of(f"{RESOURCE}/deviceclasses", DeviceClass),
        claims=all_of(f"{RESOURCE}/resourceclaims", ResourceClaim),
    )


def without_random_parts(allocation):
    """An allocation without its time and random share IDs, which differ between allocators."""
    fields = builtins(allocation)
    fields.pop("allocationTimestamp", None)
    for result in fields["devices"].get("results", ()):
        if "shareID" in result:
            result["shareID"] = "some"
    return fields


def claims_of_all_shapes(namespace):
    """Claims of different shapes. Each claim's allocation depends on those of the claims before it."""

    def cel(text):
        return [{"cel": {"expression": text}}]

    small = cel(f"device.attributes['{GPU}'].model == 'small'")
    half = cel(f"device.attributes['{PARTS}'].kind == 'half'")
    mps = cel(f"device.attributes['{PARTS}'].kind == 'mps'")
    share = {"requests": {"memory": "30Gi"}}
    return [
        claim("one", namespace, request("gpu", "agree-gpu", selectors=small)),
        claim(
            "pair",
            namespace,
            request("gpu", "agree-gpu"),
            request("nic", "agree-nic"),
            constraints=[{"requests": ["gpu", "nic"], "matchAttribute": "agree.example.com/root"}],
        ),
        claim(
            "share",
            namespace,
            request("gpu", "agree-gpu", capacity=share),
            request("other", "agree-gpu", capacity=share),
        ),
        claim("halves", namespace, request("half", "agree-parts", 2, selectors=half)),
        claim("mps", namespace, request("mps", "agree-parts", selectors=mps)),
        claim(
            "first",
            namespace,
            {
                "name": "any",
                "firstAvailable": [
                    {"name": "many", "deviceClassName": "agree-gpu", "count": 7},
                    {"name": "few", "deviceClassName": "agree-nic", "count": 2},
                ],
            },
            config=[{"requests": ["any/few"], "opaque": {"driver": NIC, "parameters": {"a": "1"}}}],
        ),
        claim("all", namespace, request("rest", "agree-whole", allocationMode="All", count=0)),
        claim("nothing", namespace),
    ]


def test_the_scheduler_and_the_allocator_choose_the_same_devices(control_plane, namespace, created, node):
    """Eight claims of different shapes: each is allocated first by the allocator, then by the scheduler."""

    def root(index):
        return {"agree.example.com/root": {"string": f"pci{index // 2}"}}

    gpus = [whole_gpu(GPU, index) for index in range(5)]
    nics = [fleet.device(f"nic-{index}", {"speed": 100}) for index in range(4)]
    for index, device in enumerate(gpus):
        device["attributes"].update(root(index))
    for index, device in enumerate(nics):
        device["attributes"].update(root(3 - index))
    created(
        *fleet.slices(GPU, node, gpus),
        *fleet.slices(NIC, node, nics),
        *fleet.counted_slices(PARTS, node, {f"set-{gpu}": {"slices": 8} for gpu in (0, 1)}, list(partitions())),
        fleet.device_class("agree-gpu", f"device.driver == '{GPU}'"),
        fleet.device_class("agree-nic", f"device.driver == '{NIC}'"),
        fleet.device_class("agree-parts", f"device.driver == '{PARTS}'"),
        fleet.device_class("agree-whole", f"device.driver == '{PARTS}' && device.attributes['{PARTS}'].kind == 'mps'"),
    )
    allocated, refused = [], []
    for claim_ in claims_of_all_shapes(namespace):
        name = claim_["metadata"]["name"]
        stock_before = stock(control_plane, node)
        our_answer = allocator.allocate(stock_before, node, [defaults.claim(convert(claim_, ResourceClaim))])
        created(
            claim_,
            pod(
                name,
                namespace,
                container(resources={"claims": [{"name": name}]}),
                node=node,
                resourceClaims=[using(name)],
            ),
        )
        if not our_answer.feasible:
            assert "cannot allocate all claims" in control_plane.wait_unschedulable(namespace, name)["message"], name
            refused.append(name)
        else:
            control_plane.wait_scheduled(namespace, name)
            stored = control_plane.get(f"{RESOURCE}/namespaces/{namespace}/resourceclaims/{name}")
            stock_allocation = convert(stored, ResourceClaim).status.allocation
            assert without_random_parts(our_answer.allocations[0].allocation) == without_random_parts(
                stock_allocation
            ), name
            allocated.append(name)
    assert allocated == ["one", "pair", "share", "halves", "mps", "first", "nothing"]
    assert refused == ["all"]  # one of the devices of this claim is in use
