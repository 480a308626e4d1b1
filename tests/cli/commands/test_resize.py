"""`drawbridge resize`: where the pods of a workload fit with other amounts, which quotas count them, and the new manifests."""

import json
from uuid import NAMESPACE_DNS, uuid5

import pytest

from cluster import manifests
from cluster.embedded import Embedded
from cluster.kubernetes import Kubernetes
from tests.cli.dialect_examples import DRIVERS, OPTIONAL_CONFIGURATION
from tests.cli.running import manifest, run, run_json
from tests.objects import (
    allocated,
    claim,
    claim_template,
    container,
    device_class,
    device_quota,
    exactly,
    obj,
    owner,
    resource_slice,
    result,
    workload,
)

DRIVER = CLASS = "hami-core-gpu.project-hami.io"
GPU = "nvidia.com/gpu"
GPU_MEMORY = "nvidia.com/gpumem"


def in_ml(kind, name, apiVersion="v1", **fields):
    return obj(kind, name, apiVersion, namespace="ml", uid=f"uid-{name}", **fields)


def owned_by(kind, name, version="apps/v1"):
    return {"ownerReferences": [owner(kind, name, version, uid=f"uid-{name}")]}


def node_with_gpus(*names, node="n0"):
    """A node and its slice with devices of 16Gi that several claims can share."""
    policy = {"default": "16Gi", "validRange": {"min": "1Mi", "max": "16Gi", "step": "1Mi"}}
    cores = {"default": "100", "validRange": {"min": "0", "max": "100", "step": "1"}}
    capacity = {"memory": {"value": "16Gi", "requestPolicy": policy}, "cores": {"value": "100", "requestPolicy": cores}}
    fields = {"attributes": {"type": {"string": "hami-gpu"}}, "allowMultipleAllocations": True, "capacity": capacity}
    devices = [{"name": name, **fields} for name in names]
    return [obj("Node", node), resource_slice(f"{node}-s", *devices, driver=DRIVER, pool=node, nodeName=node)]


def request_for(memory):
    """A request for this much memory of a device."""
    return exactly(CLASS, name="gpu", capacity={"requests": {"cores": "0", "memory": memory}})


def running_pod_and_claim(name, device, metadata):
    """A pod with 4Gi of this device of node n0, and the claim of the pod."""
    amounts = {"memory": "4Gi", "cores": "0"}
    held = result(device, driver=DRIVER, pool="n0", request="gpu", shareID=str(uuid5(NAMESPACE_DNS, name)), consumedCapacity=amounts)  # fmt: skip
    claim_name = f"{name}-gpu-x"
    status = allocated(held) | {"reservedFor": [{"resource": "pods", "name": name, "uid": f"uid-{name}"}]}
    held_claim = claim(claim_name, request_for("4Gi"), namespace="ml", uid=f"uid-{claim_name}", status=status, **owned_by("Pod", name, "v1"))  # fmt: skip
    statuses = [{"name": "gpu", "resourceClaimName": claim_name}]
    spec = {"nodeName": "n0", "containers": [{"name": "c", "image": "i"}], "resourceClaims": CLAIM_ENTRY}
    return [in_ml("Pod", name, status={"phase": "Running", "resourceClaimStatuses": statuses}, **spec, **metadata), held_claim]  # fmt: skip


def deployment_and_replica_set(name, replicas, spec):
    """A Deployment and its ReplicaSet."""
    fields = {"labels": {"a": name}, "namespace": "ml", "replicas": replicas}
    deployment = workload("Deployment", name, spec, uid=f"uid-{name}", status={"replicas": replicas}, **fields)
    owners = owned_by("Deployment", name)
    return [deployment, workload("ReplicaSet", f"{name}-1", spec, uid=f"uid-{name}-1", **owners, **fields)]


CLAIM_ENTRY = [{"name": "gpu", "resourceClaimTemplateName": "share"}]
POD_SPEC_WITH_KEYS = {"containers": [container("c", {GPU: 1, GPU_MEMORY: 4096})]}
# The memory limit of the container is not memory of a device.
POD_SPEC_WITH_CLAIM = {
    "containers": [container("c", {"memory": "1Gi"}, claims=["gpu"])],
    "resourceClaims": CLAIM_ENTRY,
}
CLAIM_TEMPLATE = claim_template("share", request_for("4Gi"), namespace="ml", uid="uid-share")
DEVICE_CLASS = device_class(CLASS, f"device.driver == '{DRIVER}'")


