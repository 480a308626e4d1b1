"""The webhook on a real API server: pods are translated, claimed, and placed by the stock scheduler on fake nodes."""

import copy
import itertools
import json
import re
import signal
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from e2e.actors import fleet
from e2e.actors.client import ApiError
from e2e.actors.webhook import DEVICES, LEASE, NOWHERE, claims_of, gpu, results_of, review
from e2e.actors.workloads import container, limits, pod, request, template, using_template

pytestmark = pytest.mark.real

AWAITS = "drawbridge.dev/awaits-template"

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
def test_a_legacy_pod_is_claimed_and_placed_by_the_stock_scheduler(control_plane, fleet_node, gated, case):
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


def test_a_joint_request_gets_each_gpu_with_the_nic_behind_the_same_switch(control_plane, fleet_node, gated):
    amounts, annotations, _, _ = CASES["Koordinator, joint"]
    item = pod("p", gated, container(**limits(**amounts)))
    item["metadata"]["annotations"] = annotations
    control_plane.create(item)
    control_plane.wait_scheduled(gated, "p")
    roots = {d["name"]: d["attributes"]["resource.kubernetes.io/pcieRoot"] for found in DEVICES.values() for d in found if "resource.kubernetes.io/pcieRoot" in d["attributes"]}  # fmt: skip
    by_root = Counter(
        roots[r["device"]]["string"] for c in claims_of(control_plane, gated, "p").values() for r in results_of(c)
    )
    assert sorted(by_root.values()) == [2, 2]


@pytest.mark.parametrize("legacy", ["nvidia", "hami", "koordinator"])
@pytest.mark.parametrize("server_side", [False, True], ids=["client-side", "server-side"])
def test_the_same_manifest_can_be_applied_again(control_plane, fleet_node, gated, server_side, legacy):
    """Also after a scheduler has bound the pod, with another label in the manifest, and where we changed the scheduler's name."""
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


def test_another_number_in_the_manifest_is_refused_as_it_always_was(control_plane, fleet_node, gated):
    manifest = gpu("p", gated)
    control_plane.kubectl("apply", "-f", "-", input=json.dumps(manifest))
    manifest["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = "2"
    done = control_plane.kubectl("apply", "-f", "-", input=json.dumps(manifest), check=False)
    assert done.returncode
    assert "may not change fields" in done.stderr or "Forbidden" in done.stderr


def test_a_dry_run_prints_what_a_real_apply_stores(control_plane, fleet_node, gated):
    manifest = json.dumps(gpu("p", gated))
    said = json.loads(
        control_plane.kubectl("apply", "--dry-run=server", "-o", "json", "-f", "-", input=manifest).stdout
    )
    assert control_plane.get(f"/apis/resource.k8s.io/v1/namespaces/{gated}/resourceclaimtemplates")["items"] == []
    done = json.loads(control_plane.kubectl("apply", "-o", "json", "-f", "-", input=manifest).stdout)
    assert without_server_fields(said) == without_server_fields(done)
    assert said["spec"]["resourceClaims"]


def without_server_fields(stored):
    stored = copy.deepcopy(stored)
    for field in ("uid", "creationTimestamp", "resourceVersion", "managedFields", "generation"):
        stored["metadata"].pop(field, None)
    stored.pop("status", None)
    stored["spec"]["volumes"] = [
        v for v in stored["spec"].get("volumes", ()) if not v["name"].startswith("kube-api-access")
    ]
    for one in stored["spec"]["containers"]:
        one.pop("volumeMounts", None)
    return stored


def test_a_refusal_says_container_key_value_and_remedy(control_plane, fleet_node, gated):
    item = pod("p", gated, container(**limits(**{"nvidia.com/gpu": 1, "nvidia.com/gpumem": "1500m"})))
    with pytest.raises(ApiError) as caught:
        control_plane.create(item)
    for part in ("container main", "nvidia.com/gpumem", "1500m", "whole", "[R001]", "drawbridge.dev/skip=true"):
        assert part in caught.value.message
    assert caught.value.code == 422


def test_an_impossible_pod_is_refused_with_the_nearest_fit(control_plane, fleet_node, gated):
    with pytest.raises(ApiError) as caught:
        control_plane.create(pod("p", gated, container(**limits(**{"nvidia.com/gpu": 16}))))
    assert "even if idle" in caught.value.message
    assert "the largest node has 8" in caught.value.message
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c", "namespace": gated},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "no-such-class"}}]}},
    }
    with pytest.raises(ApiError, match="there is no DeviceClass no-such-class"):
        control_plane.create(claim)


ACCOUNT = {
    "apiVersion": "v1",
    "kind": "ServiceAccount",
    "metadata": {"name": "default", "namespace": "busy-elsewhere"},
}


