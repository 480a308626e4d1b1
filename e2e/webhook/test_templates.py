"""The controller makes the templates that pods need, deletes all others of ours, and goes on after a kill."""

import copy
import json

import pytest

from e2e.actors import fleet
from e2e.actors.client import ApiError
from e2e.actors.webhook import LEASE, NOWHERE, claims_of, gpu, results_of, template_path, templates_of
from e2e.actors.workloads import container, limits, pod, request, template, using_template

pytestmark = pytest.mark.real


def test_a_deleted_template_is_recreated_while_a_pod_needs_it(control_plane, fleet_node, gated):
    control_plane.create(gpu("p", gated, nodeSelector=NOWHERE))
    before = control_plane.until("the template is there", lambda: templates_of(control_plane, gated), 20)
    for name in before:
        control_plane.delete(template_path(gated, name))
    after = control_plane.until("it is back", lambda: templates_of(control_plane, gated), 20)
    assert {n: t["spec"] for n, t in after.items()} == {n: t["spec"] for n, t in before.items()}


def test_a_forged_template_with_our_label_is_deleted(control_plane, fleet_node, gated):
    """It is deleted at once, before a pod uses it. A policy limits which accounts may create it."""
    [planned] = control_plane.create(gpu("p", gated), dryRun="All")
    name = planned["spec"]["resourceClaims"][0]["resourceClaimTemplateName"]
    squat = template(name, gated, request("gpu", fleet.NVIDIA, 8))
    squat["metadata"]["labels"] = {"app.kubernetes.io/managed-by": "drawbridge"}
    control_plane.create(squat)
    control_plane.until("it is taken away", lambda: name not in templates_of(control_plane, gated), 60)
    # kube-controller-manager sees templates in order: when the witness has its claim, it has seen the deletion.
    witness = pod("witness", gated, nodeSelector=NOWHERE, resourceClaims=[using_template("witness")])
    control_plane.create(template("witness", gated, request("gpu", fleet.NVIDIA)), witness)
    control_plane.until("the next template is made a claim of", lambda: claims_of(control_plane, gated, "witness"), 60)

    def admitted():
        try:
            return control_plane.create(gpu("p", gated))
        except ApiError as error:
            if "does not match its name" not in error.message:
                raise
        return None

    control_plane.until("the pod is admitted", admitted, 20)
    control_plane.wait_scheduled(gated, "p")
    [claim] = claims_of(control_plane, gated, "p").values()
    assert len(results_of(claim)) == 1


def test_a_forged_annotation_creates_no_template(control_plane, fleet_node, gated):
    """The author of a pod copies and changes an annotation. The webhook removes it, so the pod names a template that is never created."""
    [planned] = control_plane.create(gpu("p", gated), dryRun="All")
    forged = copy.deepcopy(planned)
    forged["metadata"] = {
        "name": "forged",
        "namespace": gated,
        "annotations": {k: v.replace('"count":1', '"count":8') for k, v in planned["metadata"]["annotations"].items()},
    }
    forged.pop("status", None)
    [stored] = control_plane.create(forged)
    assert not [name for name in stored["metadata"].get("annotations", {}) if name.startswith("drawbridge.dev/")]
    item = pod("honest", gated, container(**limits(**{"nvidia.com/gpu": 2})), nodeSelector=NOWHERE)
    control_plane.create(item)
    made = control_plane.until("an honest pod's template is made", lambda: templates_of(control_plane, gated), 20)
    assert planned["spec"]["resourceClaims"][0]["resourceClaimTemplateName"] not in made


def test_a_forged_record_blocks_no_later_update(control_plane, fleet_node, gated):
    """A user with the right to update pods writes a record on an untranslated pod; finalizers can still be added and removed."""
    item = gpu("p", gated, nodeName="nowhere")  # bound pods are not translated
    item["metadata"]["finalizers"] = ["example.com/hold"]
    [stored] = control_plane.create(item)
    amount = stored["spec"]["containers"][0]["resources"]["limits"]
    path = f"/api/v1/namespaces/{gated}/pods/p"
    forged = json.dumps({"containers": {"main": amount}})
    control_plane.patch(path, {"metadata": {"annotations": {"drawbridge.dev/original": forged}}})
    after = control_plane.patch(path, {"metadata": {"finalizers": None, "labels": {"seen": "yes"}}})
    assert after["metadata"]["labels"]["seen"] == "yes"
    assert after["spec"]["containers"][0]["resources"]["limits"] == amount


def test_an_unused_template_is_deleted(control_plane, fleet_node, gated):
    control_plane.create(gpu("p", gated))
    control_plane.wait_scheduled(gated, "p")
    assert templates_of(control_plane, gated)
    control_plane.delete(f"/api/v1/namespaces/{gated}/pods/p", gracePeriodSeconds=0)
    control_plane.until("it is swept", lambda: not templates_of(control_plane, gated), 90)


def test_a_killed_controller_is_repaired_by_its_next_start(control_plane, fleet_node, gated, webhook):
    """The controller is killed during a burst. After its next start every pod has its template."""
    items = [gpu(f"p-{n}", gated) for n in range(6)]
    for number, item in enumerate(items):
        item["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = str(number % 3 + 1)
        item["spec"]["nodeSelector"] = NOWHERE
    control_plane.create(*items[:3])
    webhook.kill_controller()
    control_plane.create(*items[3:])
    webhook.start_controller()
    control_plane.until("all three templates are there", lambda: len(templates_of(control_plane, gated)) == 3, 60)


def test_a_second_controller_takes_over_when_the_first_is_killed(control_plane, fleet_node, gated, webhook):
    """The lease expires; it is not released."""
    first = control_plane.until("a controller leads", lambda: holder(control_plane), 20)
    second = webhook.start_controller("second-controller")
    webhook.processes["controller"].stop(hard=True)
    control_plane.create(gpu("p", gated, nodeSelector=NOWHERE))
    control_plane.until(
        "the template is made by the other one", lambda: second.check() or templates_of(control_plane, gated), 60
    )
    assert holder(control_plane) not in ("", first)
    webhook.start_controller()
    second.stop()  # with SIGTERM, so that the first one leads again at once


def holder(cluster):
    """Return the leading replica; "" if none leads."""
    try:
        return cluster.get(LEASE)["spec"].get("holderIdentity") or ""
    except ApiError as error:
        if error.code != 404:
            raise
        return ""