def memory_quota(memory):
    return device_quota("team", {f"{CLASS}/memory": memory}, namespace="ml", uid="uid-team")


def dump(path, spec=POD_SPEC_WITH_KEYS, *extra_objects, devices=("a",), quota_limit="40Gi"):
    """A dump of a cluster with a Deployment of two running pods, each with 4Gi of device `a`."""
    owners = owned_by("ReplicaSet", "serve-1")
    pods = [obj for name in ("serve-a", "serve-b") for obj in running_pod_and_claim(name, "a", owners)]
    workloads = deployment_and_replica_set("serve", 2, spec)
    quota = memory_quota(quota_limit)
    return manifest(path / "dump.json", DEVICE_CLASS, CLAIM_TEMPLATE, quota, *node_with_gpus(*devices), *workloads, *pods, *extra_objects)  # fmt: skip


def changed_lines(diff):
    return [line for line in diff.splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")]


def test_resize_prints_the_fit_the_quota_and_the_new_manifest(tmp_path):
    result = run("resize", "deployment/serve", f"{GPU_MEMORY}=8192", "-f", dump(tmp_path))
    assert result.exit_code == 0, result.output
    assert "2 of 2 pods would fit once the running pods have ended" in result.stdout
    assert "one more pod fits alongside the running pods, on n0" in result.stdout
    assert (
        f"within quota ml/team: {CLASS}/memory: 16Gi requested by 2 replicas, 0 of 40Gi used; at most 40Gi can be requested"
        in result.stdout
    )
    assert [line.split() for line in changed_lines(result.stdout)] == [
        ["-", f"{GPU_MEMORY}:", "4096"],
        ["+", f"{GPU_MEMORY}:", "8192"],
    ]
    assert "--- Deployment/ml/serve" in result.stdout


def test_each_pod_that_does_not_fit_is_reported(tmp_path):
    result = run("resize", "deploy/serve", f"{GPU_MEMORY}=12288", "-f", dump(tmp_path))
    assert result.exit_code == 1
    assert "1 of 2 pods would fit" in result.stdout
    reason = "0 of 1 nodes can serve the pod: 1 node(s) cannot serve request "
    text = " ".join(result.stdout.split())
    assert f"ml/serve-1 {reason}" in text
    assert f"no further pod fits alongside the running pods ({reason}" in text


def test_max_surge_0_is_advised_if_no_further_pod_fits(tmp_path):
    other_pod = running_pod_and_claim("other", "a", {})  # this pod holds 4Gi, and is not replaced
    result = run("resize", "deploy/serve", f"{GPU_MEMORY}=6144", "-f", dump(tmp_path, POD_SPEC_WITH_KEYS, *other_pod))
    assert result.exit_code == 0
    text = " ".join(result.stdout.split())
    assert "have too little capacity, or too little left" in text
    assert "): set maxSurge: 0, or strategy Recreate" in text


def test_a_quota_counts_new_pods_instead_of_replaced_pods(tmp_path):
    code, answer = run_json(
        "resize", "deployment/serve", f"{GPU_MEMORY}=8192", "-f", dump(tmp_path, devices=("a", "b"), quota_limit="12Gi")
    )
    assert (code, answer["fits"]) == (1, False)
    [line] = answer["quotas"]
    assert (line["requested"], line["used"], line["remaining"], line["replicasLeft"]) == ("16Gi", "0", "12Gi", "1")
    assert [bool(pod["node"]) for pod in answer["pods"]] == [True, False], "the quota does not stop the second pod"
    assert answer["surgePod"]["node"] is None, (
        "a further pod is placed, although with the running pods it exceeds the quota"
    )
    assert answer["pods"][1]["exceededQuota"]["line"] == f"ml/team: {CLASS}/memory"


def test_the_workload_names_a_new_template_with_the_new_amount(tmp_path):
    code, answer = run_json("resize", "deployment/serve", "memory=8Gi", "-f", dump(tmp_path, POD_SPEC_WITH_CLAIM))
    new_template, new_workload = answer["objects"]
    assert (code, [pod["node"] for pod in answer["pods"]]) == (0, ["n0", "n0"])
    assert [line["requested"] for line in answer["quotas"]] == ["16Gi"], (
        "the quota does not count the amount of the new template"
    )
    assert new_template["spec"]["spec"]["devices"]["requests"][0]["exactly"]["capacity"] == {
        "requests": {"cores": "0", "memory": "8Gi"}
    }
    assert new_template["metadata"]["name"] != "share"
    [claim_entry] = new_workload["spec"]["template"]["spec"]["resourceClaims"]
    assert new_workload["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] == {"memory": "1Gi"}
    assert claim_entry["resourceClaimTemplateName"] == new_template["metadata"]["name"]
    assert not {"uid", "resourceVersion"} & (new_template["metadata"].keys() | new_workload["metadata"].keys())
    assert "status" not in new_workload
    printed = run("resize", "deployment/serve", "memory=8Gi", "-f", tmp_path / "dump.json").stdout
    assert f"+++ ResourceClaimTemplate/ml/{new_template['metadata']['name']}" in printed
    assert "-        resourceClaimTemplateName: share" in printed


def test_a_translated_pod_is_resized_by_its_original_keys(tmp_path):
    annotations = {"drawbridge.dev/original": json.dumps({"containers": {"c": {GPU: "1", GPU_MEMORY: "4096"}}})}
    lone_pod = running_pod_and_claim("lone", "a", {"annotations": annotations})
    result = run("resize", "pod/lone", f"{GPU_MEMORY}=8192", "-f", dump(tmp_path, POD_SPEC_WITH_KEYS, *lone_pod))
    assert result.exit_code == 0, result.output
    assert "1 of 1 pod would fit" in result.stdout
    assert "alongside" not in result.stdout, "a further pod is reported for a pod without a workload"
    assert [line.split()[-1].strip("'") for line in changed_lines(result.stdout)] == ["4096", "8192"]


def resize_by_annotation(amount, *options):
    """Return the result of resizing KAI's example Job to this amount of memory."""
    files = ("-f", OPTIONAL_CONFIGURATION.with_suffix(""), "-f", DRIVERS)
    return run("resize", "job/kai-two-parts", f"gpu-memory={amount}", *files, *options)


def test_an_annotation_is_resized_only_if_the_configuration_translates_it():
    result = resize_by_annotation("30000", "--config", OPTIONAL_CONFIGURATION)
    assert result.exit_code == 0, result.output
    assert [line.split() for line in changed_lines(result.stdout)] == [
        ["-", "gpu-memory:", "'8000'"],
        ["+", "gpu-memory:", "'30000'"],
    ]
    assert resize_by_annotation("60000", "--config", OPTIONAL_CONFIGURATION).exit_code == 1
    assert resize_by_annotation("30000").exit_code == 2


def test_an_old_key_of_koordinator_is_resized(tmp_path):
    old_pod = in_ml("Pod", "old", containers=[container("c", {"kubernetes.io/gpu-memory": "8Gi"})])
    file = manifest(tmp_path / "pod.yaml", old_pod)
    result = run("resize", "pod/old", "kubernetes.io/gpu-memory=16Gi", "-n", "ml", "-f", file)
    assert [line.split() for line in changed_lines(result.stdout)] == [
        ["-", "kubernetes.io/gpu-memory:", "8Gi"],
        ["+", "kubernetes.io/gpu-memory:", "16Gi"],
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("deployment/serve", "memory=8Gi"), f"does not request memory (the workload requests {GPU}, {GPU_MEMORY})"),
        (("deployment/serve", f"{GPU_MEMORY}=much"), "an amount is a quantity"),
        (("deployment/serve", GPU_MEMORY), "is not KEY=AMOUNT"),
        (("serve", f"{GPU_MEMORY}=1"), "is not KIND/NAME"),
        (("pod/serve-a", f"{GPU_MEMORY}=1"), "resize deployment/serve"),
        (("deployment/none", f"{GPU_MEMORY}=1"), "there is no deployment 'none'"),
        (("pod/none", f"{GPU_MEMORY}=1"), "there is no pod 'none'"),
    ],
)
def test_an_invalid_resize_fails_with_a_remedy(tmp_path, arguments, message):
    result = run("resize", *arguments, "-f", dump(tmp_path))
    assert result.exit_code in (1, 2)
    assert message in result.stderr


