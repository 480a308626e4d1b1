"""Beside another scheduler: what pods' events say, how often, and which pod has which device as a metric. Nothing but events is written."""

import asyncio
import contextlib

from msgspec.structs import replace

from allocator.decisions import Decider
from allocator.service import ReadOnlyAllocator, Settings
from allocator.service.metrics import ResourceSeries, pod_devices
from allocator.service.read_only.explanations import AGAIN, GRACE, MOST, REPEAT, Explanations
from analysis.loading import reading_of
from cluster.embedded import Embedded
from cluster.resources import EVENTS, RESOURCE_CLAIMS
from dra.objects import DeviceClass, Node
from dra.wire import convert
from runtime.http import Address
from tests.allocator.decisions.test_decider import granted, stock_of, typed_pod
from tests.allocator.service import sidecar
from tests.allocator.service.sidecar import until
from tests.limits import PATIENCE
from webhook.state import Features


class Told:
    """A clock that is set, and what was said."""

    def __init__(self):
        self.now = 100.0
        self.said = []
        self.heard = True
        self.explanations = Explanations(Decider(), clock=lambda: self.now, keep=self.keep)

    async def keep(self, pod, sentence):
        if self.heard:
            self.said.append((pod.metadata.name, sentence))
        return self.heard

    async def after(self, seconds, stock):
        self.now += seconds
        await self.explanations.explain_waiting(stock)
        said, self.said = self.said, []
        return said


def full(*claims, holder="x"):
    """One node with two devices, both held."""
    stock = stock_of(sidecar.claim("all", 2), *claims, nodes=1)
    return stock.with_object(granted("all", 2, stock, "n0", holder))


async def test_a_pod_that_waits_is_told_why_and_what_would_help_once_its_scheduler_had_its_time():
    told = Told()
    stock = full(sidecar.claim("one"))
    told.explanations.see(None, typed_pod("p", "one"))
    assert await told.after(GRACE / 2, stock) == []
    [(name, sentence)] = await told.after(GRACE, stock)
    assert name == "p"
    assert sentence.startswith("0 of 1 nodes can serve the claims: 1 request r: ")
    assert sentence.endswith("in use: held by default/all; nearest is n0: would fit once default/all ends")


async def test_a_claim_of_another_namespace_is_not_named_to_a_pod():
    told = Told()
    stock = full(sidecar.claim("one"))
    held = stock.claims["default/all"]
    foreign = replace(held, metadata=replace(held.metadata, namespace="secret"))
    told.explanations.see(None, typed_pod("p", "one"))
    [(_, sentence)] = await told.after(GRACE, stock.without("ResourceClaim", "default/all").with_object(foreign))
    assert sentence.endswith("would fit once a claim of another namespace ends")
    assert "secret" not in sentence


async def test_nodes_without_devices_do_not_hide_what_would_help_on_another():
    told = Told()
    stock = stock_of(sidecar.claim("all", 2), sidecar.claim("one"), nodes=1)
    for name in ("a", "z"):
        stock = stock.with_object(convert(sidecar.node(name), Node))
    stock = stock.with_object(granted("all", 2, stock, "n0", "x"))
    told.explanations.see(None, typed_pod("p", "one"))
    [(_, sentence)] = await told.after(GRACE, stock)
    assert sentence.endswith("nearest is n0: would fit once default/all ends")


async def test_an_event_for_a_pod_that_no_node_could_serve_names_the_nearest_fit():
    told = Told()
    told.explanations.see(None, typed_pod("p", "three"))
    [(_, sentence)] = await told.after(GRACE, stock_of(sidecar.claim("three", 3)))
    assert "no node could serve it even if nothing were in use; nearest is n0: 2 of 3 devices would fit now" in sentence


async def test_a_pod_that_fits_or_wants_nothing_or_has_a_node_is_told_nothing():
    told = Told()
    stock = stock_of(sidecar.claim("one"), sidecar.claim("all", 9))
    told.explanations.see(None, typed_pod("fits", "one"))
    told.explanations.see(None, typed_pod("plain"))
    told.explanations.see(None, typed_pod("bound", "all", nodeName="n0"))
    told.explanations.see(None, typed_pod("gated", "all", schedulingGates=[{"name": "later"}]))
    assert await told.after(GRACE, stock) == []
    assert len(told.explanations._waiting) == 1


