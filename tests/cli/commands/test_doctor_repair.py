"""`drawbridge doctor --repair`: a repaired fault is not reported again, and a repair undoes no change made after the finding."""

from datetime import UTC, datetime

import pytest

from analysis.doctor import diagnose, survey, write_repair
from analysis.doctor.repair import Release
from cluster import resources
from cluster.errors import Forbidden, NotFound
from cluster.kubernetes import Kubernetes
from cluster.patch import Merge
from tests.allocator.service.sidecar import loaded, pod
from tests.cli.commands.faults import (
    FLEET,
    agent_taint_rule,
    allocated_claim,
    audit_event,
    claim_of_pod,
    claim_with_finalizer,
    diagnosis_of,
    node_with_condition,
    unused_template,
)
from tests.cli.running import run, run_json


async def test_repair_removes_a_node_condition_only_if_still_stale():
    cluster = loaded(*FLEET, node_with_condition(3600, "n9"), pod("p"))
    [(_, repair)] = diagnose(await survey(cluster, datetime.now(UTC))).items()
    renewed_status = node_with_condition(0, "n9")["status"]
    await cluster.patch(resources.NODES, "n9", Merge({"status": renewed_status}), subresource="status")
    assert "changed" in await write_repair(cluster, repair)
    assert diagnose(await survey(cluster, datetime.now(UTC))) == {}
    stale_status = node_with_condition(3600, "n9")["status"]
    await cluster.patch(resources.NODES, "n9", Merge({"status": stale_status}), subresource="status")
    [(_, repair)] = diagnose(await survey(cluster, datetime.now(UTC))).items()
    assert await write_repair(cluster, repair) == ""
    repaired_node = await cluster.get(resources.NODES.raw, "n9")
    assert [condition["type"] for condition in repaired_node["status"]["conditions"]] == ["Ready"]
    assert "changed" in await write_repair(cluster, repair)


@pytest.mark.parametrize("options", [["--yes", "-f", "dump.yaml"], [], ["-o", "json"]])
def test_repair_needs_a_cluster_and_a_confirmation(options):
    result = run("doctor", "--repair", *options)
    assert result.exit_code == 2
    assert ("leave --repair out" if "-f" in options else "give --yes") in result.stderr


async def test_repairing_every_finding_leaves_no_finding():
    claims = [allocated_claim("a", "gone"), claim_with_finalizer("b"), claim_of_pod("c", "gone")]
    cluster = loaded(*FLEET, *claims, unused_template(), pod("p"))
    faults = list((await diagnosis_of(cluster)).items())
    assert [finding.code for finding, _ in faults] == ["O210", "O211", "O212", "O216"]
    assert [await write_repair(cluster, repair) for _, repair in faults] == [""] * 4
    # The deallocated claim still has its finalizer; in a cluster a controller removes it.
    [(remaining_finding, repair)] = (await diagnosis_of(cluster)).items()
    assert (remaining_finding.object, await write_repair(cluster, repair)) == ("ResourceClaim/default/a", "")
    assert await diagnosis_of(cluster) == {}
    claim = await cluster.get(resources.RESOURCE_CLAIMS, "a", "default")
    assert (claim.status.allocation, claim.status.reserved_for) == (None, ())


async def test_an_allocation_that_a_pending_pod_names_is_not_removed():
    cluster = loaded(*FLEET, allocated_claim("a", "gone"), pod("q", "a"))
    assert [repair for finding, repair in (await diagnosis_of(cluster)).items() if finding.code == "O210"] == [None]


async def test_an_object_changed_since_the_finding_is_not_repaired():
    cluster = loaded(*FLEET, allocated_claim("a", "gone"), claim_of_pod("c", "gone"), pod("p"))
    faults = list((await diagnosis_of(cluster)).items())
    for name in ("a", "c"):
        await cluster.patch(resources.RESOURCE_CLAIMS, name, Merge({"metadata": {"labels": {"x": "y"}}}), "default")
    answers = [await write_repair(cluster, repair) for _, repair in faults]
    assert answers == ["it has changed: run doctor again"] * 2
    assert (await cluster.get(resources.RESOURCE_CLAIMS, "a", "default")).status.allocation is not None
    assert await cluster.get(resources.RESOURCE_CLAIMS, "c", "default")


async def test_an_object_deleted_since_the_finding_is_reported_as_gone():
    cluster = loaded(*FLEET, claim_of_pod("c", "gone"), pod("p"))
    [(_, repair)] = (await diagnosis_of(cluster)).items()
    await cluster.delete(resources.RESOURCE_CLAIMS, "c", "default")
    assert await write_repair(cluster, repair) == "it no longer exists"
    with pytest.raises(NotFound):
        await cluster.get(resources.RESOURCE_CLAIMS, "c", "default")


