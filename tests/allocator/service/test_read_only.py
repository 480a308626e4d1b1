"""The read-only allocator beside another scheduler: its events explain why pods wait, and its metrics show the devices of pods."""

import asyncio
import contextlib

from msgspec.structs import replace

from allocator.decisions import Decider
from allocator.service import AllocatorSettings, ReadOnlyAllocator
from allocator.service.metrics import ResourceSeries, pod_devices
from allocator.service.read_only.explanations import CHECK_SECONDS, GRACE, MAX_EVENTS, REPEAT, Explanations
from analysis.loading import reading_of
from cluster.embedded import Embedded
from cluster.resources import EVENTS, RESOURCE_CLAIMS
from dra.objects import EXTENDED_CLAIM, DeviceClass, Node
from dra.wire import convert
from serving.http import Address
from tests.allocator.decisions.test_decider import allocated_claim, stock_of, typed_pod
from tests.allocator.service import sidecar
from tests.allocator.service.sidecar import until
from tests.limits import PATIENCE
from tests.objects import allocated, result
from webhook.state import Features


class Recorder:
    """Explanations with a clock that a test sets, and the sentences that were written."""

    def __init__(self):
        self.now = 100.0
        self.written = []
        self.accepts = True
        self.explanations = Explanations(Decider(), clock=lambda: self.now, keep=self.keep)

    async def keep(self, pod, sentence):
        if self.accepts:
            self.written.append((pod.metadata.name, sentence))
        return self.accepts

    async def explanations_after(self, seconds, stock):
        """Let time pass, check the waiting pods against a stock (the objects of a fleet), and return what was written."""
        self.now += seconds
        await self.explanations.explain_waiting(stock)
        explanations, self.written = self.written, []
        return explanations


def full_stock(*claims, holder="x"):
    """Return a stock with these claims and one node, whose two devices the claim `all` holds."""
    stock = stock_of(sidecar.claim("all", 2), *claims, nodes=1)
    return stock.with_object(allocated_claim("all", 2, stock, "n0", holder))


async def test_a_waiting_pod_gets_an_explanation_after_the_grace_period():
    recorder = Recorder()
    stock = full_stock(sidecar.claim("one"))
    recorder.explanations.see(None, typed_pod("p", "one"))
    assert await recorder.explanations_after(GRACE / 2, stock) == []
    [(name, sentence)] = await recorder.explanations_after(GRACE, stock)
    assert name == "p"
    assert sentence.startswith("0 of 1 nodes can serve the claims")
    assert sentence.endswith("held by claim default/all")


async def test_an_explanation_does_not_name_claims_of_other_namespaces():
    recorder = Recorder()
    stock = full_stock(sidecar.claim("one"))
    holding_claim = stock.claims["default/all"]
    foreign_claim = replace(holding_claim, metadata=replace(holding_claim.metadata, namespace="secret"))
    recorder.explanations.see(None, typed_pod("p", "one"))
    foreign_stock = stock.without("ResourceClaim", "default/all").with_object(foreign_claim)
    [(_, sentence)] = await recorder.explanations_after(GRACE, foreign_stock)
    assert sentence.endswith("held by a claim of another namespace")
    assert "secret" not in sentence


async def test_an_event_for_an_unservable_pod_says_that_waiting_is_in_vain():
    recorder = Recorder()
    recorder.explanations.see(None, typed_pod("p", "three"))
    [(_, sentence)] = await recorder.explanations_after(GRACE, stock_of(sidecar.claim("three", 3)))
    assert sentence.startswith("no node could serve it, even with all devices free: 0 of 2 nodes")
    assert sentence.endswith("2 of the 3 devices requested are left")


async def test_pods_that_do_not_wait_for_devices_get_no_explanation():
    recorder = Recorder()
    stock = stock_of(sidecar.claim("one"), sidecar.claim("all", 9))
    recorder.explanations.see(None, typed_pod("fits", "one"))
    recorder.explanations.see(None, typed_pod("plain"))
    recorder.explanations.see(None, typed_pod("bound", "all", nodeName="n0"))
    recorder.explanations.see(None, typed_pod("gated", "all", schedulingGates=[{"name": "later"}]))
    assert await recorder.explanations_after(GRACE, stock) == []
    assert len(recorder.explanations._waiting) == 1


