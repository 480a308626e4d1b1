"""`drawbridge doctor`: each ill is found with a remedy, one that is mended is found no more, and nothing newer is undone."""

from datetime import UTC, datetime, timedelta

import pytest

from cli.doctor import diagnose, put_right, survey
from cluster import resources
from cluster.errors import NotFound
from cluster.patch import Merge
from tests.allocator.service.sidecar import DRIVER, claim, device_class, gpus, loaded, node, pod
from tests.cli.running import manifest, run, run_json
from webhook.claims import taint_rule, template

FINALIZER = "resource.kubernetes.io/delete-protection"
BRIDGE = {"schedulerName": "drawbridge", "drivers": [DRIVER], "fence": True}
CONFIGURATION = {"apiVersion": "drawbridge.dev/v1alpha1", "kind": "DrawbridgeConfiguration", "bridge": BRIDGE}
FLEET = [device_class(), node("n0"), gpus("n0", 2)]


def held(name, *pods, device="gpu-0"):
    """A claim that is allocated, and reserved for pods."""
    result = {"request": "r", "driver": DRIVER, "pool": "n0", "device": device}
    consumers = [{"resource": "pods", "name": one, "uid": f"pod-{one}"} for one in pods]
    one = claim(name) | {"status": {"allocation": {"devices": {"results": [result]}}, "reservedFor": consumers}}
    one["metadata"]["finalizers"] = [FINALIZER]
    return one


def made_for(name, owner):
    one = claim(name)
    reference = {"apiVersion": "v1", "kind": "Pod", "name": owner, "uid": f"pod-{owner}", "controller": True}
    one["metadata"]["ownerReferences"] = [reference]
    return one


def protected(name):
    one = claim(name)
    one["metadata"]["finalizers"] = [FINALIZER]
    return one


def lease(age):
    renewed = (datetime.now(UTC) - timedelta(seconds=age)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": "allocator-0", "leaseDurationSeconds": 15, "renewTime": renewed}
    meta = {"name": "drawbridge-allocator", "namespace": "drawbridge-system"}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec}