def bound_pod(name, *claims):
    return pod(name, *claims, nodeName="n0")


async def deallocated_claims(*objects):
    """Return the names of the claims that the repair of the only finding would deallocate; None if the finding has no repair."""
    [(_, repair)] = (await diagnosis_of(loaded(*FLEET, *objects))).items()
    return [claim.metadata.name for claim in repair.claims] if repair is not None else None


async def test_repair_of_an_overlap_keeps_bound_pods_and_older_claims():
    """Claims overlap if they hold the same device, but only one of them may hold it."""
    a, b = allocated_claim("a", "p"), allocated_claim("b", "q")
    assert await deallocated_claims(a, b, bound_pod("p", "a"), pod("q", "b")) == ["b"]
    assert await deallocated_claims(a, b, pod("p", "a"), bound_pod("q", "b")) == ["a"]
    assert await deallocated_claims(a, b, bound_pod("p", "a"), bound_pod("q", "b")) is None
    newer, older = allocated_claim("a", "p"), allocated_claim("b", "q")
    newer["status"]["allocation"]["allocationTimestamp"] = "2026-01-01T00:00:02Z"
    older["status"]["allocation"]["allocationTimestamp"] = "2026-01-01T00:00:01Z"
    assert await deallocated_claims(newer, older, pod("p", "a"), pod("q", "b")) == ["a"]


async def test_a_repaired_overlap_is_not_reported_again():
    cluster = loaded(*FLEET, allocated_claim("a", "p"), allocated_claim("b", "q"), bound_pod("p", "a"), pod("q", "b"))
    [(_, repair)] = (await diagnosis_of(cluster)).items()
    assert await write_repair(cluster, repair) == ""
    claim = await cluster.get(resources.RESOURCE_CLAIMS, "b", "default")
    assert (claim.status.allocation, claim.status.reserved_for) == (None, ())
    assert "changed" in await write_repair(cluster, repair)
    assert [finding for finding in await diagnosis_of(cluster) if finding.code == "O209"] == []


async def test_repair_keeps_the_devices_of_a_pod_bound_meanwhile():
    """Binding the pod changes no claim, so the claim's resourceVersion is the same."""
    cluster = loaded(*FLEET, allocated_claim("a", "p"), allocated_claim("b", "q"), bound_pod("p", "a"), pod("q", "b"))
    [(_, repair)] = (await diagnosis_of(cluster)).items()
    await cluster.bind("q", "default", "n0", uid="pod-q")
    assert await write_repair(cluster, repair) == "pod q is on a node now: run doctor again"
    assert (await cluster.get(resources.RESOURCE_CLAIMS, "b", "default")).status.allocation is not None


async def test_a_stopped_repair_names_the_claims_that_it_released():
    cluster = loaded(*FLEET, allocated_claim("a", "p"), allocated_claim("b", "q"), pod("p", "a"), bound_pod("q", "b"))
    claims = [await cluster.get(resources.RESOURCE_CLAIMS, name, "default") for name in "ab"]
    problem = await write_repair(cluster, Release(tuple(claims)))
    assert problem == "pod q is on a node now: run doctor again; released before: a"
    claims_after_repair = [await cluster.get(resources.RESOURCE_CLAIMS, name, "default") for name in "ab"]
    assert [claim.status.allocation is None for claim in claims_after_repair] == [True, False]


def test_a_forbidden_repair_is_reported_and_other_repairs_continue(monkeypatch):
    cluster = loaded(*FLEET, claim_of_pod("c", "gone"), claim_of_pod("d", "gone"), pod("p"))
    delete = cluster.delete

    async def refuse(resource, name, *rest, **options):
        if name == "c":
            raise Forbidden("user x may not delete resourceclaims")
        return await delete(resource, name, *rest, **options)

    monkeypatch.setattr(cluster, "delete", refuse)
    monkeypatch.setattr(Kubernetes, "connect", lambda **_: cluster)
    code, answer = run_json("doctor", "--repair", "--yes")
    assert code == 1
    first, second = answer["findings"]
    assert (first["repaired"], second["repaired"]) == (False, True)
    assert "user x may not delete resourceclaims" in first["problem"]


async def test_agent_events_are_reported_and_stale_taint_rules_are_repaired():
    kubelet_event = audit_event("DeviceNotAllocated", "said by another component") | {"reportingComponent": "kubelet"}
    cluster = loaded(
        *FLEET, pod("p"), agent_taint_rule(3600), audit_event("DeviceGivenTwice", "two have it"), kubelet_event
    )
    faults = list((await diagnosis_of(cluster)).items())
    assert faults[0][0].message == "two have it"
    assert [finding.code for finding, _ in faults] == ["O221", "O213"]
    assert await write_repair(cluster, faults[1][1]) == ""
    assert [finding.code for finding in await diagnosis_of(cluster)] == ["O221"]
