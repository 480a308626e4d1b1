"""`drawbridge explain` of a workload of any kind: the state of its pods, which are found by their owner references."""

import pytest

from analysis.explain.workload_story import workload_story
from analysis.loading import OUTLOOK_KINDS, Needs, read_cluster
from cluster.embedded import Embedded
from cluster.errors import Forbidden
from cluster.resources import STATEFUL_SETS
from tests import objects
from tests.cli.explain.scenes import claim, dump, explain, explain_json, fleet, full_fleet, in_phase, pod
from tests.cli.running import run_json


def owned_by(obj, kind, name, version="apps/v1"):
    owners = [objects.owner(kind, name, version, uid=f"of-{name}")]
    return obj | {"metadata": obj["metadata"] | {"ownerReferences": owners}}


def workload(kind, name, version="apps/v1", **spec):
    pods = {"containers": [objects.container("c", {"nvidia.com/gpu": 1})]}
    return objects.workload(kind, name, pods, version, uid=f"of-{name}", **spec)


def training_deployment():
    """Return a fleet and a Deployment whose ReplicaSet has two running pods and one waiting pod."""
    replica_set = owned_by(workload("ReplicaSet", "train-5d"), "Deployment", "train")
    running_pods = [owned_by(in_phase(obj, "Running"), "ReplicaSet", "train-5d") for obj in (pod("train-5d-a", nodeName="n0"), pod("train-5d-b", nodeName="n1"))]  # fmt: skip
    waiting_pod = owned_by(in_phase(pod("train-5d-c", "c"), "Pending"), "ReplicaSet", "train-5d")
    return [
        *full_fleet(),
        workload("Deployment", "train", replicas=3),
        replica_set,
        *running_pods,
        waiting_pod,
        claim("c"),
        pod("other"),
    ]


@pytest.mark.parametrize(
    "argument", ["deployment/train", "deploy/default/train", "deployments.apps/train", "Deployment/train"]
)
def test_pods_are_grouped_by_workload_with_waiting_pods_first(tmp_path, argument):
    code, answer = explain_json(tmp_path, argument, *training_deployment())
    workload_answer = answer["workload"]
    assert (code, workload_answer["kind"], workload_answer["name"]) == (0, "Deployment", "default/train")
    assert (workload_answer["desiredPods"], workload_answer["runningPods"]) == (3, 2)
    assert [group["names"] for group in workload_answer["pods"]] == [["train-5d-c"], ["train-5d-a", "train-5d-b"]]
    # Of each group, only the first pod is explained. "full": the devices that it could use are in use.
    assert workload_answer["pods"][0]["first"]["prospect"]["outlook"] == "full"


def test_text_lists_pod_groups_and_explains_a_waiting_pod(tmp_path):
    lines = explain(tmp_path, "deploy train", *training_deployment()).stdout.splitlines()
    assert lines[0] == "deployment default/train: 2 running, 3 pods wanted"
    assert lines[1] == "  pods        1: train-5d-c"  # the number of pods in the group, and their names
    assert lines[3] == "  pods        2: train-5d-a, train-5d-b"
    assert lines[6].startswith("pod default/train-5d-c: Pending, ")
    assert lines[6].endswith("created by ReplicaSet train-5d of Deployment train")


def test_without_its_object_a_workload_is_explained_from_its_pods(tmp_path):
    """The input has a pod that a PyTorchJob owns, but not the PyTorchJob."""
    worker_pod = owned_by(
        in_phase(pod("fit-worker-0", nodeName="n0"), "Running"), "PyTorchJob", "fit", "kubeflow.org/v1"
    )
    code, answer = explain_json(tmp_path, "pytorchjob/fit", *fleet(), worker_pod)
    assert (code, answer["workload"]["desiredPods"], answer["workload"]["runningPods"]) == (0, None, 1)


def test_a_custom_object_without_pods_is_found_by_its_name(tmp_path):
    def pod_template(*resource_keys):
        container = {"name": "c", "image": "x", "resources": {"limits": dict.fromkeys(resource_keys, 1)}}
        return {"spec": {"containers": [container]}}

    spec = {"headGroupSpec": {"template": pod_template()}, "workerGroupSpecs": [{"replicas": 2, "template": pod_template("nvidia.com/gpu")}]}  # fmt: skip
    ray = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "ray"}, "spec": spec}
    lines = explain(tmp_path, "raycluster ray", *fleet(), ray).stdout.splitlines()
    assert lines[0] == "raycluster default/ray: 0 running, 3 pods wanted"
    # One line for each group of pods: the workers come before the head, because they request devices.
    assert [line for line in lines if line.startswith("  pods")] == [
        "  pods        none is created yet; the first would be ray-1-0",
        "  pods        none is created yet; the first would be ray-0-0",
    ]
    assert "pod default/ray-1-0: in no cluster yet" in lines[6]


def test_a_workload_with_unpredictable_pods_is_reported(tmp_path):
    container = {"name": "c", "resources": {"limits": {"nvidia.com/gpu": 1}}}
    service = {"apiVersion": "serving.kserve.io/v1beta1", "kind": "InferenceService", "metadata": {"name": "s"}, "spec": {"predictor": {"containers": [container]}}}  # fmt: skip
    output = explain(tmp_path, "inferenceservice/s", *fleet(), service).stdout
    head, pods, webhook, *_ = output.splitlines()
    assert head == "inferenceservice default/s: 0 running"
    assert pods == "  pods        none is created yet; only its controller knows which pods it creates"
    assert webhook.startswith("  webhook     predictor/containers/0: nvidia.com/gpu (nvidia) would be left unchanged: ")