def test_a_pod_for_busy_devices_gets_a_warning_that_names_no_other_namespace(
    control_plane, fleet_node, webhook, created, gated
):
    control_plane.create(pod("first", gated, container(**limits(**{"nvidia.com/gpu": 8}))))
    control_plane.wait_scheduled(gated, "first")
    manifest = json.dumps(gpu("second", gated))

    def told():
        return control_plane.kubectl("apply", "--dry-run=server", "-f", "-", input=manifest).stderr

    warning = control_plane.until("the webhook knows who holds what", told, 20)
    assert "this pod waits until devices are free" in warning
    assert f"in use: held by {gated}/" in warning
    created({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "busy-elsewhere"}})
    control_plane.until("it has its account", lambda: control_plane.read(ACCOUNT))
    webhook.admits("busy-elsewhere")
    manifest = json.dumps(gpu("third", "busy-elsewhere"))
    stranger = told()
    assert "held by a claim of another namespace" in stranger
    assert gated not in stranger


def test_a_workload_is_warned_when_it_is_applied(control_plane, fleet_node, gated):
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
    stored = control_plane.get(f"/apis/resource.k8s.io/v1/namespaces/{gated}/resourceclaimtemplates")["items"]
    assert {t["metadata"]["name"] for t in stored} == names


# Purity


def test_a_thousand_reviews_leave_no_write_of_ours(control_plane, fleet_node, gated, webhook):
    """Dry runs and real creations, refused ones among them: the audit log has no write by the webhook's identity."""
    before = sum(1 for _ in control_plane.audit_events())
    good, bad = (
        gpu("p", gated),
        pod("q", gated, container(**limits(**{"nvidia.com/gpu": 1, "nvidia.com/gpumem": "1500m"}))),
    )

    def ask(number):
        """One review in four is refused, one in fifty is of a pod that is stored."""
        if number % 4 == 0:
            with pytest.raises(ApiError, match="is not a whole number"):
                control_plane.create(bad, dryRun="All")
        elif number % 50 == 1:
            control_plane.create(good | {"metadata": {"name": f"p-{number}", "namespace": gated}})
        else:
            control_plane.create(good | {"metadata": {"name": f"x-{number}", "namespace": gated}}, dryRun="All")

    reviews = 1000
    with ThreadPoolExecutor(16) as several:  # what is refused is looked at twice, a quarter of a second apart
        list(several.map(ask, range(reviews)))
    events = list(control_plane.audit_events())[before:]
    asked = [e for e in events if e["verb"] == "create" and place(e) == ("pods", gated)]
    assert len(asked) == reviews
    ours = [e for e in events if e["user"]["username"] == "system:serviceaccount:drawbridge-system:drawbridge-webhook"]
    assert [e for e in ours if e["verb"] not in ("get", "list", "watch")] == []
    webhook.processes["webhook"].check()


def place(event):
    """Resource and namespace that a request was about; bindings and the like are something else."""
    reference = event.get("objectRef", {})
    return None if "subresource" in reference else (reference.get("resource"), reference.get("namespace"))


def test_a_pod_costs_the_api_server_one_call_to_us_and_no_write_of_ours(control_plane, fleet_node, gated):
    """From its creation until it is bound, its claim made and allocated: what `docs/comparison.md` says of the price of a GPU pod rests on it."""
    control_plane.create(gpu("first", gated))  # has the template made
    control_plane.wait_scheduled(gated, "first")
    control_plane.until(
        "the webhook knows the template", lambda: AWAITS not in labels_of_another(control_plane, gated), 30
    )
    assert {place(e) for e in writes_of_ours(control_plane, gated, 0)} == {("resourceclaimtemplates", gated)}
    asked, seen = webhook_calls(control_plane), sum(1 for _ in control_plane.audit_events())
    several = [f"p-{number}" for number in range(4)]
    for name in several:
        control_plane.create(gpu(name, gated))
    for name in several:
        control_plane.wait_scheduled(gated, name)
    assert webhook_calls(control_plane) - asked == {("admit", "CREATE"): len(several)}
    assert writes_of_ours(control_plane, gated, seen) == []


def writes_of_ours(cluster, namespace, seen):
    """Which requests of our accounts could have changed something in a namespace, next to those seen before."""
    return [
        event
        for event in itertools.islice(cluster.audit_events(), seen, None)
        if event.get("objectRef", {}).get("namespace") == namespace
        and event["verb"] not in ("get", "list", "watch")
        and event["user"]["username"].startswith("system:serviceaccount:drawbridge-system:")
    ]