async def test_an_extended_resource_is_explained_by_its_future_claim():
    """The explanation has a separate count of nodes whose device plugin serves the resource. If all nodes have one, nothing is written."""
    recorder = Recorder()
    class_ = sidecar.device_class("served", extendedResourceName="example.com/gpu")
    containers = [{"name": "c", "resources": {"limits": {"example.com/gpu": "1"}}}]
    stock = full_stock(sidecar.claim("one")).with_object(convert(class_, DeviceClass))
    plugin_node = convert(sidecar.node("n1", allocatable={"example.com/gpu": "1"}), Node)
    recorder.explanations.see(None, typed_pod("p", containers=containers))
    stock_with_only_the_plugin_node = stock.with_object(
        replace(plugin_node, metadata=replace(plugin_node.metadata, name="n0"))
    )
    assert await recorder.explanations_after(GRACE, stock_with_only_the_plugin_node) == []
    [(name, sentence)] = await recorder.explanations_after(CHECK_SECONDS, stock.with_object(plugin_node))
    assert (name, "held by claim default/all" in sentence) == ("p", True)
    assert "1 node(s) had a device plugin for example.com/gpu" in sentence
    assert "no node could serve it" not in sentence
    [(_, sentence)] = await recorder.explanations_after(CHECK_SECONDS, stock)
    assert "device plugin" not in sentence


async def test_an_unchanged_reason_is_repeated_before_its_event_expires():
    """A new reason is written at the next check."""
    recorder = Recorder()
    stock = full_stock(sidecar.claim("one"))
    recorder.explanations.see(None, typed_pod("p", "one"))
    [first_explanation] = await recorder.explanations_after(GRACE, stock)
    unchanged = stock.with_object(stock.nodes["n0"])
    assert await recorder.explanations_after(CHECK_SECONDS, unchanged) == []
    assert await recorder.explanations_after(REPEAT, unchanged) == [first_explanation]
    classless = stock.without("DeviceClass", "gpu")
    assert await recorder.explanations_after(CHECK_SECONDS / 2, classless) == [], "a pod was checked again too soon"
    [(_, new_sentence)] = await recorder.explanations_after(CHECK_SECONDS, classless)
    assert new_sentence.startswith("claim one: DeviceClass gpu does not exist; existing classes: none (")
    assert new_sentence.endswith(") [O107]")


async def test_an_event_with_a_failed_write_is_written_again():
    recorder = Recorder()
    stock = full_stock(sidecar.claim("one"))
    recorder.explanations.see(None, typed_pod("p", "one"))
    recorder.accepts = False
    assert await recorder.explanations_after(GRACE, stock) == []
    recorder.accepts = True
    assert len(await recorder.explanations_after(CHECK_SECONDS, stock)) == 1


async def test_explanations_for_many_pods_are_written_in_batches():
    recorder = Recorder()
    stock = full_stock(*(sidecar.claim(f"c{i}") for i in range(40)))
    for i in range(40):
        recorder.explanations.see(None, typed_pod(f"p{i}", f"c{i}"))
    rounds = [await recorder.explanations_after(GRACE, stock) for _ in range(4)]
    assert [len(batch) for batch in rounds] == [MAX_EVENTS, MAX_EVENTS, 40 - 2 * MAX_EVENTS, 0]
    assert len({name for batch in rounds for name, _ in batch}) == 40


async def test_a_pod_that_is_gone_or_placed_is_forgotten():
    recorder = Recorder()
    for name in ("gone", "placed"):
        recorder.explanations.see(None, typed_pod(name, "one"))
    recorder.explanations.see(typed_pod("gone", "one"), None)
    recorder.explanations.see(typed_pod("placed", "one"), typed_pod("placed", "one", nodeName="n0"))
    assert len(recorder.explanations._waiting) == 0


# The whole allocator process


class RecordingStore(Embedded):
    """A store that records its writes."""

    def __init__(self):
        super().__init__()
        self.written = []

    async def create(self, resource, body, namespace=None, **options):
        self.written.append(("create", resource.kind))
        return await super().create(resource, body, namespace, **options)

    async def patch(self, resource, name, patch, namespace=None, **options):
        self.written.append(("patch", resource.kind))
        return await super().patch(resource, name, patch, namespace, **options)


