"""The pods that `simulate` creates for a workload: their names by kind, and each pod as the webhook admits it."""

import json

import pytest

from analysis.arrivals import MAX_PODS, created_pods
from cluster import manifests
from tests.cli.running import run
from tests.objects import obj
from tests.webhook.admission.test_verdict import PODS, THREE_GPU_TEMPLATE
from tests.webhook.pods import EXAMPLES, pod


def simulate_pods(*objects):
    text = manifests.dump([THREE_GPU_TEMPLATE, *objects])
    result = run("simulate", "-f", str(EXAMPLES / "fleet"), "-f", "-", "-o", "json", stdin=text)
    return {outcome["pod"]: outcome for outcome in json.loads(result.stdout)["pods"]}


def pod_fields(**fields):
    """Return fields of a workload's spec: the template of its pods, and these fields."""
    return {"template": {"spec": PODS["one"]["spec"]}, **fields}


TEMPLATE = pod_fields()["template"]
LEADER_WORKER_SET = ("LeaderWorkerSet", "w", "leaderworkerset.x-k8s.io/v1")
# A workload, and the names of the pods that `simulate` creates for it.
WORKLOADS = {
    "a Ray cluster": (obj("RayCluster", "w", "ray.io/v1", headGroupSpec=pod_fields(), workerGroupSpecs=[pod_fields(replicas=2, numOfHosts=2)]), ["w-0-0", "w-1-0", "w-1-1", "w-1-2", "w-1-3"]),
    "groups with leaders": (obj(*LEADER_WORKER_SET, replicas=2, leaderWorkerTemplate={"size": 2, "leaderTemplate": TEMPLATE, "workerTemplate": TEMPLATE}), ["w-0-0", "w-0-1", "w-1-0", "w-1-1"]),
    "a group without a leader template": (obj(*LEADER_WORKER_SET, leaderWorkerTemplate={"size": 3, "workerTemplate": TEMPLATE}), ["w-0", "w-1", "w-2"]),
    "a set of jobs": (obj("JobSet", "w", "jobset.x-k8s.io/v1alpha2", replicatedJobs=[{"replicas": 2, "template": {"spec": pod_fields(parallelism=2)}}]), ["w-0", "w-1", "w-2", "w-3"]),
    "a cron job": (obj("CronJob", "w", "batch/v1", jobTemplate={"spec": pod_fields(parallelism=2)}), ["w-0", "w-1"]),
    "no replicas": (obj("Deployment", "w", "apps/v1", **pod_fields(replicas=0)), []),
    "replicas that are not a number": (obj("Deployment", "w", "apps/v1", **pod_fields(replicas="many")), ["w-0"]),
    "a PodTemplate without a workload": (obj("PodTemplate", "w") | pod_fields(), []),
}  # fmt: skip


@pytest.mark.parametrize("workload_name", WORKLOADS)
def test_pods_of_every_kind_pass_through_admission(workload_name):
    workload, expected = WORKLOADS[workload_name]
    by_name = simulate_pods(workload)
    assert list(by_name) == [f"default/{name}" for name in expected]
    for outcome in by_name.values():
        assert outcome["devices"] or "insufficient" not in outcome["reason"]["text"], "a pod kept its legacy request"


def test_pods_of_workloads_with_a_generate_name_have_valid_names():
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"generateName": "w-"}, "spec": pod_fields()}
    assert [created_pod.name for created_pod in created_pods(job)] == ["w-00001"]
    outcomes = simulate_pods(job, job)
    assert list(outcomes) == ["default/w-00001-0", "default/w-00002-0"]
    assert all(outcome["devices"] for outcome in outcomes.values()), outcomes


@pytest.mark.parametrize(
    ("version", "kind", "is_counted_by_pod"),
    [
        ("apps/v1", "Deployment", True),
        ("apps/v1", "ReplicaSet", True),
        ("apps/v1", "StatefulSet", True),
        ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", True),
        ("batch/v1", "Job", False),
    ],
)
def test_pods_that_kueue_counts_one_by_one_have_the_queue_of_their_workload(version, kind, is_counted_by_pod):
    spec = {"leaderWorkerTemplate": {"workerTemplate": pod_fields()["template"]}} if kind[0] == "L" else pod_fields()
    queue = {"kueue.x-k8s.io/queue-name": "q"}
    workload = {"apiVersion": version, "kind": kind, "metadata": {"name": "w", "labels": queue}, "spec": spec}
    (created_pod,) = created_pods(workload)
    labels = created_pod.pod["metadata"].get("labels", {})
    assert (queue.items() <= labels.items()) is is_counted_by_pod


def test_pods_inherit_the_scheduler_of_their_owner():
    shared_gpu_template = {"template": {"spec": pod({"nvidia.com/gpu": 1, "nvidia.com/gpumem": 1000})["spec"]}}
    job = obj("Job", "v", "batch.volcano.sh/v1alpha1", tasks=[shared_gpu_template])
    (outcome,) = simulate_pods(job).values()
    assert "Insufficient nvidia.com/gpu" in outcome["reason"]["text"], (
        "the webhook translated a pod of the scheduler Volcano"
    )
    (outcome,) = simulate_pods(
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "v"}, "spec": shared_gpu_template}
    ).values()
    assert outcome["devices"]


def test_pods_of_a_volcano_job_are_in_its_pod_group():
    task = {"template": {"metadata": {"annotations": {"a": "b"}}, "spec": {"containers": [{"name": "c"}]}}}
    job = obj("Job", "v", "batch.volcano.sh/v1alpha1", tasks=[task])
    (created,) = created_pods(job)
    assert created.pod["metadata"]["annotations"] == {"a": "b", "scheduling.k8s.io/group-name": "v"}


def test_the_number_of_pods_of_a_workload_is_bounded():
    assert len(simulate_pods(obj("Deployment", "w", "apps/v1", **pod_fields(replicas=10**9)))) == MAX_PODS