def test_a_resize_that_the_webhook_refuses_is_reported_as_refused(tmp_path):
    result = run("resize", "deployment/serve", f"{GPU_MEMORY}=1000000", "-f", dump(tmp_path))
    assert result.exit_code == 1
    assert "refused: " in result.stdout


def test_a_live_cluster_has_the_answer_of_its_dump(tmp_path, monkeypatch):
    file = dump(tmp_path)
    store = Embedded.holding([document.object for document in manifests.read([file])])
    monkeypatch.setattr(Kubernetes, "connect", lambda **_: store)
    answer_of_cluster, answer_of_dump = (
        run_json("resize", "deployment/serve", f"{GPU_MEMORY}=8192", *options)[1] for options in ((), ("-f", file))
    )
    assert (answer_of_cluster["pods"], answer_of_cluster["quotas"]) == (
        answer_of_dump["pods"],
        answer_of_dump["quotas"],
    )
    assert answer_of_cluster["pods"][1]["node"] == "n0"


def test_a_waiting_pod_uses_quota_and_no_device(tmp_path):
    waiting_pod = in_ml("Pod", "waits", containers=[{"name": "c", "image": "i"}], resourceClaims=CLAIM_ENTRY)
    code, answer = run_json(
        "resize",
        "deployment/serve",
        f"{GPU_MEMORY}=8192",
        "-f",
        dump(tmp_path, POD_SPEC_WITH_KEYS, waiting_pod, quota_limit="18Gi"),
    )
    assert (code, answer["fits"], [pod["node"] for pod in answer["pods"]]) == (1, False, ["n0", "n0"])
    assert (answer["quotas"][0]["pending"], answer["quotas"][0]["remaining"]) == ("4Gi", "14Gi")


