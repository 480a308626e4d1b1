"""What somebody may do to a translated pod afterwards, by every door of the API: none opens what admission closed, none is closed."""

import json

import pytest

from e2e.actors.client import ApiError
from e2e.actors.gate import MODE, NOWHERE, gpu

pytestmark = pytest.mark.real
ORIGINAL = "drawbridge.dev/original"


@pytest.fixture
def translated(control_plane, fleet_node, gated):
    """A pod that runs on a claim of ours, and its path."""
    control_plane.create(gpu("p", gated))
    control_plane.wait_scheduled(gated, "p")
    return f"/api/v1/namespaces/{gated}/pods/p"


def test_a_subresource_of_a_translated_pod_works_as_it_always_did(control_plane, translated):
    """Debug containers, a new size, a status: the gate has no part in them, and the old key does not come back by any."""
    before = control_plane.get(translated)
    debugger = {"name": "debug", "image": "busybox", "targetContainerName": "main"}
    after = control_plane.patch(f"{translated}/ephemeralcontainers", {"spec": {"ephemeralContainers": [debugger]}})
    assert [one["name"] for one in after["spec"]["ephemeralContainers"]] == ["debug"]
    greedy = debugger | {"name": "greedy", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    with pytest.raises(ApiError):
        control_plane.patch(f"{translated}/ephemeralcontainers", {"spec": {"ephemeralContainers": [debugger, greedy]}})
    wider = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}, "requests": {"nvidia.com/gpu": "1"}}}
    with pytest.raises(ApiError):
        control_plane.patch(f"{translated}/resize", {"spec": {"containers": [wider]}}, kind="strategic")
    condition = {"type": "example.com/Seen", "status": "True"}
    told = control_plane.patch(f"{translated}/status", {"status": {"conditions": [condition]}}, kind="strategic")
    assert "example.com/Seen" in {one["type"] for one in told["status"]["conditions"]}
    after = control_plane.get(translated)
    for part in ("resourceClaims", "containers"):
        assert after["spec"][part] == before["spec"][part]
    assert after["metadata"]["annotations"] == before["metadata"]["annotations"]


def test_who_takes_our_fields_by_server_side_apply_or_by_patches_stops_no_update_and_no_deletion(
    control_plane, translated, gated
):
    """One update takes our annotations away, a second puts forged ones there; finalizers still go, and so does the pod."""
    stolen = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "p",
            "namespace": gated,
            "annotations": {ORIGINAL: "{}"},
            "finalizers": ["example.com/hold"],
        },
    }
    done = control_plane.kubectl(
        "apply", "--server-side", "--force-conflicts", "--field-manager=thief", "-f", "-", input=json.dumps(stolen)
    )
    assert "serverside-applied" in done.stdout
    control_plane.patch(translated, {"metadata": {"annotations": {ORIGINAL: None, "drawbridge.dev/templates": None}}})
    deep = "[" * 3_000
    for text in ('{"containers": {"main": {"cpu": "1"}}}', deep, "\u0000"):
        after = control_plane.patch(
            translated, {"metadata": {"annotations": {ORIGINAL: text}, "labels": {"seen": "yes"}}}
        )
        assert after["metadata"]["labels"]["seen"] == "yes"
        assert after["spec"]["resourceClaims"]
    control_plane.delete(translated)
    assert control_plane.get(translated)["metadata"]["deletionTimestamp"]
    gone = control_plane.patch(translated, {"metadata": {"finalizers": None}})
    assert "finalizers" not in gone["metadata"]


def test_a_pod_of_a_namespace_that_is_switched_off_between_two_steps_is_updated_and_deleted(
    control_plane, fleet_node, gated
):
    control_plane.create(gpu("p", gated, nodeSelector=NOWHERE))
    path = f"/api/v1/namespaces/{gated}/pods/p"
    for mode in ("off", "observe", "nonsense", None):
        control_plane.patch(f"/api/v1/namespaces/{gated}", {"metadata": {"labels": {MODE: mode}}})
        after = control_plane.patch(path, {"metadata": {"labels": {"mode": str(mode)}, "annotations": {ORIGINAL: "x"}}})
        assert after["metadata"]["labels"]["mode"] == str(mode)
    control_plane.delete(path)


def test_a_pod_in_a_namespace_that_ends_is_refused_by_the_server_and_in_its_words(control_plane, fleet_node, gated):
    """With `generateName`, as its controller would make it: neither our verdict nor our absence is what is told."""
    control_plane.create(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "holds", "namespace": gated, "finalizers": ["example.com/hold"]},
        }
    )
    control_plane.delete(f"/api/v1/namespaces/{gated}")
    item = gpu("p", gated)
    item["metadata"].pop("name")
    item["metadata"]["generateName"] = "p-"
    with pytest.raises(ApiError) as refused:
        control_plane.create(item)
    assert "being terminated" in str(refused.value)
    control_plane.patch(f"/api/v1/namespaces/{gated}/configmaps/holds", {"metadata": {"finalizers": None}})
