"""The leader keeps the status of DeviceCompatibility rules up to date, on the embedded store."""

from allocator.service.quota.compatibilities import NUMBER_SECONDS
from cluster import resources
from cluster.patch import Merge
from tests.allocator.service.sidecar import DRIVER, fleet, gpus, loaded, running, until

RULES = resources.DEVICE_COMPATIBILITIES


def rule(name="alone", **spec):
    meta = {"name": name}
    return {
        "apiVersion": RULES.api_version,
        "kind": RULES.kind,
        "metadata": meta,
        "spec": {"driver": DRIVER, "compatibleOnlyWith": "false"} | spec,
    }


def status_of(sidecar, name="alone"):
    """Return the number of devices in a rule's status, and the codes of the findings there; None if the rule is not known."""
    stored = sidecar.service.knowledge.compatibilities.objects.get(("", name))
    return stored and (stored.status.devices, [finding.code for finding in stored.status.findings])


async def test_the_leader_updates_a_rules_status_when_the_rule_changes():
    cluster = loaded(*fleet(3, 2), rule())
    async with running(cluster) as sidecar:
        await until(lambda: status_of(sidecar) == (6, []))
        await cluster.patch(RULES, "alone", Merge({"spec": {"selector": "device.driver == 'another'"}}))
        await until(lambda: status_of(sidecar) == (0, ["D503"]))  # the rule applies to no device
        written = await cluster.get(RULES.raw, "alone")
        assert written["status"]["observedGeneration"] == written["metadata"]["generation"] > 0
        [finding] = written["status"]["findings"]
        assert finding["path"] == "/spec/selector"


async def test_unchanged_statuses_are_not_written_and_device_counts_are_delayed():
    cluster = loaded(*fleet(1, 2), rule())
    async with running(cluster) as sidecar:
        await until(lambda: status_of(sidecar) == (2, []))
        writer = sidecar.service.compatibilities
        stored_rule = await cluster.get(RULES.raw, "alone")
        await writer.keep(sidecar.service.knowledge.stock, sidecar.service.lead)
        assert await cluster.get(RULES.raw, "alone") == stored_rule, (
            "the status was written although nothing had changed"
        )
        await cluster.create(resources.RESOURCE_SLICES.raw, gpus("n9", 5))
        await until(lambda: len(sidecar.service.knowledge.stock.pages_of) == 2)
        await writer.keep(sidecar.service.knowledge.stock, sidecar.service.lead)
        assert await cluster.get(RULES.raw, "alone") == stored_rule, "a new device count was written without a delay"
        later_time = writer._clock() + NUMBER_SECONDS + 1
        writer._clock = lambda: later_time
        await until(lambda: status_of(sidecar) == (7, []))


async def test_changes_of_a_rules_status_or_labels_keep_the_stock():
    """The stock is the allocator's copy of all devices and rules. After a change of the stock, the allocator evaluates every node again."""
    cluster = loaded(*fleet(1, 2), rule())
    async with running(cluster) as sidecar:
        await until(lambda: status_of(sidecar) == (2, []))
        knowledge = sidecar.service.knowledge
        assert knowledge.stock.compatibilities["alone"].status.devices == 0  # the new status is not in the stock
        stock = knowledge.stock
        await cluster.patch(RULES, "alone", Merge({"metadata": {"labels": {"a": "b"}}}))
        await until(lambda: knowledge.compatibilities.objects["", "alone"].metadata.labels == {"a": "b"})
        assert knowledge.stock is stock


async def test_a_broken_rule_does_not_block_other_rules_statuses():
    cluster = loaded(*fleet(1, 2), rule("broken", compatibleOnlyWith="device."), rule("fine"))
    async with running(cluster) as sidecar:
        await until(lambda: status_of(sidecar, "broken") == (2, ["D110"]))  # a selector is not valid CEL
        await until(lambda: status_of(sidecar, "fine") == (2, []))
