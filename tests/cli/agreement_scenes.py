"""Workloads, fleets and configurations for the tests that compare the answers of the commands."""

from tests.corpus.move import GPU, migrated_fleet, node
from webhook.names import MODE_LABEL

HEAD = {"apiVersion": "drawbridge.dev/v1alpha1", "kind": "DrawbridgeConfiguration", "metadata": {"name": "c"}}
WHOLE = HEAD | {"meanings": {GPU: "whole"}}
FPGA = "example.com/fpga"
WARNED = HEAD | {"impossible": "warn"}
CLAIMED = HEAD | {"extendedResources": {"drivers": {"gpu.nvidia.com": "translate"}}}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
NOT_AT_X = {
    REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [{"key": "pool", "operator": "NotIn", "values": ["x"]}]}]}
}


def job(template):
    return {"template": template | {"spec": {"restartPolicy": "Never"} | template["spec"]}}


KINDS = {
    ("v1", "Pod"): lambda template: template["spec"],
    ("apps/v1", "Deployment"): lambda template: {"selector": {"matchLabels": {"a": "b"}}, "template": template},
    ("batch/v1", "Job"): job,
    ("batch/v1", "CronJob"): lambda template: {"schedule": "0 0 * * *", "jobTemplate": {"spec": job(template)}},
    ("ray.io/v1", "RayCluster"): lambda template: {
        "headGroupSpec": {"rayStartParams": {}, "template": {"spec": {"containers": [{"name": "h", "image": "i"}]}}},
        "workerGroupSpecs": [{"groupName": "g", "replicas": 1, "rayStartParams": {}, "template": template}],
    },
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): lambda template: {
        "replicatedJobs": [{"name": "r", "replicas": 1, "template": {"spec": job(template)}}]
    },
    ("kubeflow.org/v1", "Notebook"): lambda template: {"template": template},
    ("example.com/v1", "Training"): lambda template: {"template": template},
}


def of_kind(version, kind, template, **metadata):
    """An object whose pods have this template."""
    own = template["metadata"] if kind == "Pod" else {}
    metadata = {"name": "w", "namespace": "n"} | own | metadata
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": KINDS[version, kind](template)}


def having(*nodes):
    """Return the objects. Each node among them reports only CPU."""
    return [obj | {"status": {"allocatable": {"cpu": "8"}}} if obj.get("kind") == "Node" else obj for obj in nodes]


FLEET = having(*migrated_fleet("a", "b"))


def namespace(mode):
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n", "labels": {MODE_LABEL: mode}}}


def pods_with(limits, **spec):
    return {"metadata": {}, "spec": {"containers": [{"name": "c", "image": "i", "resources": limits}]} | spec}


def limits(**amounts):
    return {"limits": {GPU if key == "gpu" else FPGA: amount for key, amount in amounts.items()}}


POD, JOB, RAY_CLUSTER, JOBSET, TRAINING = (
    row for row in KINDS if row[1] in ("Pod", "Job", "RayCluster", "JobSet", "Training")
)
ONE, BOTH = pods_with(limits(gpu="1")), pods_with(limits(gpu="1", fpga="1"))
EMPTY, MOVED, SERVED = having(node("a")), having(*migrated_fleet("a")), having(*migrated_fleet("a", extended=GPU))
IN_POD, UNFILLED = pods_with({}, resources=limits(gpu="1")), pods_with(limits(gpu="${GPUS}"))