def labels_of_another(cluster, namespace):
    """The labels that one more pod would get."""
    [stored] = cluster.create(gpu("another", namespace), dryRun="All")
    return stored["metadata"]["labels"]


def webhook_calls(cluster):
    """How often the API server has called webhooks of ours so far: by type and operation."""
    calls = Counter()
    for line in cluster.kubectl("get", "--raw", "/metrics").stdout.splitlines():
        name, _, labels = line.partition("{")
        if name != "apiserver_admission_webhook_admission_duration_seconds_count" or "drawbridge" not in labels:
            continue
        type_, operation = (
            re.search(rf'\b{one}="([a-z]+)"', labels, re.IGNORECASE)[1] for one in ("type", "operation")
        )
        calls[type_, operation] += int(float(line.rpartition(" ")[2]))
    return calls


def test_the_webhooks_identity_could_not_write_if_it_wanted_to(control_plane, webhook):
    account = "system:serviceaccount:drawbridge-system:drawbridge-webhook"
    done = control_plane.kubectl("auth", "can-i", "--list", f"--as={account}", "-n", "drawbridge-system")
    lines = [line for line in done.stdout.splitlines()[1:] if "selfsubject" not in line]
    verbs = {word for line in lines for word in line.rpartition("[")[2].rstrip("]").split()}
    assert verbs <= {"get", "list", "watch"}


# Templates under attack, and under kills