def test_a_claim_shared_by_all_replaced_pods_is_freed(tmp_path):
    """The claim has a device of the small node. Once all its pods are replaced, it may get a device of another node."""
    [_, shared_claim] = running_pod_and_claim("both", "a", {})
    shared_claim["metadata"] = {"name": "both", "namespace": "ml", "uid": "both"}
    pods = [{"resource": "pods", "name": f"serve-{n}", "uid": f"uid-serve-{n}"} for n in "ab"]
    held = shared_claim["status"]["allocation"]["devices"]["results"]
    shared_claim["status"] = allocated(*held, node="n0") | {"reservedFor": pods}
    claim_entries = [{"name": "both", "resourceClaimName": "both"}]
    file = dump(
        tmp_path,
        POD_SPEC_WITH_KEYS | {"resourceClaims": claim_entries},
        shared_claim,
        *node_with_gpus("b", "c", "d", node="n1"),
    )
    objects = [document.object for document in manifests.read([file])]
    for stored_object in objects:
        if stored_object["kind"] == "Pod":
            stored_object["spec"]["resourceClaims"] += claim_entries
    _, answer = run_json("resize", "deployment/serve", f"{GPU_MEMORY}=16384", "-f", manifest(file, *objects))
    assert [pod["node"] for pod in answer["pods"]] == ["n1", "n1"]


def test_every_alternative_of_a_request_gets_the_new_amount(tmp_path):
    template = json.loads(json.dumps(CLAIM_TEMPLATE))
    [request] = template["spec"]["spec"]["devices"]["requests"]
    alternative_request = request.pop("exactly")
    request["firstAvailable"] = [alternative_request | {"name": "small"}, alternative_request | {"name": "other"}]
    _, answer = run_json(
        "resize", "deployment/serve", "memory=8Gi", "-f", dump(tmp_path, POD_SPEC_WITH_CLAIM, template)
    )
    [changed_request] = answer["objects"][0]["spec"]["spec"]["devices"]["requests"]
    assert [alternative["capacity"]["requests"]["memory"] for alternative in changed_request["firstAvailable"]] == [
        "8Gi",
        "8Gi",
    ]
    assert [pod["node"] for pod in answer["pods"]] == ["n0", "n0"]


def test_a_workload_that_is_missing_from_the_input_is_reported(tmp_path):
    file = dump(tmp_path)
    objects = [document.object for document in manifests.read([file]) if document.object["kind"] != "Deployment"]
    result = run("resize", "deployment/serve", f"{GPU_MEMORY}=1", "-f", manifest(file, *objects))
    assert (result.exit_code, "Deployment ml/serve is not in the input" in result.stderr) == (2, True)


def test_a_pod_with_a_node_name_is_refused(tmp_path):
    pod = obj("Pod", "p", namespace="ml", nodeName="n0", containers=[container("c", {GPU: "9"})])
    result = run("resize", "pod/p", f"{GPU}=9", "-f", manifest(tmp_path / "pod.yaml", pod))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Pod ml/p names its node n0, so no scheduler places it (remove nodeName)" in result.stderr
