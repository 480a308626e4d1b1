"""The webhook on a real API server: pods are translated, claimed, and placed by the stock scheduler on fake nodes."""

import copy
import json
from collections import Counter

import pytest

from e2e.actors import fleet
from e2e.actors.client import ApiError
from e2e.actors.webhook import DEVICES, claims_of, gpu, results_of, templates_of
from e2e.actors.workloads import container, limits, pod

pytestmark = pytest.mark.real
CASES = {
    "nvidia, whole": ({"nvidia.com/gpu": 2}, {}, {}, [(fleet.NVIDIA, "gpu")] * 2),
    "nvidia, MIG": ({"nvidia.com/mig-1g.5gb": 1}, {}, {}, [(fleet.NVIDIA, "mig")]),
    "HAMi, share": ({"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000, "nvidia.com/gpucores": 30}, {}, {}, [(fleet.HAMI, "gpu")]),
    "HAMi, percentage": ({"nvidia.com/gpu": 1, "nvidia.com/gpumem-percentage": 50}, {}, {}, [(fleet.HAMI, "gpu")]),
    "Koordinator, share": ({"koordinator.sh/gpu": 50}, {}, {}, [(fleet.HAMI, "gpu")]),
    "Koordinator, joint": (
        {"koordinator.sh/gpu": 200, "koordinator.sh/rdma": 200},
        {"scheduling.koordinator.sh/device-joint-allocate": '{"deviceTypes":["gpu","rdma"],"requiredScope":"SamePCIe"}'},
        {},
        [(fleet.NVIDIA, "gpu")] * 2 + [(fleet.DRANET, "nic")] * 2,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_the_stock_scheduler_places_a_translated_legacy_pod(control_plane, fleet_node, gated, case):
    amounts, annotations, spec, expected = CASES[case]
    item = pod("p", gated, container(**limits(**amounts)), **spec)
    item["metadata"]["annotations"] = annotations
    [stored] = control_plane.create(item)
    assert not set(amounts) & set(stored["spec"]["containers"][0]["resources"].get("limits", {}))
    assert (
        json.loads(stored["metadata"]["annotations"]["drawbridge.dev/original"])["containers"]["main"].keys()
        == amounts.keys()
    )
    control_plane.wait_scheduled(gated, "p")
    results = [r for claim in claims_of(control_plane, gated, "p").values() for r in results_of(claim)]
    assert Counter(r["driver"] for r in results) == Counter(driver for driver, _ in expected)
    assert len({r["device"] for r in results}) == len(results)


def test_a_joint_request_gets_gpus_with_nics_behind_their_switch(control_plane, fleet_node, gated):
    amounts, annotations, _, _ = CASES["Koordinator, joint"]
    item = pod("p", gated, container(**limits(**amounts)))
    item["metadata"]["annotations"] = annotations
    control_plane.create(item)
    control_plane.wait_scheduled(gated, "p")
    roots = {d["name"]: d["attributes"]["resource.kubernetes.io/pcieRoot"] for devices in DEVICES.values() for d in devices if "resource.kubernetes.io/pcieRoot" in d["attributes"]}  # fmt: skip
    by_root = Counter(
        roots[r["device"]]["string"] for c in claims_of(control_plane, gated, "p").values() for r in results_of(c)
    )
    assert sorted(by_root.values()) == [2, 2]


@pytest.mark.parametrize("legacy", ["nvidia", "hami", "koordinator"])
@pytest.mark.parametrize("server_side", [False, True], ids=["client-side", "server-side"])
def test_the_same_manifest_can_be_applied_again(control_plane, fleet_node, gated, server_side, legacy):
    """Also after the pod is bound, with a changed label, and if the webhook has changed the scheduler's name."""
    how = ["--server-side"] if server_side else []
    scheduler, amounts = {
        "nvidia": ("default-scheduler", {"nvidia.com/gpu": "1"}),
        "hami": ("hami-scheduler", {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000"}),
        "koordinator": ("koord-scheduler", {"koordinator.sh/gpu": "50"}),
    }[legacy]
    resources = {"limits": amounts | {"cpu": "1"}, "requests": amounts}
    manifest = pod("p", gated, container(resources=resources), schedulerName=scheduler)

    def apply():
        return control_plane.kubectl("apply", *how, "-f", "-", input=json.dumps(manifest)).stdout

    apply()
    first = control_plane.get(f"/api/v1/namespaces/{gated}/pods/p")
    assert first["spec"]["resourceClaims"]
    assert first["spec"]["schedulerName"] == "default-scheduler"
    apply()
    control_plane.wait_scheduled(gated, "p")
    apply()
    manifest["metadata"]["labels"] = {"team": "a"}
    apply()
    last = control_plane.get(f"/api/v1/namespaces/{gated}/pods/p")
    assert last["metadata"]["labels"]["team"] == "a"
    for part in ("containers", "resourceClaims", "schedulerName"):
        assert last["spec"][part] == first["spec"][part]


def test_a_changed_amount_in_the_manifest_is_refused_as_before(control_plane, fleet_node, gated):
    manifest = gpu("p", gated)
    control_plane.kubectl("apply", "-f", "-", input=json.dumps(manifest))
    manifest["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = "2"
    done = control_plane.kubectl("apply", "-f", "-", input=json.dumps(manifest), check=False)
    assert done.returncode
    assert "may not change fields" in done.stderr or "Forbidden" in done.stderr


def test_a_dry_run_prints_what_a_real_apply_stores(control_plane, fleet_node, gated):
    manifest = json.dumps(gpu("p", gated))
    dry = json.loads(control_plane.kubectl("apply", "--dry-run=server", "-o", "json", "-f", "-", input=manifest).stdout)
    assert templates_of(control_plane, gated) == {}
    done = json.loads(control_plane.kubectl("apply", "-o", "json", "-f", "-", input=manifest).stdout)
    assert without_server_fields(dry) == without_server_fields(done)
    assert dry["spec"]["resourceClaims"]


def without_server_fields(stored):
    stored = copy.deepcopy(stored)
    for field in ("uid", "creationTimestamp", "resourceVersion", "managedFields", "generation"):
        stored["metadata"].pop(field, None)
    stored.pop("status", None)
    stored["spec"]["volumes"] = [
        v for v in stored["spec"].get("volumes", ()) if not v["name"].startswith("kube-api-access")
    ]
    for container_ in stored["spec"]["containers"]:
        container_.pop("volumeMounts", None)
    return stored


def test_a_refusal_names_container_key_value_and_remedy(control_plane, fleet_node, gated):
    item = pod("p", gated, container(**limits(**{"nvidia.com/gpu": 1, "nvidia.com/gpumem": "1500m"})))
    with pytest.raises(ApiError) as caught:
        control_plane.create(item)
    for part in ("container main", "nvidia.com/gpumem", "1500m", "whole", "[R001]", "drawbridge.dev/skip=true"):
        assert part in caught.value.message
    assert caught.value.code == 422


def test_an_impossible_pod_is_refused_with_the_nearest_fit(control_plane, fleet_node, gated):
    with pytest.raises(ApiError) as caught:
        control_plane.create(pod("p", gated, container(**limits(**{"nvidia.com/gpu": 16}))))
    assert "[R023]" in caught.value.message
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c", "namespace": gated},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "no-such-class"}}]}},
    }
    with pytest.raises(ApiError, match="R021"):
        control_plane.create(claim)


ACCOUNT = {
    "apiVersion": "v1",
    "kind": "ServiceAccount",
    "metadata": {"name": "default", "namespace": "busy-elsewhere"},
}


def test_a_warning_for_busy_devices_names_no_other_namespace(control_plane, fleet_node, webhook, created, gated):
    control_plane.create(pod("first", gated, container(**limits(**{"nvidia.com/gpu": 8}))))
    control_plane.wait_scheduled(gated, "first")
    manifest = json.dumps(gpu("second", gated))

    def warning_of():
        return control_plane.kubectl("apply", "--dry-run=server", "-f", "-", input=manifest).stderr

    warning = control_plane.until("the webhook knows who holds what", warning_of, 20)
    assert f"in use: held by claim {gated}/" in warning
    created({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "busy-elsewhere"}})
    control_plane.until("it has its account", lambda: control_plane.read(ACCOUNT))
    webhook.admits("busy-elsewhere")
    manifest = json.dumps(gpu("third", "busy-elsewhere"))
    stranger = warning_of()
    assert "held by a claim of another namespace" in stranger
    assert gated not in stranger


def test_applying_a_workload_shows_its_warning(control_plane, fleet_node, gated):
    template = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [container(**limits(**{"nvidia.com/gpu": 64}))]},
    }
    spec = {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    manifest = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d", "namespace": gated},
        "spec": spec,
    }
    done = control_plane.kubectl("apply", "-f", "-", input=json.dumps(manifest))
    assert "deployment.apps/d created" in done.stdout
    assert "its pods will be refused" in done.stderr


def test_pods_of_a_deployment_share_one_template(control_plane, fleet_node, gated):
    template = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [container(**limits(**{"nvidia.com/gpu": 1}))]},
    }
    spec = {"replicas": 3, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d", "namespace": gated},
        "spec": spec,
    }
    control_plane.create(deployment)
    base = f"/api/v1/namespaces/{gated}/pods"
    placed = control_plane.until(
        "all are placed",
        lambda: (
            [p for p in control_plane.get(base)["items"] if p["spec"].get("nodeName")][2:]
            and control_plane.get(base)["items"]
        ),
        30,
    )
    names = {entry["resourceClaimTemplateName"] for p in placed for entry in p["spec"]["resourceClaims"]}
    assert len(names) == 1
    assert templates_of(control_plane, gated).keys() == names


def test_a_key_with_a_limit_range_stays_in_the_pod(control_plane, fleet_node, gated):
    bounds = {"type": "Container", "max": {"nvidia.com/gpu": "4"}}
    metadata = {"name": "gpus", "namespace": gated}
    control_plane.create({"apiVersion": "v1", "kind": "LimitRange", "metadata": metadata, "spec": {"limits": [bounds]}})
    item = gpu("p", gated)

    def left():
        """Until both know the LimitRange, the API server refuses or admits the translated pod."""
        return "resourceClaims" not in control_plane.create(item, dryRun="All")[0]["spec"]

    control_plane.until("the webhook knows the LimitRange", left, 30)
    stored = control_plane.create(item)[0]["spec"]
    assert stored["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert "resourceClaims" not in stored