def test_without_pods_the_first_pod_to_be_created_is_explained(tmp_path):
    replica_set = owned_by(workload("ReplicaSet", "train-5d"), "Deployment", "train")
    replica_set["status"] = {"conditions": [{"type": "ReplicaFailure", "status": "True", "message": "exceeded quota"}]}
    output = explain(
        tmp_path, "deploy/train", *fleet(), workload("Deployment", "train", replicas=2), replica_set
    ).stdout
    assert "  problem     ReplicaSet/default/train-5d O101: its pods cannot be created: exceeded quota" in output
    assert "none is created yet; the first would be train-0" in output
    assert "pod default/train-0: in no cluster yet" in output


REJECTION_MESSAGE = 'create Pod train-0 in StatefulSet train failed error: pods "train-0" is forbidden: pod rejected: RuntimeClass "gvisor" not found'


def failed_create_event(controller, message):
    kind, name = controller.split("/")
    involved_object = {"kind": kind, "namespace": "default", "name": name, "uid": f"of-{name}"}
    return {"apiVersion": "v1", "kind": "Event", "metadata": {"name": f"{name}.1", "namespace": "default"}, "involvedObject": involved_object, "reason": "FailedCreate", "message": message}  # fmt: skip


@pytest.mark.parametrize(
    ("argument", "controller"),
    [
        ("statefulset/train", workload("StatefulSet", "train", replicas=1)),
        ("deployment/up", owned_by(workload("ReplicaSet", "train", replicas=1), "Deployment", "up")),
        ("cronjob/up", owned_by(workload("Job", "train", "batch/v1"), "CronJob", "up", "batch/v1")),
        ("daemonset/train", workload("DaemonSet", "train") | {"status": {"desiredNumberScheduled": 1}}),
    ],
)
def test_a_workload_with_rejected_pods_shows_the_finding_of_doctor(tmp_path, argument, controller):
    owner = workload(argument.split("/")[0].capitalize().replace("Cronjob", "CronJob"), "up")
    if owner["kind"] == "CronJob":
        owner |= {"apiVersion": "batch/v1", "spec": {"jobTemplate": {"spec": owner["spec"]}}}
    controller_name = f"{controller['kind']}/train"
    objects = [
        *fleet(),
        controller,
        *([owner] if argument.endswith("/up") else []),
        failed_create_event(controller_name, REJECTION_MESSAGE),
    ]
    code, answer = explain_json(tmp_path, argument, *objects)
    [finding] = run_json("doctor", "-f", dump(tmp_path, *objects, pod("other")))[1]["findings"]
    assert (code, finding["code"], finding["object"]) == (0, "O101", controller_name.replace("/", "/default/"))
    assert answer["workload"]["conditions"] == [
        f"{finding['object']} O101: its pods cannot be created: {REJECTION_MESSAGE} ({finding['remedy']})"
    ]


@pytest.mark.parametrize("may_read_all", [True, False], ids=["events of all namespaces", "events of one namespace"])
async def test_the_events_of_a_controller_are_read_from_a_cluster(may_read_all):
    class LimitedCluster(Embedded):
        async def list(self, resource, namespace=None, **options):
            if resource.kind == "Event" and not namespace and not may_read_all:
                raise Forbidden("events of all namespaces are forbidden")
            return await super().list(resource, namespace, **options)

    objects = [
        *fleet(),
        workload("StatefulSet", "train", replicas=1),
        failed_create_event("StatefulSet/train", REJECTION_MESSAGE),
    ]
    needs = Needs((STATEFUL_SETS, *OUTLOOK_KINDS), events=("reason=FailedCreate",))
    reading = await read_cluster(LimitedCluster.holding(objects), needs, namespace="default")
    [condition] = workload_story("statefulset", "train", "default", reading).conditions
    assert condition.startswith("StatefulSet/default/train O101: ")


def test_an_event_that_repeats_a_condition_is_shown_once(tmp_path):
    replica_set = owned_by(workload("ReplicaSet", "train-5d", replicas=1), "Deployment", "train")
    status = {"conditions": [{"type": "ReplicaFailure", "status": "True", "message": REJECTION_MESSAGE}]}
    objects = [workload("Deployment", "train", replicas=1) | {"status": status}, replica_set | {"status": status}]
    _, answer = explain_json(
        tmp_path, "deploy/train", *fleet(), *objects, failed_create_event("ReplicaSet/train-5d", REJECTION_MESSAGE)
    )
    [condition] = answer["workload"]["conditions"]
    assert condition.startswith("ReplicaSet/default/train-5d O101: ")


@pytest.mark.parametrize(
    ("argument", "hint"),
    [
        ("deploy/trian", "there is no deployment 'trian' (did you mean default/train?)"),
        ("deplyment/train", "did you mean deployment/train?"),
        ("statefulset/train", "there is no statefulset 'train' (there are: none)"),
        ("pod/train", "there is no pod 'train'"),
        (
            "pod/train-x",
            "there is no pod 'train-x' (the input has what creates it: use `drawbridge explain deployment/train`)",
        ),
        ("job/", "there is no job ''"),
        ("/train", "there is no object of kind ''"),
    ],
)
def test_an_unknown_workload_name_exits_with_1_and_a_hint(tmp_path, argument, hint):
    result = explain(tmp_path, argument, *training_deployment())
    assert (result.exit_code, result.stdout) == (1, "")
    assert hint in result.stderr


def test_explain_ends_on_a_cycle_of_owners(tmp_path):
    cycle = (
        owned_by(workload("ReplicaSet", "x"), "ReplicaSet", "y"),
        owned_by(workload("ReplicaSet", "y"), "ReplicaSet", "x"),
    )
    code, answer = explain_json(tmp_path, "rs/y", *cycle, owned_by(pod("p"), "ReplicaSet", "x"))
    assert (code, answer["workload"]["pods"][0]["names"]) == (0, ["p"])