def templates(cluster, namespace):
    items = cluster.get(f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaimtemplates")["items"]
    return {item["metadata"]["name"]: item for item in items}


def test_a_deleted_template_comes_back_while_a_pod_needs_it(control_plane, fleet_node, gated):
    control_plane.create(gpu("p", gated, nodeSelector=NOWHERE))
    before = control_plane.until("the template is there", lambda: templates(control_plane, gated), 20)
    for name in before:
        control_plane.delete(f"/apis/resource.k8s.io/v1/namespaces/{gated}/resourceclaimtemplates/{name}")
    after = control_plane.until("it is back", lambda: templates(control_plane, gated), 20)
    assert {n: t["spec"] for n, t in after.items()} == {n: t["spec"] for n, t in before.items()}


def test_a_squatted_name_that_is_labelled_as_ours_is_taken_back(control_plane, fleet_node, gated):
    """Before any pod uses it, without a grace; a policy says which accounts may put it there."""
    [planned] = control_plane.create(gpu("p", gated), dryRun="All")
    name = planned["spec"]["resourceClaims"][0]["resourceClaimTemplateName"]
    squat = template(name, gated, request("gpu", fleet.NVIDIA, 8))
    squat["metadata"]["labels"] = {"app.kubernetes.io/managed-by": "drawbridge"}
    control_plane.create(squat)
    control_plane.until("it is taken away", lambda: name not in templates(control_plane, gated), 60)
    # The controller that makes claims of templates learns of it in its turn: when this one has its claim, it has.
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


def test_a_forged_annotation_makes_nothing(control_plane, fleet_node, gated):
    """An annotation that a pod's author copied and changed is taken off, and the pod asks for a template that is never made."""
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
    made = control_plane.until("an honest pod's template is made", lambda: templates(control_plane, gated), 20)
    assert planned["spec"]["resourceClaims"][0]["resourceClaimTemplateName"] not in made


def test_a_forged_record_stops_no_later_update(control_plane, fleet_node, gated):
    """A user who may update a pod writes a record on one that was never translated; its finalizers still come and go."""
    item = gpu("p", gated, nodeName="nowhere")  # bound pods are left as they are
    item["metadata"]["finalizers"] = ["example.com/hold"]
    [stored] = control_plane.create(item)
    amount = stored["spec"]["containers"][0]["resources"]["limits"]
    path = f"/api/v1/namespaces/{gated}/pods/p"
    forged = json.dumps({"containers": {"main": amount}})
    control_plane.patch(path, {"metadata": {"annotations": {"drawbridge.dev/original": forged}}})
    after = control_plane.patch(path, {"metadata": {"finalizers": None, "labels": {"seen": "yes"}}})
    assert after["metadata"]["labels"]["seen"] == "yes"
    assert after["spec"]["containers"][0]["resources"]["limits"] == amount


def test_a_template_that_is_no_longer_used_is_deleted(control_plane, fleet_node, gated):
    control_plane.create(gpu("p", gated))
    control_plane.wait_scheduled(gated, "p")
    assert templates(control_plane, gated)
    control_plane.delete(f"/api/v1/namespaces/{gated}/pods/p", gracePeriodSeconds=0)
    control_plane.until("it is swept", lambda: not templates(control_plane, gated), 90)


def test_a_killed_controller_is_repaired_by_its_next_start(control_plane, fleet_node, gated, webhook):
    """kill -9 in the middle of a burst: after the next start every pod has its template, and is placed."""
    items = [gpu(f"p-{n}", gated) for n in range(6)]
    for number, item in enumerate(items):
        item["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = str(number % 3 + 1)
        item["spec"]["nodeSelector"] = NOWHERE
    control_plane.create(*items[:3])
    webhook.kill_controller()
    control_plane.create(*items[3:])
    webhook.start_controller()
    control_plane.until("all three templates are there", lambda: len(templates(control_plane, gated)) == 3, 60)


def test_a_second_controller_takes_over_when_the_first_is_killed(control_plane, fleet_node, gated, webhook):
    """The lease is not taken away here: it runs out."""
    first = control_plane.until("a controller leads", lambda: holder(control_plane), 20)
    second = webhook.start_controller("second-controller")
    webhook.processes["controller"].stop(hard=True)
    control_plane.create(gpu("p", gated, nodeSelector=NOWHERE))
    control_plane.until(
        "the template is made by the other one", lambda: second.check() or templates(control_plane, gated), 60
    )
    assert holder(control_plane) not in ("", first)
    webhook.start_controller()
    second.stop()  # politely, so that the first one leads again without waiting


def holder(cluster):
    """The replica that leads, if one does."""
    try:
        return cluster.get(LEASE)["spec"].get("holderIdentity") or ""
    except ApiError as error:
        if error.code != 404:
            raise
        return ""


# The process


def test_a_new_configuration_is_in_force_without_a_restart(control_plane, fleet_node, gated, webhook):
    """Its mode is that of namespaces which say none. Asked at the webhook: the API server asks here about those that say one."""
    good = webhook.config.read_text()

    def is_translated():
        return "patch" in webhook.post("/mutate", review(gpu("p", "default"), "default"))

    assert is_translated()
    try:
        webhook.configure(good.replace("enforce", "observe"))
        control_plane.until("pods are left as they are", lambda: not is_translated(), 20)
        webhook.configure("mode: [")
        control_plane.until(
            "the bad file is counted", lambda: "drawbridge_configuration_good 0.0" in webhook.metrics(), 20
        )
        assert not is_translated()
    finally:
        webhook.follow(good)
    control_plane.until("and forgotten", lambda: "drawbridge_configuration_good 1.0" in webhook.metrics(), 20)
    assert is_translated()


def test_warn_tells_and_changes_nothing(control_plane, fleet_node, gated, webhook):
    control_plane.patch(f"/api/v1/namespaces/{gated}", {"metadata": {"labels": {"drawbridge.dev/mode": "warn"}}})
    manifest = json.dumps(gpu("p", gated))

    def told():
        done = control_plane.kubectl("apply", "--dry-run=server", "-o", "json", "-f", "-", input=manifest)
        return "resourceClaims" not in json.loads(done.stdout)["spec"] and done.stderr

    assert "Warning: drawbridge would make this pod request its devices through ResourceClaims" in control_plane.until(
        "warn is in force", told, 20
    )


def test_a_replica_that_is_told_to_stop_loses_no_review(control_plane, fleet_node, gated, webhook):
    """SIGTERM under load; the load goes on until the process says that it is not ready any more, then stops."""
    item = gpu("p", gated)
    webhook.processes["webhook"].stop()
    process = webhook.start_webhook(notice=10)  # on a busy machine one review can take as long as the usual notice here
    control_plane.create(item, dryRun="All")
    process.child.send_signal(signal.SIGTERM)
    answered = 0
    while webhook.ready():
        control_plane.create(item, dryRun="All")  # failurePolicy Fail: an unanswered review would raise
        answered += 1
    control_plane.create(item, dryRun="All")
    process.child.wait(60)
    assert process.child.returncode == 0
    webhook.start_webhook()
    control_plane.create(item, dryRun="All")


def test_a_key_that_a_limit_range_bounds_is_left_and_the_pod_is_not_turned_back(control_plane, fleet_node, gated):
    bounds = {"type": "Container", "max": {"nvidia.com/gpu": "4"}}
    metadata = {"name": "gpus", "namespace": gated}
    control_plane.create({"apiVersion": "v1", "kind": "LimitRange", "metadata": metadata, "spec": {"limits": [bounds]}})
    item = gpu("p", gated)

    def left():
        """Until both have heard of it, the API server turns the translated pod back, or lets it in."""
        return "resourceClaims" not in control_plane.create(item, dryRun="All")[0]["spec"]

    control_plane.until("the webhook knows the LimitRange", left, 30)
    stored = control_plane.create(item)[0]["spec"]
    assert stored["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert "resourceClaims" not in stored
