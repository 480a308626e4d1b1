"""Doctor names each pod that can never start, with the webhook's reason, and no pod that only waits for others."""

import pytest

from analysis.doctor import waiting_pods
from tests.allocator.service.sidecar import node, pod
from tests.cli.commands.faults import (
    FLEET,
    allocated_claim,
    bound_pod,
    claim_of_pod,
    findings_in,
    unused_template,
    with_metadata,
)
from tests.cli.running import manifest, run_json
from tests.objects import obj

TRIED = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
LONG_AGO = "2026-01-01T00:00:00Z"


def old_pod(name, *claims, born=LONG_AGO, **spec):
    return with_metadata(pod(name, *claims, **spec), creationTimestamp=born)


def requesting(**fields):
    obj = claim_of_pod("a", "p")
    obj["spec"]["devices"]["requests"][0]["exactly"] |= fields
    return obj


def naming(**entry):
    obj = old_pod("p")
    obj["spec"]["resourceClaims"] = [{"name": "d", **entry}]
    return obj


def findings(tmp_path, *objects):
    return [finding for finding in findings_in(tmp_path, *objects) if finding["code"] in ("D212", "O115")]


def test_check_and_doctor_say_the_same_about_a_label_that_no_node_has(tmp_path):
    claim, waiting = requesting(), old_pod("p", "a", nodeSelector={"zone": "mars"})
    [of_doctor] = findings(tmp_path, claim, waiting)
    written = {**waiting, "metadata": {"name": "p", "namespace": "default"}, "status": {}}
    fleet = manifest(tmp_path / "fleet.yaml", *FLEET, claim)
    _, answer = run_json("check", "-f", manifest(tmp_path / "pod.yaml", written), "--inventory", fleet)
    [of_check] = [finding for finding in answer["findings"] if finding["code"] == "D212"]
    assert [of_check[field] for field in ("code", "severity", "remedy")] == [
        of_doctor[field] for field in ("code", "severity", "remedy")
    ]
    assert of_doctor["message"] in of_check["message"]


BOTH_GPUS = [allocated_claim("b", "q"), allocated_claim("c", "q", device="gpu-1"), pod("q", "b", "c", nodeName="n0")]
POSSIBLE = {
    "devices are free": [requesting(count=2), old_pod("p", "a")],
    "devices are in use": [*BOTH_GPUS, requesting(count=2), old_pod("p", "a")],
    "it is new": [requesting(count=3), old_pod("p", "a", born="2999-01-01T00:00:00Z")],
    "it is gated": [requesting(count=3), old_pod("p", "a", schedulingGates=[{"name": "x"}])],
    "it has a node": [requesting(count=3), old_pod("p", "a", nodeName="n0")],
    "it requests no devices": [old_pod("p", nodeSelector={"zone": "mars"})],
    "an autoscaler makes nodes": [
        node("n1") | {"metadata": {"name": "n1", "labels": {"cloud.google.com/gke-nodepool": "a"}}},
        requesting(),
        old_pod("p", "a", nodeSelector={"cloud.google.com/gke-nodepool": "b"}),
    ],
    "no template was read": [naming(resourceClaimTemplateName="gone")],
}


@pytest.mark.parametrize("why", POSSIBLE)
def test_a_pod_that_may_start_is_not_reported(why, tmp_path):
    assert findings(tmp_path, *POSSIBLE[why]) == []


def test_equal_pods_of_a_controller_have_one_finding(tmp_path):
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "rs", "controller": True}
    objects = [unused_template()]
    for name in ("p", "q", "r"):
        obj = naming(resourceClaimTemplateName="gone")
        obj["metadata"] |= {"name": name, "uid": name, "ownerReferences": [owner]}
        objects.append(obj)
    [finding] = findings(tmp_path, *objects)
    assert finding["message"].endswith(" (also default/q, default/r)")


def test_nodes_are_searched_for_a_bounded_number_of_different_pods(tmp_path, monkeypatch):
    """Of equal pods one is searched a node for. Pods for which nodes were not searched are named together."""
    monkeypatch.setattr(waiting_pods, "MAX_SEARCHED", 1)
    searches = []
    first_reasons = waiting_pods.first_reasons
    monkeypatch.setattr(waiting_pods, "first_reasons", lambda *args: searches.append(args) or first_reasons(*args))
    waiting = [old_pod(f"p{number}", f"a{number}", schedulerName="") for number in range(4)]
    claims = [claim_of_pod(f"a{number}", f"p{number}") for number in range(4)]
    for number in (2, 3):
        claims[number]["spec"]["devices"]["requests"][0]["exactly"]["count"] = number + 1
    named = {finding["object"]: finding["message"] for finding in findings_in(tmp_path, *claims, *waiting)}
    assert len(searches) == len(waiting) + 1
    assert "also default/p1" in named["Pod/default/p0"]
    assert "nodes were searched only for the first 1" in named["Pod/default/p2"]
    assert "also default/p3" in named["Pod/default/p2"]


def test_a_pod_that_needs_a_change_names_what_keeps_its_devices(tmp_path):
    """The claim of a deleted pod holds both devices of the node."""
    dead, waiting = claim_of_pod("dead", "gone"), claim_of_pod("a", "p")
    dead["status"] = allocated_claim("dead", "gone")["status"]
    second = dead["status"]["allocation"]["devices"]["results"][0] | {"device": "gpu-1"}
    dead["status"]["allocation"]["devices"]["results"].append(second)
    objects = [dead, waiting, old_pod("p", "a", schedulerName="", status={"conditions": [TRIED]})]
    code, answer = run_json("doctor", "-f", manifest(tmp_path / "dump.yaml", *FLEET, *objects))
    assert [finding["code"] for finding in answer["findings"]] == ["O119", "O211"]
    assert answer["findings"][0]["remedy"] == "delete claim default/dead"
    assert code == 1


@pytest.mark.parametrize("way", ["event", "container"])
def test_a_long_message_of_the_kubelet_is_quoted_in_part(way, tmp_path):
    words = "x" * 100_000
    waiting = bound_pod("p", "a")
    about = {"involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"}, "source": {"component": "kubelet"}}
    event = obj("Event", "e", namespace="default") | about | {"type": "Warning", "reason": "Failed", "message": words}
    if way == "container":
        state = {"waiting": {"reason": "ErrImagePull", "message": words}}
        waiting["status"]["containerStatuses"] = [{"name": "c", "state": state}]
    [finding] = findings_in(tmp_path, allocated_claim("a", "p"), waiting, *([event] if way == "event" else []))
    assert finding["code"] == "O117"
    assert 400 < len(finding["message"]) < 600