def unused():
    """A template of ours, which pods used once."""
    spec = {"spec": claim("any")["spec"]}
    one = template.object_of(template.name_of(spec), spec, "default")
    one["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    return one


# What is wrong: the objects, what is found about which of them, and what would be done.
ILLS = {
    "overlap": ([held("a", "p"), held("b", "q"), pod("p", "a"), pod("q", "b")], "ResourceClaim default/a", ""),
    "left behind": ([held("a", "gone"), pod("p")], "ResourceClaim default/a", "take its allocation and its reservations away"),
    "without pod": ([made_for("a", "gone"), pod("p")], "ResourceClaim default/a", "delete it"),
    "finalizer": ([protected("a"), pod("p")], "ResourceClaim default/a", "take its finalizer off"),
    "without class": ([claim("a", class_name="none"), pod("p", "a")], "DeviceClass none", ""),
    "idle lease": ([lease(120), pod("p")], "Lease drawbridge-system/drawbridge-allocator", ""),
    "unused template": ([unused(), pod("p")], f"ResourceClaimTemplate default/{unused()['metadata']['name']}", "delete it"),
}  # fmt: skip


def well():
    """Nothing is wrong with these, now."""
    return [held("a", "p"), pod("p", "a"), claim("b"), made_for("c", "p"), protected("d"), pod("q", "d"), lease(5)]


@pytest.mark.parametrize("what", ILLS)
def test_each_ill_is_found_in_a_dump_with_a_remedy(what, tmp_path):
    objects, name, repair = ILLS[what]
    code, answer = run_json("doctor", "-f", manifest(tmp_path / "dump.yaml", *FLEET, *objects))
    assert code == 1
    [found] = answer["findings"]
    assert (found["what"], found["object"], found["repair"]) == (what, name, repair)
    assert found["remedy"]
    assert not found["repaired"]


def test_a_fence_that_the_configuration_wants_is_missed_and_found_when_it_is_there(tmp_path):
    config = manifest(tmp_path / "configuration.yaml", CONFIGURATION)
    dump = manifest(tmp_path / "dump.yaml", *FLEET, pod("p"))
    code, answer = run_json("doctor", "-f", dump, "--config", config)
    assert (code, [one["what"] for one in answer["findings"]]) == (1, ["without fence"])
    fenced = manifest(tmp_path / "fenced.yaml", *FLEET, pod("p"), taint_rule(DRIVER))
    assert run_json("doctor", "-f", fenced, "--config", config) == (0, {"findings": []})


def test_where_nothing_is_wrong_nothing_is_found(tmp_path):
    result = run("doctor", "-f", manifest(tmp_path / "dump.yaml", *FLEET, *well()))
    assert (result.exit_code, result.stdout) == (0, "0 findings\n")


def test_a_dump_without_pods_says_nothing_about_what_pods_left(tmp_path):
    result = run("doctor", "-f", manifest(tmp_path / "dump.yaml", *FLEET, held("a", "p"), protected("b")))
    assert result.exit_code == 0
    assert "no pods were read" in result.stderr


def test_claims_that_no_server_has_seen_are_told_apart_by_their_names(tmp_path):
    claims = [held("a"), held("b")]
    for one in claims:
        del one["metadata"]["uid"]
    _, answer = run_json("doctor", "-f", manifest(tmp_path / "dump.yaml", *FLEET, *claims))
    assert [one["what"] for one in answer["findings"]] == ["overlap"]


@pytest.mark.parametrize("options", [["--yes", "-f", "dump.yaml"], [], ["-o", "json"]])
def test_what_cannot_be_written_or_asked_is_refused_with_a_way_out(options):
    result = run("doctor", "--repair", *options)
    assert result.exit_code == 2
    assert ("leave --repair out" if "-f" in options else "say --yes") in result.stderr


def test_a_cluster_that_does_not_answer_is_no_finding(tmp_path):
    where = {"server": "http://127.0.0.1:1"}
    kubeconfig = manifest(
        tmp_path / "kubeconfig",
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": where}],
            "users": [{"name": "c", "user": {}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
        },
    )
    code, answer = run_json("doctor", "--kubeconfig", kubeconfig)
    assert code == 3
    assert answer["findings"] == []
    assert answer["errors"]


async def test_what_is_repaired_is_found_no_more():
    cluster = loaded(*FLEET, held("a", "gone"), protected("b"), made_for("c", "gone"), unused(), pod("p"))
    ills = await look(cluster)
    assert [ill.what for ill in ills] == ["left behind", "without pod", "finalizer", "unused template"]
    assert [await put_right(cluster, ill.repair) for ill in ills] == [""] * 4
    [left] = await look(
        cluster
    )  # what is not allocated any more has a finalizer too much; a cluster has a controller for that
    assert (left.object, await put_right(cluster, left.repair)) == ("ResourceClaim default/a", "")
    assert await look(cluster) == ()
    freed = await cluster.get(resources.RESOURCE_CLAIMS, "a", "default")
    assert (freed.status.allocation, freed.status.reserved_for) == (None, ())


async def test_what_has_changed_since_it_was_seen_is_left_alone():
    cluster = loaded(*FLEET, held("a", "gone"), made_for("c", "gone"), pod("p"))
    ills = await look(cluster)
    for name in ("a", "c"):
        await cluster.patch(resources.RESOURCE_CLAIMS, name, Merge({"metadata": {"labels": {"x": "y"}}}), "default")
    said = [await put_right(cluster, ill.repair) for ill in ills]
    assert said == ["it has changed meanwhile: look again"] * 2
    assert (await cluster.get(resources.RESOURCE_CLAIMS, "a", "default")).status.allocation is not None
    assert await cluster.get(resources.RESOURCE_CLAIMS, "c", "default")


async def test_what_has_gone_since_it_was_seen_is_said_to_be_gone():
    cluster = loaded(*FLEET, made_for("c", "gone"), pod("p"))
    [ill] = await look(cluster)
    await cluster.delete(resources.RESOURCE_CLAIMS, "c", "default")
    assert await put_right(cluster, ill.repair) == "it is gone by now"
    with pytest.raises(NotFound):
        await cluster.get(resources.RESOURCE_CLAIMS, "c", "default")


async def look(cluster):
    return diagnose(await survey(cluster, datetime.now(UTC), ()))