async def test_of_a_name_that_the_other_scheduler_serves_the_claim_that_it_would_make_is_the_reason():
    """A node whose device plugin hands it out is named as one where no device is taken; where all are so, no reason is given."""
    told = Told()
    served = sidecar.device_class("served", extendedResourceName="example.com/gpu")
    asks = [{"name": "c", "resources": {"limits": {"example.com/gpu": "1"}}}]
    stock = full(sidecar.claim("one")).with_object(convert(served, DeviceClass))
    plugin = convert(sidecar.node("n1", allocatable={"example.com/gpu": "1"}), Node)
    told.explanations.see(None, typed_pod("p", containers=asks))
    nowhere = stock.with_object(replace(plugin, metadata=replace(plugin.metadata, name="n0")))
    assert await told.after(GRACE, nowhere) == []
    [(name, sentence)] = await told.after(AGAIN, stock.with_object(plugin))
    assert (name, sentence.endswith("would fit once default/all ends")) == ("p", True)
    assert "1 a device plugin serves example.com/gpu there, so no device is allocated for it" in sentence
    assert "no node could serve it" not in sentence
    [(_, sentence)] = await told.after(AGAIN, stock)
    assert "device plugin" not in sentence


async def test_the_same_is_said_again_only_before_an_api_server_forgets_it_and_another_reason_at_once():
    told = Told()
    stock = full(sidecar.claim("one"))
    told.explanations.see(None, typed_pod("p", "one"))
    [first] = await told.after(GRACE, stock)
    same = stock.with_object(stock.nodes["n0"])
    assert await told.after(AGAIN, same) == []
    assert await told.after(REPEAT, same) == [first]
    classless = stock.without("DeviceClass", "gpu")
    assert await told.after(AGAIN / 2, classless) == [], "one pod is not looked at twice in so short a time"
    [(_, other)] = await told.after(AGAIN, classless)
    assert "waiting for DeviceClass gpu" in other


async def test_an_event_that_could_not_be_written_is_written_the_next_time():
    told = Told()
    stock = full(sidecar.claim("one"))
    told.explanations.see(None, typed_pod("p", "one"))
    told.heard = False
    assert await told.after(GRACE, stock) == []
    told.heard = True
    assert len(await told.after(AGAIN, stock)) == 1


async def test_explanations_for_many_pods_are_written_a_few_at_a_time_and_each_once():
    told = Told()
    stock = full(*(sidecar.claim(f"c{at}") for at in range(40)))
    for at in range(40):
        told.explanations.see(None, typed_pod(f"p{at}", f"c{at}"))
    rounds = [await told.after(GRACE, stock) for _ in range(4)]
    assert [len(said) for said in rounds] == [MOST, MOST, 40 - 2 * MOST, 0]
    assert len({name for said in rounds for name, _ in said}) == 40


async def test_a_pod_that_is_gone_or_placed_is_forgotten():
    told = Told()
    for name in ("gone", "placed"):
        told.explanations.see(None, typed_pod(name, "one"))
    told.explanations.see(typed_pod("gone", "one"), None)
    told.explanations.see(typed_pod("placed", "one"), typed_pod("placed", "one", nodeName="n0"))
    assert len(told.explanations._waiting) == 0


# The whole process


class Listened(Embedded):
    """A store that remembers what is written into it."""

    def __init__(self):
        super().__init__()
        self.written = []

    async def create(self, resource, body, namespace=None, **more):
        self.written.append(("create", resource.kind))
        return await super().create(resource, body, namespace, **more)

    async def patch(self, resource, name, patch, namespace=None, **more):
        self.written.append(("patch", resource.kind))
        return await super().patch(resource, name, patch, namespace, **more)


@contextlib.asynccontextmanager
async def looking(cluster):
    settings = Settings(identity="one", namespace="default", tick=0.01, metrics=Address("127.0.0.1", 0))
    allocator = ReadOnlyAllocator(cluster, settings, grace=0.0, again=0.0)
    stop, ready = asyncio.Event(), asyncio.Event()
    run = asyncio.create_task(allocator.run(stop, lambda _: ready.set()))
    try:
        await until(lambda: run.done() or ready.is_set())
        yield allocator
    finally:
        stop.set()
        await run