@contextlib.asynccontextmanager
async def running_read_only_allocator(cluster):
    """Run a read-only allocator, and yield it once it is ready."""
    settings = AllocatorSettings(identity="one", namespace="default", tick=0.01, metrics=Address("127.0.0.1", 0))
    allocator = ReadOnlyAllocator(cluster, settings, grace=0.0, again=0.0)
    stop, ready = asyncio.Event(), asyncio.Event()
    run = asyncio.create_task(allocator.run(stop, lambda _: ready.set()))
    try:
        await until(lambda: run.done() or ready.is_set())
        yield allocator
    finally:
        stop.set()
        await run


async def test_a_read_only_allocator_writes_one_event_per_waiting_pod():
    """Nothing else is written. The event's message changes with the reason."""
    cluster = RecordingStore()
    held = sidecar.claim("held", status=allocated(result("gpu-0", pool="n0"), pods=["runs"]))
    pods = [sidecar.pod("runs", "held", nodeName="n0"), sidecar.pod("p", "one")]
    cluster.load([*sidecar.fleet(1, 1), held, sidecar.claim("one"), *pods])

    async def until_event(words):
        """Wait until the only event contains these words."""
        async with asyncio.timeout(PATIENCE):
            while True:
                events = (await cluster.list(EVENTS, "default")).items
                assert [event.involved_object.name for event in events] in ([], ["p"])
                if any(words in event.message for event in events):
                    return
                await asyncio.sleep(0.005)

    async with running_read_only_allocator(cluster) as allocator:
        await until_event("default/held")
        await cluster.delete(RESOURCE_CLAIMS, "one", "default")
        await until_event("waiting for claim one to be created")
        assert {kind for _, kind in cluster.written} == {"Event"}
        registry = allocator.metrics.registry
        labels = {"namespace": "default", "pod": "runs", "claim": "held", "driver": sidecar.DRIVER, "pool": "n0", "device": "gpu-0", "share": "", "node": "n0", "uuid": ""}  # fmt: skip
        assert registry.get_sample_value("drawbridge_pod_device", labels) == 1
        assert registry.get_sample_value("drawbridge_waiting_pods") == 1


def test_whole_devices_are_counted_by_extended_resource_name():
    """Whole devices in the pod's own claims count. Shares, devices of another class and claims that the scheduler created do not."""
    class_ = sidecar.device_class(extendedResourceName="nvidia.com/gpu-x")
    whole = allocated(result("gpu-0", pool="n0"), pods=["p"])
    share = allocated(result("gpu-0", pool="n0", shareID="x", consumedCapacity={"memory": "1Gi"}), pods=["p"])
    claims = [
        sidecar.claim("one", status=whole),
        sidecar.claim("two", status=whole),
        sidecar.claim("part", status=share),
        sidecar.claim("of-scheduler", status=whole, annotations={EXTENDED_CLAIM: "true"}),
        sidecar.claim("elsewhere", status=whole, class_name="other"),
    ]
    classes = [class_, sidecar.device_class("other")]
    reading = reading_of([*classes, *claims, sidecar.pod("p", "one", "two", nodeName="n0")], Features())
    [family] = ResourceSeries(lambda: reading.stock, reading.pods.values).collect()
    labels = {"namespace": "default", "pod": "p", "node": "n0", "resource": "nvidia_com_gpu_x", "unit": "integer"}
    assert [(sample.labels, sample.value) for sample in family.samples] == [(labels, 2)]


def test_series_beyond_the_bound_are_left_out_and_counted(monkeypatch):
    monkeypatch.setattr("allocator.service.metrics.MAX_SERIES", 1)
    stock = stock_of(sidecar.claim("a"), sidecar.claim("b"))
    for name, node_name in (("a", "n0"), ("b", "n1")):
        stock = stock.with_object(allocated_claim(name, 1, stock, node_name, name))
    devices, _, left_out = pod_devices(lambda: stock, list).collect()
    assert len(devices.samples) == 1
    assert [sample.value for sample in left_out.samples] == [1]