def allocated(name, holder):
    result = {"request": "r", "driver": sidecar.DRIVER, "pool": "n0", "device": "gpu-0"}
    consumer = {"resource": "pods", "name": holder, "uid": f"pod-{holder}"}
    return sidecar.claim(name) | {"status": {"allocation": {"devices": {"results": [result]}}, "reservedFor": [consumer]}}  # fmt: skip


async def test_beside_a_scheduler_a_pod_has_one_event_that_follows_the_reason_and_only_events_are_written():
    cluster = Listened()
    cluster.load([*sidecar.fleet(1, 1), allocated("held", "runs"), sidecar.claim("one"), sidecar.pod("runs", "held", nodeName="n0"), sidecar.pod("p", "one")])  # fmt: skip

    async def told(what):
        """Wait for the one event there is, until it says this."""
        async with asyncio.timeout(PATIENCE):
            while True:
                found = (await cluster.list(EVENTS, "default")).items
                assert [one.involved_object.name for one in found] in ([], ["p"])
                if any(what in one.message for one in found):
                    return
                await asyncio.sleep(0.005)

    async with looking(cluster) as allocator:
        await told("default/held")
        await cluster.delete(RESOURCE_CLAIMS, "one", "default")
        await told("waiting for claim one to be created")
        assert {kind for _, kind in cluster.written} == {"Event"}
        shown = allocator.metrics.registry
        labels = {"namespace": "default", "pod": "runs", "claim": "held", "driver": sidecar.DRIVER, "pool": "n0", "device": "gpu-0", "share": "", "node": "n0", "uuid": ""}  # fmt: skip
        assert shown.get_sample_value("drawbridge_pod_device", labels) == 1
        assert shown.get_sample_value("drawbridge_waiting_pods") == 1


def test_whole_devices_are_counted_by_the_resource_that_their_class_stands_for():
    """A claim of the pod counts; a share, a claim of another class and one that the scheduler made do not."""
    served = sidecar.device_class()
    served["spec"]["extendedResourceName"] = "nvidia.com/gpu-x"
    made = sidecar.claim("of-scheduler")
    made["metadata"]["annotations"] = {"resource.kubernetes.io/extended-resource-claim": "true"}
    other = sidecar.device_class() | {"metadata": {"name": "other"}}
    elsewhere = sidecar.claim("elsewhere")
    elsewhere["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] = "other"
    objects = [sidecar.claim("one"), sidecar.claim("two"), sidecar.claim("part"), made, elsewhere]
    for obj in objects:
        device = {"request": "r", "driver": sidecar.DRIVER, "pool": "n0", "device": "gpu-0"}
        share = {"shareID": "x", "consumedCapacity": {"memory": "1Gi"}} if obj["metadata"]["name"] == "part" else {}
        obj["status"] = {"allocation": {"devices": {"results": [device | share]}}, "reservedFor": [{"resource": "pods", "name": "p", "uid": "pod-p"}]}  # fmt: skip
    scene = reading_of([served, other, *objects, sidecar.pod("p", "one", "two", nodeName="n0")], Features())
    [shown] = ResourceSeries(lambda: scene.stock, scene.pods.values).collect()
    labels = {"namespace": "default", "pod": "p", "node": "n0", "resource": "nvidia_com_gpu_x", "unit": "integer"}
    assert [(sample.labels, sample.value) for sample in shown.samples] == [(labels, 2)]


def test_series_beyond_the_bound_are_left_out_and_counted(monkeypatch):
    monkeypatch.setattr("allocator.service.metrics.MOST_SERIES", 1)
    stock = stock_of(sidecar.claim("a"), sidecar.claim("b"))
    for name, where in (("a", "n0"), ("b", "n1")):
        stock = stock.with_object(granted(name, 1, stock, where, name))
    devices, _, left_out = pod_devices(lambda: stock, list).collect()
    assert len(devices.samples) == 1
    assert [sample.value for sample in left_out.samples] == [1]
